"""Transitions per second of certificates, in worlds whose successors are compiled.

``python tests/benchmarks/bench_certify.py`` expands everything and values it, on one core: with
policies that are the same at all times, and with policies that have to be asked for at each.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.induction import induce
from empo_bounds.occupancy import deepen
from empo_bounds.question import Question
from empo_bounds.unrolled import Unrolled
from empo_core.components import build
from empo_core.config import HumanPriorRef, WorldModelRef
from empo_core.protocols import WorldModel
from empo_theory.parameters import TheoryParams

WORLDS: list[dict[str, Any]] = [
    {"name": "blocks", "params": {"boxes": 3, "max_steps": 6}},
    {"name": "multigrid/free_the_human", "params": {"max_steps": 12}},
]
AIM = 1e6


class Even:
    """Robots that act evenly at random; an ``empo_core.protocols.RobotPolicy``."""

    def __init__(self, world: WorldModel, *, is_stationary: bool) -> None:
        self._world, self.is_stationary = world, is_stationary

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        number = self._world.spec.num_robot_actions
        return torch.full((len(states), number), 1 / number, dtype=torch.float64)


class Asked:
    """A human prior that does not say whether it depends on time."""

    def __init__(self, prior: Any) -> None:
        self.policy = prior.policy


def measured(reference: dict[str, Any], *, is_stationary: bool) -> tuple[str, ...]:
    """A row: pairs, transitions, and seconds of CPU."""
    world = build(WorldModelRef.model_validate(reference))
    prior = build(HumanPriorRef.model_validate("uniform"), world)
    robots = Even(world, is_stationary=is_stationary)
    humans = prior if is_stationary else Asked(prior)
    unrolled = Unrolled(Question(world, robots, humans, TheoryParams(gamma_h=0.95)))
    begun = time.process_time()
    deepen(unrolled, 0.0, lambda: True, lambda time: None)
    expanded = time.process_time()
    induce(unrolled, Assumptions())
    done = time.process_time()
    followed = int(
        sum(unrolled.moments.items[layer.moment[layer.expanded]].sum() for layer in unrolled.layers)
    )
    rate = followed / (done - begun)
    return (
        world.spec.name,
        "once" if is_stationary else "at every time",
        f"{unrolled.pairs:,}",
        f"{followed:,}",
        f"{expanded - begun:.2f}",
        f"{done - expanded:.2f}",
        f"{rate / 1e6:.2f} M/s {'ok' if rate >= AIM else 'below 1 M/s'}",
    )


def main() -> None:
    """Print the table."""
    table = Table(
        *("world", "policies asked", "pairs", "transitions", "expand s", "value s", "per core")
    )
    for reference in WORLDS:
        for is_stationary in (True, False):
            measured(reference, is_stationary=is_stationary)  # Compiles.
            table.add_row(*measured(reference, is_stationary=is_stationary))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
