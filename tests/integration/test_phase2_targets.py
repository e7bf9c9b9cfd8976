"""The exact values are the fixed point of the learner's targets, on worlds that can be solved."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import empo_multigrid
from empo_core.protocols import ValueNetwork
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Theory
from empo_phase2.quantities import Quantities
from empo_phase2.state_recorder import StateRecorder
from empo_phase2.successors import JointActionOrder
from empo_phase2.targets import BatchTargets, TargetComputer
from empo_phase2.warmup import ScheduledTheory
from empo_scatter_add.aggregator import ScatterAdd
from empo_scatter_add.plugin import ScatterAddParams
from empo_theory.parameters import CompleteTheory

WORLDS = Path(empo_multigrid.__file__).parent / "worlds"
THEORY = {"gamma_h": 0.95, "gamma_r": 0.9, "beta_r": 5.0, "zeta": 2.0, "xi": 1.0, "eta": 1.1}
EVERYTHING: tuple[Quantity, ...] = ("v_h_e", "x_h", "u_r", "q_r", "v_r")


class Oracle(ValueNetwork):
    """A value network that knows the right answers."""

    def __init__(self, quantity: Quantity, result: ExactResult) -> None:
        super().__init__()
        self.quantity = quantity
        self._result = result
        self._at = functools.cache(result.at)

    def forward(self, query: ValueQuery) -> Tensor:
        """The exact values of what is asked."""
        query = query.spread()
        answers = [self._answer(query, i) for i in range(len(query.states))]
        return torch.tensor(answers, dtype=torch.float64).view(len(query), -1)

    def _answer(self, query: ValueQuery, i: int) -> list[float]:
        time = (self._result.horizon or 0) - int(query.steps_left[i])
        values = self._at(tuple(query.states[i].tolist()), time)
        if values.terminal:  # Must not be read.
            return [math.nan] * (self._result.spec.num_robot_actions ** (self.quantity == "q_r"))
        if self.quantity == "q_r":
            return [float(q) for q in values.Q_r]
        if self.quantity == "v_h_e":
            assert query.goal is not None
            return [float(values.V_e[int(query.goal[i])])]
        if self.quantity == "x_h":
            assert query.human is not None
            return [values.X_h[int(query.human[i])]]
        return [values.U_r if self.quantity == "u_r" else values.V_r]


def recorded(
    world: MultigridWorld, result: ExactResult, times: list[int]
) -> tuple[States, Transitions]:
    """Transitions with all their successors, from some states of each time."""
    spec: WorldSpec = world.spec
    slots, order = GoalIndex.of(spec), JointActionOrder(spec)
    recorder = StateRecorder(world, slots, order, "rows")
    assert spec.horizon is not None
    rows = [result.reachable_states(spec.horizon - time)[:40] for time in times]
    left = [
        torch.full((len(some),), spec.horizon - time)
        for some, time in zip(rows, times, strict=True)
    ]
    sources = torch.cat(rows)
    state = recorder.number(sources)
    found = order.arranged(world.transitions(sources), len(sources))
    successor = recorder.number(found.states)
    prior = [
        torch.from_numpy(result.policies(t, result.find_rows(some.numpy()).astype("int64")).pi_h)
        for some, t in zip(rows, times, strict=True)
    ]
    policy = torch.cat(prior)
    transitions = Transitions(
        state=state,
        steps_left=torch.cat(left),
        human_policy=policy[:, slots.goal[0]],
        acts_for=torch.ones(len(sources), len(slots), dtype=torch.bool),
        behaviour=torch.zeros(len(sources), 0),
        action=torch.zeros(len(sources), dtype=torch.int64),
        offsets=found.offsets,
        successor=successor,
        prob=found.prob.double(),
    )
    return recorder.states(), transitions


@pytest.mark.parametrize("learned", [("v_h_e", "q_r"), ("v_h_e", "v_r"), EVERYTHING])
@pytest.mark.parametrize(
    ("world", "horizon"), [("trivial", 4), ("simple_circle", 3), ("two_room", 3)]
)
def test_exact_values_are_their_own_targets(
    world: str, horizon: int, learned: tuple[Quantity, ...]
) -> None:
    built = load_world(MultigridParams(file=WORLDS / f"{world}.yaml", max_steps=horizon))
    result = solve(built, ExactParams(theory=CompleteTheory(beta_h=8.0, **THEORY)))
    states, transitions = recorded(built, result, list(range(horizon)))
    spec, slots = built.spec, GoalIndex.of(built.spec)
    networks: dict[Quantity, ValueNetwork] = {q: Oracle(q, result) for q in learned}
    add = ScatterAdd(ScatterAddParams())
    quantities = Quantities(networks, spec, slots, Phase2Theory(**THEORY), add)
    compute = TargetComputer(quantities, model_based=True)
    found: BatchTargets = compute(
        transitions, states.at, ScheduledTheory(gamma_h=0.95, gamma_r=0.9, beta_r=5.0)
    )
    for i in range(len(transitions)):
        left = int(transitions.steps_left[i])
        right = result.at(states.rows[transitions.state[i]], horizon - left)
        exact = {
            "q_r": right.Q_r,
            "pi_r": right.pi_r,
            "v_h_e": right.V_e[slots.goal[0].numpy()],
            "x_h": list(right.X_h.values()),
            "u_r": right.U_r,
            "v_r": right.V_r,
        }
        for name, value in exact.items():
            expected = torch.as_tensor(value, dtype=torch.float64)
            if getattr(found, name) is None:
                assert name not in learned
                continue
            torch.testing.assert_close(
                getattr(found, name)[i], expected, rtol=1e-9, atol=1e-12, msg=f"{name} at {i}"
            )
