"""Worlds that start in one of several states by chance: expected where a number is told, drawn
where an episode begins, and refused where only one start is supported."""

from __future__ import annotations

from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from empo_core.errors import BrokenWorldError, ConfigError, SolveError, WorldError
from empo_core.types import AgentSpec
from empo_core.world_content import world_digest
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult, load
from empo_exact.solve import solve
from empo_inspector.container import unpack
from empo_inspector.explanation import explain
from empo_inspector.page import whole_page
from empo_learning.evaluation.starts import Starts
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_tabular.table import Table
from empo_tabular.world import world_of
from empo_testing.algorithm import fresh
from empo_testing.environment import Player
from empo_testing.world_model import WorldModelTests
from empo_theory.inspection import InspectionScope
from empo_world_environments.vector import WorldVectorEnv
from empo_worlds.enumeration import EnumeratedWorld, enumerate_world

CHANCE = {"hall": 1 / 4, "yard": 3 / 4}
GAME = {
    "name": "doors",
    "agents": [
        {"name": "ann", "role": "human", "actions": ["wait", "left", "right"]},
        {"name": "bot", "role": "robot", "actions": ["idle", "open"]},
    ],
    "states": ["l", "yard", "hall", "r"],
    "terminal": ["r"],
    "horizon": 4,
    "transitions": [
        {"state": "hall", "actions": ["left", "open"], "to": {"l": "2/3", "hall": "1/3"}},
        {"state": ["hall", "yard"], "actions": [["left", "right"], "open"], "to": "r"},
        {"state": "yard", "actions": ["wait", "*"], "to": {"hall": "1/2", "yard": "1/2"}},
        {"state": "*", "to": "l"},
    ],
    "goals": {
        "ann": [{"name": "l", "states": "l"}, {"name": "r or hall", "states": ["r", "hall"]}]
    },
}


def world(initial: Any) -> EnumeratedWorld:
    return world_of(Table.model_validate(GAME | {"initial": initial}))


@pytest.fixture(scope="module")
def by_chance() -> ExactResult:
    return solve(world(CHANCE), ExactParams())


@pytest.fixture(scope="module")
def alone() -> list[ExactResult]:
    return [solve(world(state), ExactParams()) for state in CHANCE]


class TestSeveralStarts(WorldModelTests):
    @pytest.fixture
    def world(self) -> EnumeratedWorld:
        return world(CHANCE)


def test_exact_reports_expectations_over_the_initial_states(
    by_chance: ExactResult, alone: list[ExactResult]
) -> None:
    start = by_chance.at_start()
    chances = list(CHANCE.values())
    parts = [result.at(0) for result in alone]
    for name in ("V_r", "U_r", "Q_r", "pi_r", "V_m", "V_e"):
        expected = sum(
            p * np.array(getattr(part, name)) for p, part in zip(chances, parts, strict=True)
        )
        np.testing.assert_allclose(getattr(start, name), expected, rtol=1e-12)
    summary = by_chance.summary()["root"]
    assert isinstance(summary, dict)
    assert summary["V_r"] == start.V_r
    assert summary["X_h"] == {
        "0": pytest.approx(sum(p * part.X_h[0] for p, part in zip(chances, parts)))  # noqa: B905
    }
    # The hall is a start in which a goal is achieved, the yard is not.
    assert [goal["achieved"] for goal in summary["goals"]] == [False, False]  # type: ignore[union-attr,call-overload,index]


def test_an_action_of_some_starts_only_is_told_as_such() -> None:
    game = GAME | {"initial": CHANCE, "available": {"yard": {"bot": ["open"]}}}
    result = solve(world_of(Table.model_validate(game)), ExactParams())
    assert result.at_start().pi_r[0] > 0
    console = Console(width=200, record=True, file=StringIO())
    console.print(result.report())
    text = console.export_text()
    assert "in some starts only" in next(line for line in text.splitlines() if "idle" in line)
    assert "unavailable" not in text


