"""The command of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer folders of new plugins, which come with the kit of their kind."""
    yield Command(
        name="new-plugin",
        help="Write a complete, installable, tested plugin folder.",
        target="empo_testing.new_plugin:new_plugin",
        api=1,
    )
