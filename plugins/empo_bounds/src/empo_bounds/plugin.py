"""The command of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer certificates."""
    yield Command(
        name="certify",
        help="Prove intervals for the values of a run's policy: goals, power, V_r.",
        target="empo_bounds.commands:certify",
        api=1,
    )


@hookimpl
def empo_kernels() -> str:
    """The function that compiles the kernels, by certifying a run of a small world."""
    return "empo_bounds.warmup:compile_kernels"
