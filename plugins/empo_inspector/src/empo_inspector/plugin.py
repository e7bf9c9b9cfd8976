"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from empo_core import Command, hookimpl

if TYPE_CHECKING:
    from empo_core.experiment import Experiment


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


@hookimpl
def empo_run_finished(run: Experiment) -> None:
    """Write the page of a run that wants one."""
    from empo_inspector.page import write_page_of

    write_page_of(run)
