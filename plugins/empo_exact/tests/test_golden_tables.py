"""The reference itself, against numbers of another implementation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from comparison import by_goal, robot_shares, sizes
from random_games import Table, TableWorld

from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference

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


def golden_theory(data: dict[str, Any]) -> CompleteTheory:
    given = dict(data["params"])
    return CompleteTheory(terminal_value=given.pop("terminal_Vr"), accrual="continuous", **given)


@pytest.mark.parametrize("name", FILES)
def test_every_table_of_the_public_implementation_is_reproduced(name: str) -> None:
    data = golden(name)
    world = TableWorld(golden_table(data))
    assert sizes(world) == (data["n_states"], data["n_terminal"], data["n_state_edges"])
    reference, shares = Reference(world, golden_theory(data)), robot_shares(world.spec)
    per_human = len(data["goals"])
    for index, expected in enumerate(data["states"]):
        found = reference.at(world.row(index), None)
        assert found.v_r == pytest.approx(expected["V_r"], rel=1e-12, abs=0)
        assert (not found.pi_r) == expected["terminal"]
        if expected["terminal"]:
            continue
        q_r, pi_r = ([of[share] for share in shares] for of in (found.q_r, found.pi_r))
        assert found.u_r == pytest.approx(expected["U_r"], rel=1e-11, abs=0)
        assert q_r == pytest.approx(expected["Q_r"], rel=1e-11, abs=0)
        assert pi_r == pytest.approx(expected["pi_r"], rel=1e-10, abs=1e-300)
        for position, human in enumerate(data["human_agent_indices"]):
            mine = slice(position * per_human, (position + 1) * per_human)
            key = str(human)
            assert found.x_h[human] == pytest.approx(expected["X_h"][key], rel=1e-11, abs=0)
            assert by_goal(found.v_m)[mine] == pytest.approx(
                expected["V_h_m_phase1"][key], rel=1e-11
            )
            assert by_goal(found.v_e)[mine] == pytest.approx(expected["V_h_e"][key], rel=1e-11)
            for goal, given in zip(
                range(len(found.pi_h))[mine], expected["pi_h_phase1"][key], strict=True
            ):
                assert list(found.pi_h[goal].values()) == pytest.approx(given, rel=1e-11)


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
    theory = CompleteTheory(beta_h=math.log(3) / 0.25, beta_r=7.0, zeta=2.0, terminal_value=-1.0)
    world = TableWorld(table)
    values = Reference(world, theory).at(world.row(0), None)
    # Goal 0 is surely reached by staying and at worst not by going: Q = (1, 0). Goal 1 is out
    # of reach when staying and reached with 1/4 at worst when going: Q = (0, 1/4).
    assert list(values.pi_h[0].values()) == pytest.approx([81 / 82, 1 / 82])
    assert list(values.pi_h[1].values()) == pytest.approx([1 / 4, 3 / 4])
    assert by_goal(values.v_m) == pytest.approx([81 / 82, 3 / 16])
    # Nothing comes later, so the robot is indifferent and holds the door half of the time.
    assert list(values.pi_r.values()) == pytest.approx([1 / 2, 1 / 2])
    assert by_goal(values.v_e) == pytest.approx([81 / 82 + 1 / 82 * 3 / 8, 3 / 4 * 5 / 8])
    assert values.x_h[0] == pytest.approx(0.5 * (651 / 656) ** 2 + (15 / 32) ** 2)
    assert values.v_r == pytest.approx(-1 / values.x_h[0] - 1)
