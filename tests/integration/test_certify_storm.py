"""Certified chances of goals equal those of the model checker Storm on exported chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float64

from empo_bounds.assumptions import Assumptions
from empo_bounds.induction import induce
from empo_bounds.occupancy import deepen
from empo_bounds.question import Question
from empo_bounds.unrolled import Unrolled
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_exact.plugin import ExactParams
from empo_exact.policies import SolvedHumans, SolvedRobots
from empo_exact.solve import solve
from empo_exact.storm import write_labels
from empo_theory.parameters import CompleteTheory

stormpy = pytest.importorskip("stormpy")
environments = pytest.importorskip("stormpy.environments")

THEORY = CompleteTheory(beta_h=5.0, gamma_h=1.0, gamma_r=0.99, beta_r=3.0, zeta=2.0, eta=1.1)
WORLDS = [
    ("trivial", 5),
    ("small_trolley", 3),
    pytest.param("two_room", 4, marks=pytest.mark.slow),
    pytest.param("risk_aversion_simple", 4, marks=pytest.mark.slow),
]


def unrolled_of(
    name: str, steps: int, epsilon: float
) -> tuple[Unrolled, Float64[np.ndarray, " goal"]]:
    """What is expanded of a solved world under its solution, and V_h^e by that."""
    reference = {"name": f"multigrid/{name}", "params": {"max_steps": steps}}
    world = build(WorldModelRef.model_validate(reference))
    result = solve(world, ExactParams(theory=THEORY))
    unrolled = Unrolled(Question(world, SolvedRobots(result), SolvedHumans(result), THEORY))
    deepen(unrolled, epsilon, lambda: True, lambda time: None)
    return unrolled, result.at(0).V_e


def export(unrolled: Unrolled, human: int, goal: int, directory: Path) -> tuple[Path, Path]:
    """Write the chain in which a human pursues a goal, and everybody else acts on average.

    Its states are the pairs, time by time. ``goal`` is where it is attained, at the start nowhere,
    and ``unknown`` is the frontier, which attains it at best.
    """
    first = np.cumsum([0, *(len(layer.moment) for layer in unrolled.layers)])
    actions, steps = unrolled.question.num_actions, unrolled.moments.steps(human)
    own = goal - unrolled.question.first_goal[human]
    lines = ["dtmc"]
    attained, unknown = (np.zeros(first[-1], np.bool_) for _ in range(2))
    for time, layer in enumerate(unrolled.layers):
        alive = unrolled.alive(time)
        reached = unrolled.states.achieved[unrolled.state(time), goal] > 0
        attained[first[time] : first[time + 1]] = reached & (time > 0)
        unknown[first[time] : first[time + 1]] = alive & ~layer.expanded
        for pair, moment in enumerate(layer.moment.tolist()):
            node = first[time] + pair
            if moment < 0:
                lines.append(f"{node} {node} 1")
                continue
            position, chances = unrolled.position(time + 1), dict[int, float]()
            policy = unrolled.policies.human(human)[steps.policy[moment], own]
            for action in range(actions):
                row = moment * actions + action
                for entry in range(int(steps.offsets[row]), int(steps.offsets[row + 1])):
                    target = int(first[time + 1] + position[steps.landing[entry]])
                    chance = float(policy[action] * steps.weight[entry])
                    chances[target] = chances.get(target, 0.0) + chance
            lines += [f"{node} {at} {p!r}" for at, p in sorted(chances.items()) if p > 0]
    (directory / "chain.tra").write_text("\n".join(lines) + "\n")
    labels = {"init": np.arange(first[-1]) == 0, "goal": attained, "unknown": unknown}
    write_labels(directory / "chain.lab", labels)
    return directory / "chain.tra", directory / "chain.lab"


def chance(model: Any, formula: str) -> float:
    """Storm's answer at the start, from direct linear algebra."""
    environment = stormpy.Environment()
    direct = environments.EquationSolverType.ELIMINATION
    environment.solver().set_linear_equation_solver_type(direct)
    (checked,) = stormpy.parse_properties(formula)
    return float(stormpy.model_checking(model, checked, environment=environment).get_value(0))


@pytest.mark.parametrize("epsilon", [0.0, 0.03])
@pytest.mark.parametrize(("name", "steps"), WORLDS)
def test_intervals_are_those_of_storm(
    name: str, steps: int, epsilon: float, tmp_path: Path
) -> None:
    unrolled, solved = unrolled_of(name, steps, epsilon)
    v_e = induce(unrolled, Assumptions()).start.v_e
    if epsilon:
        assert (v_e.high - v_e.low).max() > 0.01
    for human, first in enumerate(unrolled.question.first_goal[:-1]):
        for goal in range(first, unrolled.question.first_goal[human + 1]):
            files = export(unrolled, human, goal, tmp_path)
            model = stormpy.build_model_from_explicit(*map(str, files))
            low = chance(model, 'P=? [F "goal"]')
            high = chance(model, 'P=? [F ("goal" | "unknown")]')
            assert v_e.low[0, goal] == pytest.approx(low, abs=1e-10)
            assert low - 1e-10 <= solved[unrolled.question.order[goal]] <= high + 1e-10
            # Of a frontier, certified chances allow for probabilities that sum to 1 within 1e-9.
            assert v_e.high[0, goal] == pytest.approx(high, abs=1e-10 if epsilon == 0 else 2e-8)