def test_one_initial_state_with_certainty_is_the_plain_one(alone: list[ExactResult]) -> None:
    certain = world({"hall": 1, "yard": 0})
    assert certain.initial_state().tolist() == [2]
    assert world_digest(certain) == world_digest(world("hall"))
    assert world_digest(certain) != world_digest(world(CHANCE))
    assert world_digest(world({"hall": 1 / 2, "yard": 1 / 2})) != world_digest(world(CHANCE))


def test_episodes_of_a_solution_begin_by_chance(by_chance: ExactResult) -> None:
    generator = torch.Generator().manual_seed(3)
    begins = [by_chance.rollout(generator)[0][0] for _ in range(200)]
    rows = by_chance.graph.states[[0, 1], 0].tolist()
    assert rows == [2, 1]
    assert abs(begins.count(1) / 200 - 3 / 4) < 0.12
    time, states, visits = next(iter(by_chance.occupancy()))
    assert (time, states[:, 0].tolist(), visits.tolist()) == (4, [2, 1], list(CHANCE.values()))


def test_a_solution_keeps_its_starts_on_disk(by_chance: ExactResult, tmp_path: Path) -> None:
    by_chance.save(tmp_path)
    assert load(tmp_path, world(CHANCE)).at_start().V_r == by_chance.at_start().V_r


@pytest.mark.parametrize("order", [[2, 1], [1, 2]])
def test_rows_to_start_from_begin_with_the_first(order: list[int], tmp_path: Path) -> None:
    result = solve(world(CHANCE), ExactParams(), start=np.array(order)[:, None])
    assert result.at_start().V_r == result.at(0).V_r
    assert result.graph.states[0].tolist() == order[:1]
    result.save(tmp_path)
    again = load(tmp_path, world(CHANCE))
    assert again.at_start().V_r == result.at(0).V_r
    assert again.chain().rows[0].tolist() == order[:1]


def test_an_inspection_has_all_that_follows_any_start(by_chance: ExactResult) -> None:
    from empo_exact.inspection import inspect

    inspection = inspect(by_chance, by_chance.params.theory, InspectionScope())
    assert sorted(inspection.rows[:, 0].tolist()) == [0, 1, 2, 3]


def test_explanations_and_pages_say_which_initial_state_they_begin_in(
    by_chance: ExactResult, alone: list[ExactResult]
) -> None:
    inspection = by_chance.inspection(InspectionScope())
    for state, chance in ((0, "0.25"), (1, "0.75")):
        explanation = explain(inspection, by_chance.world, state)
        assert explanation.initial == f"one of 2 initial states (chance {chance})"
        console = Console(width=200, record=True, file=StringIO())
        console.print(explanation.report())
        first = console.export_text().splitlines()[0]
        assert first == f"state {state} at time 0, 4 steps left, {explanation.initial}"
    assert not explain(inspection, by_chance.world, 1, time=1).initial
    data, page = whole_page(inspection, by_chance.world, InspectionScope())
    begins = "one of 2 initial states (chance 0.25)"
    assert unpack(data)[0].provenance["start"] == begins
    assert f"<noscript><pre>{begins}\n" in page
    plain = alone[0].inspection(InspectionScope())
    assert not explain(plain, alone[0].world).initial
    data, _ = whole_page(plain, alone[0].world, InspectionScope())
    assert "start" not in unpack(data)[0].provenance


def test_a_chain_and_parts_and_reductions_take_one_start(by_chance: ExactResult) -> None:
    with pytest.raises(SolveError, match="one of 2"):
        by_chance.chain()
    doors = world(CHANCE)
    no_values: dict[str, Any] = {"keep": "none"}
    for key, params in {
        "reduce": {"reduce": ["lump"]},
        "compute.parts": no_values | {"compute": {"parts": 2}},
        "compute.graph": no_values | {"compute": {"graph": "spill"}},
        "compute.processes": no_values | {"compute": {"processes": 2}},
    }.items():
        refused = rf"^algorithm\.params\.{key}: 'doors' starts in one of 2 .* leave it out"
        chosen = ExactParams.model_validate(params)
        for ask in (partial(solve, doors, chosen), partial(Exact(chosen).check, doors)):
            with pytest.raises(ConfigError, match=refused):
                ask()
    plain = Exact(ExactParams())
    assert plain.check(doors)["fits"] == "yes"
    assert plain.alternatives(doors) == {}


