"""A solvable little world, its exact values, and networks that know them."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from empo_core.protocols import Aggregator, Algorithm, ValueNetwork
from empo_core.types import Goal, Quantity, Reduction, Segments, ValueQuery
from empo_phase2.estimates import ValueEstimator
from empo_phase2.params import Phase2Theory
from empo_phase2.quantities import Quantities
from empo_phase2.state_queries import StateEncoder
from empo_testing.worlds import TinyWorld
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference
from empo_theory.solved_world import SolvedWorld

THEORY = Phase2Theory(gamma_h=0.9, gamma_r=0.8, beta_r=3.0, zeta=2.0, xi=1.5, eta=1.1)


class DoorWorld(TinyWorld):
    """``TinyWorld`` with goals that leave nobody helpless, those of the last human first."""

    def __init__(self, horizon: int = 4) -> None:
        super().__init__(horizon)
        goals = (
            Goal(human=2, name="shut", weight=0.5),
            Goal(human=0, name="shut", weight=1.0),
            Goal(human=2, name="not shut", weight=2.0),
            Goal(human=0, name="inside", weight=0.25),
            Goal(human=0, name="not shut", weight=1.0),
        )
        self.spec = dataclasses.replace(self.spec, goals=goals)
        shut, ajar, inside = (1, 1, 0, 0, 0), (0, 0, 1, 0, 1), (0, 0, 1, 1, 1)
        self._achieved = torch.tensor([shut, ajar, inside]).bool()


class EagerHumans:
    """Each goal's human has favourite actions of its own, and more so when time runs out."""

    def __init__(self, world: TinyWorld) -> None:
        self._world = world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        owners = torch.tensor([goal.human for goal in self._world.spec.goals])
        favour = torch.tensor([[3, 1, 1], [1, 5, 1], [1, 2, 4], [2, 3, 1], [1, 1, 1]]).double()
        eagerness = 1 / steps_left.double()[:, None, None]
        chances = self._world.available(states)[:, owners] * favour[: len(owners)] ** eagerness
        return chances / chances.sum(-1, keepdim=True)


class Adding:
    """Adds up or averages; an ``empo_core.protocols.Aggregator``."""

    def __call__(
        self,
        values: Tensor,
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Tensor | None = None,
    ) -> Tensor:
        if weight is not None:
            values = values * weight.view(-1, *[1] * (values.ndim - 1))
        total = values.new_zeros(segments.num_segments, *values.shape[1:])
        total = total.index_add(0, segments.index, values)
        return total / segments.counts if reduction == "mean" else total


def aggregator() -> Aggregator:
    return Adding()


class SolvedDoors(SolvedWorld):
    """Exact values of a world, as a solution to compare with."""

    def __init__(self, world: TinyWorld, theory: Phase2Theory = THEORY) -> None:
        named = {
            name: getattr(theory, name)
            for name in CompleteTheory.model_fields
            if name in type(theory).model_fields
        }
        self.world = world
        self.exact = Reference(world, CompleteTheory(**named), EagerHumans(world))

    def reachable_states(self, steps_left: int) -> Tensor:
        horizon = self.world.spec.horizon
        assert horizon is not None
        rows = self.world.initial_state()[None]
        for _ in range(horizon - steps_left):
            rows = torch.unique(self.world.transitions(rows).states, dim=0)
        return rows[self.world.available(rows).flatten(1).any(1)]

    def robot_values(self, states: Tensor, steps_left: int) -> Tensor:
        values = [self.exact.at(tuple(row), steps_left).v_r for row in states.tolist()]
        return torch.tensor(values, dtype=torch.float64)

    def robot_policies(self, states: Tensor, steps_left: int) -> Tensor:
        return self._numbers("pi_r", states, steps_left)

    def goal_values(self, states: Tensor, steps_left: int) -> Tensor:
        return self._numbers("v_e", states, steps_left)

    def q_r(self, states: Tensor, steps_left: int) -> Tensor:
        return self._numbers("q_r", states, steps_left)

    def _numbers(self, name: str, states: Tensor, steps_left: int) -> Tensor:
        """Numbers by goal, or by the action of the only robot: 0 where it is not available."""
        spec = self.world.spec
        (robot,) = spec.robots
        keys = list(range(len(spec.goals)))
        if name != "v_e":
            keys = [spec.strides[robot] * action for action in range(spec.num_robot_actions)]
        rows = [getattr(self.exact.at(tuple(row), steps_left), name) for row in states.tolist()]
        numbers = [[row.get(key, 0.0) for key in keys] for row in rows]
        return torch.tensor(numbers, dtype=torch.float64).view(len(states), len(keys))


_ASK = {"q_r": "q_r", "v_r": "robot_values", "v_h_e": "goal_values"}


class KnowingNetwork(ValueNetwork):
    """Says what is right about Q_r, V_r or V_h^e."""

    def __init__(self, quantity: Quantity, solved: SolvedDoors) -> None:
        super().__init__()
        self.quantity: Quantity = quantity
        self._solved = solved

    def forward(self, query: ValueQuery) -> Tensor:
        asked = query.spread()
        # Nobody looks at what it says where no step is left.
        left = asked.steps_left.clamp(min=1).tolist()
        ask = getattr(self._solved, _ASK[self.quantity])
        answers = [ask(row[None], n) for row, n in zip(asked.states, left, strict=True)]
        values = torch.cat(answers).view(len(query), -1).nan_to_num(nan=-1.0, neginf=-1.0).float()
        return values if asked.goal is None else values.gather(1, asked.goal[:, None])


def knowing(world: DoorWorld, *quantities: Quantity, prior: bool = False) -> ValueEstimator:
    """Learned values that are right, of which only some are learned."""
    solved = SolvedDoors(world)
    networks: dict[Quantity, ValueNetwork] = {q: KnowingNetwork(q, solved) for q in quantities}
    encoder = StateEncoder(world, "rows", EagerHumans(world) if prior else None)
    values = Quantities(networks, world.spec, encoder.goals, THEORY, aggregator())
    return ValueEstimator(values, encoder)


class NoSolver(Algorithm):
    """An algorithm whose result tells nothing."""

    def __init__(self, params: object) -> None:
        self._params = params

    def run(self, context: object) -> object:
        return object()

    def check(self, world: object) -> dict[str, object]:
        return {}
