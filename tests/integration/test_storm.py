"""Exports to the Storm model checker, and comparison of Storm's answers with ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from empo_core.config import WorldModelRef
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import load_world
from empo_theory.parameters import CompleteTheory

stormpy = pytest.importorskip("stormpy")
environments = pytest.importorskip("stormpy.environments")

WORLDS = [
    ("trivial", 6),
    ("simple_circle", 5),
    ("small_trolley", 3),
    ("two_room", 5),
    ("risk_aversion_simple", 5),
    ("corridor_bush", 3),
    ("key_and_door", 8),
]
PARAMS = ExactParams(
    theory=CompleteTheory(beta_h=5.0, gamma_h=0.95, gamma_r=0.99, beta_r=3.0, zeta=2.0, eta=1.1)
)


@dataclass
class Exported:
    """A solved world, and Storm's models of what it exported."""

    result: ExactResult
    chain: Any
    game: Any


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world[0])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    name, steps = request.param
    reference = WorldModelRef.model_validate(
        {"name": f"multigrid/{name}", "params": {"max_steps": steps}}
    )
    assert isinstance(reference.params, MultigridParams)
    result = solve(load_world(reference.params), PARAMS)
    folder = tmp_path_factory.mktemp(name)
    result.export_storm(folder)
    return Exported(
        result=result,
        chain=stormpy.build_model_from_explicit(
            folder / "chain.tra", folder / "chain.lab", state_rewards=folder / "chain.state.rew"
        ),
        game=stormpy.build_model_from_explicit(folder / "game.tra", folder / "game.lab"),
    )


def answers(model: Any, formula: str) -> np.ndarray:
    """Storm's answer at every state, from direct linear algebra."""
    environment = stormpy.Environment()
    direct = environments.EquationSolverType.ELIMINATION
    environment.solver().set_linear_equation_solver_type(direct)
    (checked,) = stormpy.parse_properties(formula)
    found = stormpy.model_checking(model, checked, environment=environment)
    return np.array([found.get_value(i) for i in range(model.nr_states)])


def close(ours: np.ndarray, storms: np.ndarray) -> None:
    np.testing.assert_allclose(ours, storms, rtol=1e-12, atol=1e-15)


def test_storm_builds_the_closed_loop_chain(exported: Exported) -> None:
    chain = exported.result.chain()
    assert exported.chain.nr_states == chain.num_nodes
    # Final nodes have a step to themselves.
    assert exported.chain.nr_transitions == len(chain.target) + int(chain.final.sum())
    assert list(exported.chain.initial_states) == [chain.initial]


def test_probabilities_of_ever_reaching_a_goal_agree(exported: Exported) -> None:
    chain = exported.result.chain()
    reached = []
    for goal in range(len(exported.result.spec.goals)):
        ours = chain.event_probability(chain.achieved[:, goal])
        close(ours, answers(exported.chain, f'P=? [F "goal_{goal}"]'))
        reached.append(ours)
    chances = np.concatenate(reached)
    assert ((chances > 0.01) & (chances < 0.99)).any()


def test_probabilities_of_a_goal_at_a_given_time_agree(exported: Exported) -> None:
    chain, last = exported.result.chain(), exported.result.horizon
    ours = chain.event_probability(chain.achieved[:, 0] & (chain.time == last))
    close(ours, answers(exported.chain, f'P=? [F ("goal_0" & "time_{last}")]'))


def test_expected_totals_of_the_robots_reward_agree(exported: Exported) -> None:
    chain = exported.result.chain()
    # Storm's files hold no negative rewards, so the exported reward is the cost -U_r.
    close(-chain.expected_total(chain.U_r), answers(exported.chain, 'R=? [F "final"]'))


def test_expected_totals_over_the_first_steps_agree(exported: Exported) -> None:
    chain = exported.result.chain()
    early = np.where(chain.time < 2, chain.U_r, 0.0)
    ours = chain.expected_total(early)[chain.initial]
    storms = answers(exported.chain, "R=? [C<=2]")[chain.initial]
    assert -ours == pytest.approx(storms, rel=1e-12)
    assert chain.U_r[chain.initial] == pytest.approx(exported.result.at(0).U_r, rel=1e-14)


def test_the_robots_value_is_the_expected_discounted_total_of_its_reward(
    exported: Exported,
) -> None:
    chain, result = exported.result.chain(), exported.result
    total = chain.expected_total(chain.U_r, gamma=PARAMS.theory.gamma_r)[chain.initial]
    last = PARAMS.theory.gamma_r**result.horizon * PARAMS.theory.terminal_value
    assert total + last == pytest.approx(result.at(0).V_r, rel=1e-12)


def test_the_exported_game_has_every_state_and_joint_action(exported: Exported) -> None:
    graph = exported.result.graph
    counts = np.diff(np.asarray(graph.offsets, dtype=np.int64))
    final = counts.reshape(graph.num_expanded, -1).sum(1) == 0
    extra = int(final.sum()) + graph.num_states - graph.num_expanded
    assert exported.game.nr_states == graph.num_states
    assert exported.game.nr_choices == int((counts > 0).sum()) + extra
    assert exported.game.nr_transitions == graph.num_transitions + extra


def test_the_best_and_worst_chances_in_the_game_agree(exported: Exported) -> None:
    """All agents together for, and against, the first human's last goal; bounded by time."""
    graph, horizon = exported.result.graph, exported.result.horizon
    goal = len(exported.result.spec.goals) - 1
    inside = exported.result.problem.world.achieved(_tensor(graph.states))[:, goal].numpy()
    for pick, name in ((np.maximum, "max"), (np.minimum, "min")):
        ours = _bounded_chance(exported.result, inside, pick)
        storms = answers(exported.game, f'P{name}=? [F<={horizon} "goal_{goal}"]')
        assert ours == pytest.approx(storms[0], rel=1e-12, abs=1e-15)


def _tensor(rows: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(rows)


def _bounded_chance(result: ExactResult, inside: np.ndarray, pick: np.ufunc) -> float:
    """Chance of entering a set within the horizon if one mind chooses all joint actions."""
    graph, neutral = result.graph, -np.inf if pick is np.maximum else np.inf
    counts = np.diff(np.asarray(graph.offsets, dtype=np.int64))
    pair_of = np.repeat(np.arange(len(counts)), counts)
    value = inside.astype(float)
    for _ in range(result.horizon or 0):
        quality = np.zeros(len(counts))
        np.add.at(quality, pair_of, graph.prob[graph.code] * value[graph.successor])
        quality[counts == 0] = neutral
        best = pick.reduce(quality.reshape(graph.num_expanded, -1), axis=1)
        later = np.where(np.isinf(best), 0.0, best)
        value = inside.astype(float)
        # States on the rim of the horizon cannot be left within it.
        value[: graph.num_expanded] = np.where(inside[: graph.num_expanded], 1.0, later)
    return float(value[0])