def test_copies_begin_each_episode_by_chance() -> None:
    vector = WorldVectorEnv(world(CHANCE), copies=300, learners="humans")
    vector.start(0)
    player = Player(vector)
    player.play(6)
    for step in (player.log[0][0], player.log[0][4]):
        begins = step.observation[step.starts, :4].argmax(1)
        assert len(begins) > 150
        assert set(begins.tolist()) == {1, 2}
        assert abs((begins == 1).mean() - 3 / 4) < 0.1


@pytest.mark.slow
def test_learning_begins_by_chance_and_reports_expectations(
    by_chance: ExactResult, tmp_path: Path
) -> None:
    params = {
        "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
        "values": {"q_r": "lookup", "v_h_e": "lookup"},
        "total_steps": 300,
        "warm_up": {"v_h_e": 20, "x_h": 5, "u_r": 5, "q_r": 20, "v_r": 5, "ramp": 10},
        "optimiser": {"lr": 0.5, "target_interval": 5, "publish_interval": 7},
        "replay": {"batch_size": 16},
        "collector": {"name": "sync", "params": {"min_env_steps": 50}},
        "num_envs": 32,
    }
    context = fresh(world(CHANCE), tmp_path)
    result = Phase2(Phase2Params.model_validate(params)).run(context)
    start = by_chance.at_start()
    summary: Any = result.summary()["root"]
    assert summary["V_r"] == pytest.approx(start.V_r, rel=0.02)
    assert [goal["V_e"] for goal in summary["goals"]] == pytest.approx(start.V_e, abs=0.02)
    rows = result.inspection(InspectionScope()).rows[:, 0].tolist()
    assert rows[:2] == [2, 1]  # The yard does not follow the hall.
    assert sorted(rows) == [0, 1, 2, 3]
    few = result.inspection(InspectionScope(max_bytes=1)).rows[:, 0].tolist()
    assert {1, 2} <= set(few)
    yard = InspectionScope(start=np.array([1]))
    assert result.inspection(yard).rows[0].tolist() == [1]
    compared = Phase2(Phase2Params.model_validate(params | {"reporting": {"compare": "exact"}}))
    context = fresh(world(CHANCE), tmp_path / "again")
    refused = r"^algorithm\.params\.reporting\.compare: 'doors' starts in one of 2 "
    with pytest.raises(ConfigError, match=refused):
        compared.check(context.world)
    with pytest.raises(ConfigError, match=refused):
        compared.run(context)
    assert not [*context.directory.iterdir()]


def test_evaluations_draw_where_they_begin() -> None:
    starts = Starts.initial(world(CHANCE))
    nothing = torch.zeros(400, dtype=torch.int64)
    chosen = starts.chosen(nothing, nothing, torch.Generator().manual_seed(0))
    assert abs(float(chosen.double().mean()) - 3 / 4) < 0.1
    assert starts.states[:, 0].tolist() == [2, 1]


def test_states_of_a_model_in_python_have_chances() -> None:
    class Coin:
        """Heads or tails, for good."""

        horizon, name = 1, "coin"
        agents = (AgentSpec(name="ann", role="human", actions=("look",)),)
        goals = {0: [("heads", lambda state: state == "heads")]}  # noqa: RUF012
        start: Any = {"heads": 0.5, "tails": 0.5}  # noqa: RUF012
        over = ""

        def initial_state(self) -> Any:
            return self.start

        def transition_probabilities(self, state: str, actions: Any) -> Any:
            return None if state == self.over else [(1.0, state)]

    coin = enumerate_world(Coin())
    assert coin.initial_states().prob.tolist() == [0.5, 0.5]
    assert [coin.state_of(row) for row in coin.initial_states().states] == ["heads", "tails"]
    with pytest.raises(WorldError, match=r"coin.* 2 "):
        coin.initial_state()
    Coin.over = "tails"
    with pytest.raises(BrokenWorldError, match=r"(?s)terminal.*tails"):
        solve(enumerate_world(Coin()))
    Coin.start = {"heads": 0.5, "tails": 0.4}
    with pytest.raises(WorldError, match="dict"):
        enumerate_world(Coin())
