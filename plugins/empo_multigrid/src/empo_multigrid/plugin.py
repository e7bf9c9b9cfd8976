"""The components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from empo_core import Command, Component, Config, ConfigFile, hookimpl

Simultaneity = Literal["exact", "reference"]


class MultigridParams(Config):
    """Which world file to load, and how its simultaneous moves are resolved."""

    library: ClassVar = Path(__file__).parent / "worlds"

    file: ConfigFile = Field(description="World file, YAML or JSON, relative to the config.")
    max_steps: int | None = Field(
        None, ge=1, description="Horizon; None takes the world file's max_steps."
    )
    simultaneity: Simultaneity = Field(
        "exact",
        description="Rule by which simultaneous actions combine: 'exact' treats all agents alike; "
        "'reference' reproduces the public implementation, index-order shortcuts included.",
    )


class PathHeuristicParams(Config):
    """A human prior that plans nothing and follows cheapest paths."""

    beta: float = Field(10.0, ge=0, description="Inverse temperature of the softmax.")
    drop: Literal["at-once", "aside"] = Field(
        "at-once",
        description="Place where a key that opens nothing any more is put down: 'at-once' in the "
        "next free cell ahead, even if that blocks the way; 'aside' in one that is not on the way.",
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the multigrid world and its heuristic human prior."""
    yield Component(
        kind="world_model",
        name="multigrid",
        params=MultigridParams,
        target="empo_multigrid.world:load_world",
        api=1,
        summary="Multi-agent gridworld with keys, doors, rocks, lava, buttons and more.",
    )
    yield Component(
        kind="human_prior",
        name="path-heuristic",
        params=PathHeuristicParams,
        target="empo_multigrid.heuristic:PathHeuristic",
        api=1,
        summary="Humans walk along shortest paths and use keys and doors on the way.",
    )


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer maps of MiniGrid as world files."""
    yield Command(
        name="from-minigrid",
        help="Write a map of MiniGrid as a world file.",
        target="empo_multigrid.commands:from_minigrid",
        api=1,
    )


@hookimpl
def empo_kernels() -> str:
    """The function that compiles the kernels, by calling each of them for a small world."""
    return "empo_multigrid.warmup:compile_kernels"
