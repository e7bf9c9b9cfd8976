"""The commands of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer explanations of decisions, and comparisons of runs."""
    yield Command(
        name="explain",
        help="Why does the robot of a run prefer one action to another?",
        target="empo_inspector.commands:explain",
        api=1,
    )
