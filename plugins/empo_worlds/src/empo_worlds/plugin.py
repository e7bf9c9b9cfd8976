"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Command, hookimpl


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer to compile kernels."""
    yield Command(
        name="warmup",
        help="Compile the kernels of all plugins once, and keep them for later runs.",
        target="empo_worlds.commands:warmup",
        api=1,
    )


@hookimpl
def empo_kernels() -> str:
    """The function that compiles tables of rows and comparisons of symmetric states."""
    return "empo_worlds.warmup:compile_kernels"
