"""Exact solutions of multigrid worlds: mirror images, and a robot that fetches a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

import empo_multigrid
from empo_exact.plugin import ExactParams
from empo_exact.result import StateValues
from empo_exact.solve import solve
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world
from empo_theory.parameters import CompleteTheory

WORLDS = Path(empo_multigrid.__file__).parent / "worlds"
PARAMS = ExactParams(
    theory=CompleteTheory(
        beta_h=8.0, gamma_h=0.95, gamma_r=0.99, beta_r=5.0, zeta=2.0, xi=1.0, eta=1.1
    )
)


def with_theory(**changes: float) -> ExactParams:
    return PARAMS.model_copy(update={"theory": PARAMS.theory.model_copy(update=changes)})


MIRRORED = {"e": "w", "w": "e", "n": "n", "s": "s"}
STILL, LEFT, RIGHT, FORWARD = range(4)


def mirrored(document: dict[str, Any]) -> dict[str, Any]:
    """The world as seen in a mirror that swaps left and right; no two agents share a row."""
    rows = [row.split() for row in document["map"].strip().splitlines()]
    assert all(sum(cell[0] == "A" for cell in row) <= 1 for row in rows)
    last = len(rows[0]) - 1
    goals = []
    for goal in document["possible_goals"]:
        numbers = [int(number) for number in goal.split(",")]
        goals.append(",".join(str(last - n if i % 2 == 0 else n) for i, n in enumerate(numbers)))
    number = sum(cell[0] == "A" for row in rows for cell in row)
    given = list(document.get("orientations", ["e"]))
    return document | {
        "map": "\n".join(" ".join(reversed(row)) for row in rows),
        "orientations": [MIRRORED[given[i % len(given)]] for i in range(number)],
        "possible_goals": goals,
    }


@pytest.mark.parametrize(
    ("name", "steps", "orientations"),
    [
        ("trivial", 5, ["s", "n"]),
        ("simple_circle", 5, ["n", "e"]),
        ("risk_aversion_simple", 5, ["s", "n"]),
        ("corridor_bush", 4, ["s", "w", "n"]),
    ],
)
def test_a_mirrored_world_has_the_mirrored_solution(
    name: str, steps: int, orientations: list[str], tmp_path: Path
) -> None:
    document = YAML(typ="safe").load(WORLDS / f"{name}.yaml")
    document["orientations"] = orientations
    before = root(written(document, tmp_path / "before.yaml", steps))
    after = root(written(mirrored(document), tmp_path / "after.yaml", steps))
    swapped = [STILL, RIGHT, LEFT, FORWARD]
    close(after.V_r, before.V_r)
    close(after.V_e, before.V_e)
    close(after.V_m, before.V_m)
    close(after.pi_r, np.asarray(before.pi_r)[swapped])
    close(after.pi_h, np.asarray(before.pi_h)[:, swapped])
    # Left and right differ for somebody; otherwise the swap above would check nothing.
    everybody = np.concatenate([before.pi_h, before.pi_r[None]])
    assert not np.allclose(everybody[:, LEFT], everybody[:, RIGHT], atol=1e-3)


def written(document: dict[str, Any], file: Path, steps: int) -> MultigridWorld:
    YAML().dump(document, file)
    return load_world(MultigridParams(file=file, max_steps=steps))


def root(world: MultigridWorld) -> StateValues:
    return solve(world, PARAMS).at(world.initial_state())


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-11, atol=0)


def test_the_robot_fetches_the_key_opens_the_door_and_steps_aside() -> None:
    world = load_world(MultigridParams(file=WORLDS / "key_and_door.yaml", max_steps=12))
    human, robot = world.spec.humans[0], world.spec.robots[0]
    goal = next(i for i in world.spec.goals_of(human) if world.spec.goals[i].name == "(4,1)")
    names = world.spec.agents[robot].actions
    result = solve(world, with_theory(beta_h=10.0, beta_r=100.0))
    state, taken = world.initial_state(), []
    for time in range(11):
        values = result.at(state, time=time)
        best, wanted = int(np.argmax(values.pi_r)), int(np.argmax(values.pi_h[goal]))
        # While it gets something done the robot is sure; from then on it only stays clear.
        assert time >= 8 or values.pi_r[best] > 0.95
        taken.append(names[best])
        joint = torch.zeros(1, 2, dtype=torch.int64)
        joint[0, robot], joint[0, human] = best, wanted
        found = world.transitions(state[None], joint)
        state = found.states[int(found.prob.argmax())]
    fetch, come_back = ["forward", "right", "pickup"], ["right", "forward"]
    assert taken[:8] == [*fetch, *come_back, "toggle", "left", "forward"]
    assert bool(world.achieved(state[None])[0, goal]), world.describe(state)
    assert tuple(world.positions(state[None])[0, robot].tolist()) in {(3, 2), (4, 2)}


def test_without_a_robot_that_opens_the_door_the_human_has_less_power() -> None:
    world = load_world(MultigridParams(file=WORLDS / "key_and_door.yaml", max_steps=12))
    helpful, uniform = (
        solve(world, with_theory(beta_r=beta)).at(world.initial_state()) for beta in (100.0, 0.0)
    )
    assert helpful.X_h[world.spec.humans[0]] > 1.5 * uniform.X_h[world.spec.humans[0]]
