"""The command of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer sweeps."""
    yield Command(
        name="sweep",
        help="Run a config with many values and seeds, and compare what comes of it.",
        target="empo_sweep.commands:sweep",
        api=1,
    )
