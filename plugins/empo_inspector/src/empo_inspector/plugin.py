"""The commands of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer explanations, games and pages of decisions."""
    yield Command(
        name="explain",
        help="Why does the robot of a run prefer one action to another?",
        target="empo_inspector.commands:explain",
        api=1,
    )
    yield Command(
        name="inspect",
        help="Write a page that shows every decision of a run, and why.",
        target="empo_inspector.page_command:inspect",
        api=1,
    )
    yield Command(
        name="play",
        help="Act for an agent of a world, in the terminal, among the policies of a run.",
        target="empo_inspector.play_commands:play",
        api=1,
    )
