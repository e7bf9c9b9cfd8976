"""The reference solver itself, against numbers of another implementation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from random_games import Table, TableWorld
from reference_solver import Moment, Parameters, Values, reference_solve

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
# These two files list their transitions, so no world model is needed to use them.
FILES = ("micro_corridor__T2__lib", "micro_two_humans__T2__demo")


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def golden_table(data: dict[str, Any]) -> Table:
    """The golden's unrolled graph as an acyclic game; time is part of its states."""
    outcomes = [
        {
            tuple(profile): tuple((p, s, 1.0) for p, s in zip(probs, states, strict=True))
            for profile, probs, states in transitions
        }
        for transitions in data["transitions"]
    ]
    goals = []
    for human in data["human_agent_indices"]:
        for goal in data["goals"]:
            x1, y1, x2, y2 = (goal["coords"] * 2)[:4]
            cells = [state["state"][1][human][:2] for state in data["states"]]
            members = [i for i, (x, y) in enumerate(cells) if x1 <= x <= x2 and y1 <= y <= y2]
            goals.append((human, goal["weight"], frozenset(members)))
    roles = tuple("human" if a["color"] == "yellow" else "robot" for a in data["agents"])
    return Table(
        roles=roles,
        num_actions=(len(data["actions"]),) * len(roles),
        outcomes=tuple(outcomes),
        goals=tuple(goals),
        labels=tuple(range(len(outcomes))),
        horizon=None,
    )


def golden_parameters(data: dict[str, Any]) -> Parameters:
    given = dict(data["params"])
    beta_h = given.pop("beta_h")
    return Parameters(
        beta_h=math.inf if beta_h == "inf" else beta_h,
        terminal_value=given.pop("terminal_Vr"),
        accrual="continuous",
        **given,
    )


def solved(name: str) -> tuple[dict[str, Any], TableWorld, dict[Moment, Values]]:
    data = golden(name)
    world = TableWorld(golden_table(data))
    game, values = reference_solve(world, golden_parameters(data))
    assert game.sizes() == (data["n_states"], data["n_terminal"], data["n_state_edges"])
    return data, world, values


@pytest.mark.parametrize("name", FILES)
def test_every_table_of_the_public_implementation_is_reproduced(name: str) -> None:
    data, world, values = solved(name)
    per_human = len(data["goals"])
    for index, expected in enumerate(data["states"]):
        found = values[0, world.row(index)]
        assert found.V_r == pytest.approx(expected["V_r"], rel=1e-12, abs=0)
        assert found.terminal == expected["terminal"]
        if found.terminal:
            continue
        assert found.U_r == pytest.approx(expected["U_r"], rel=1e-11, abs=0)
        assert found.Q_r == pytest.approx(expected["Q_r"], rel=1e-11, abs=0)
        assert found.pi_r == pytest.approx(expected["pi_r"], rel=1e-10, abs=1e-300)
        for position, human in enumerate(data["human_agent_indices"]):
            mine = slice(position * per_human, (position + 1) * per_human)
            key = str(human)
            assert found.X_h[human] == pytest.approx(expected["X_h"][key], rel=1e-11, abs=0)
            assert found.V_m[mine] == pytest.approx(expected["V_h_m_phase1"][key], rel=1e-11)
            assert found.V_e[mine] == pytest.approx(expected["V_h_e"][key], rel=1e-11)
            for mine_g, given in zip(found.pi_h[mine], expected["pi_h_phase1"][key], strict=True):
                assert mine_g == pytest.approx(given, rel=1e-11)


def test_fifty_digits_and_floats_give_the_same_values() -> None:
    data = golden(FILES[0])
    world, params = TableWorld(golden_table(data)), golden_parameters(data)
    _, plain = reference_solve(world, params)
    _, precise = reference_solve(world, params, digits=50)
    for moment, values in plain.items():
        assert values.V_r == pytest.approx(float(precise[moment].V_r), rel=1e-13, abs=0)


def test_a_cycle_without_a_horizon_is_refused() -> None:
    loop: dict[tuple[int, ...], Any] = {(0,): ((1.0, 0, 1.0),)}
    table = Table(("human",), (1,), (loop,), ((0, 1.0, frozenset({0})),), (5,), None)
    with pytest.raises(ValueError, match="cycle"):
        reference_solve(TableWorld(table))


def test_equations_are_right_on_a_game_small_enough_for_paper_and_pencil() -> None:
    """Stay or go, while a robot may lean against the door; one step; weights 1/2 and 1."""
    outcomes: dict[tuple[int, ...], Any] = {
        (0, 0): ((1.0, 1, 1.0),),
        (1, 0): ((1.0, 2, 1.0),),
        (0, 1): ((1.0, 1, 1.0),),
        (1, 1): ((0.75, 1, 1.0), (0.25, 2, 1.0)),
    }
    goals = ((0, 0.5, frozenset({1})), (0, 1.0, frozenset({2})))
    table = Table(("human", "robot"), (2, 2), (outcomes, {}, {}), goals, (3, 4, 5), None)
    params = Parameters(beta_h=math.log(3) / 0.25, beta_r=7.0, zeta=2.0, terminal_value=-1.0)
    world = TableWorld(table)
    values = reference_solve(world, params)[1][0, world.row(0)]
    # Goal 0 is surely reached by staying and at worst not by going: Q = (1, 0). Goal 1 is out
    # of reach when staying and reached with 1/4 at worst when going: Q = (0, 1/4).
    assert values.pi_h[0] == pytest.approx([81 / 82, 1 / 82])
    assert values.pi_h[1] == pytest.approx([1 / 4, 3 / 4])
    assert values.V_m == pytest.approx([81 / 82, 3 / 16])
    # Nothing comes later, so the robot is indifferent and holds the door half of the time.
    assert values.pi_r == pytest.approx([1 / 2, 1 / 2])
    assert values.V_e == pytest.approx([81 / 82 + 1 / 82 * 3 / 8, 3 / 4 * 5 / 8])
    assert values.X_h[0] == pytest.approx(0.5 * (651 / 656) ** 2 + (15 / 32) ** 2)
    assert values.V_r == pytest.approx(-1 / values.X_h[0] - 1)
