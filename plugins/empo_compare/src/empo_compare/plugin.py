"""The commands of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer a list of runs, and comparisons of runs."""
    yield Command(
        name="runs",
        help="List runs: how they went, what came of them, what differs in their configs.",
        target="empo_compare.commands:runs",
        api=1,
    )
    yield Command(
        name="compare",
        help="Compare runs: configs, results, curves, and policies where they are exact.",
        target="empo_compare.commands:compare",
        api=1,
    )
