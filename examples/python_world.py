"""A world in twenty lines of Python, solved exactly.

Run it with ``python examples/python_world.py``.
"""

from collections.abc import Hashable
from typing import Any

import rich
import torch

from empo_core.types import AgentSpec
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_worlds.enumeration import enumerate_world

ROOMS = ("hall", "left", "right")


class TwoDoors:
    """A human between two locked rooms; in each step the robot may unlock one of them."""

    name, horizon = "two doors", 3
    agents = (
        AgentSpec(name="human", role="human", actions=ROOMS),
        AgentSpec(name="robot", role="robot", actions=("wait", "unlock left", "unlock right")),
    )
    goals = {0: [(room, lambda state, room=room: state[0] == room) for room in ROOMS]}  # noqa: RUF012

    def initial_state(self) -> Hashable:
        """The human's room, and the rooms that are open."""
        return "hall", frozenset({"hall"})

    def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Any:
        """A human gets into an open room nine times in ten."""
        room, opened = state
        wanted, opening = ROOMS[actions[0]], opened | {ROOMS[actions[1]]}
        if wanted == room or wanted not in opened:
            return [(1.0, (room, opening))]
        return [(0.9, (wanted, opening)), (0.1, (room, opening))]


def main() -> None:
    """Solve the world and show what the robot should do."""
    world = enumerate_world(TwoDoors())
    result = solve(world, ExactParams(theory=CompleteTheory(beta_h=10.0, beta_r=20.0, zeta=2.0)))
    rich.print(result.report())
    for row in world.transitions(world.initial_state()[None], torch.tensor([[0, 1]])).states:
        print(f"After {world.describe(row)}: X_h = {result.at(row, time=1).X_h[0]:.6f}")


# Worker processes import this file, so what it does is kept behind the usual guard.
if __name__ == "__main__":
    main()
