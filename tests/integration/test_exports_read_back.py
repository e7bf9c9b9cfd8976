"""What ``exact`` exports for model checkers is read back as a world with the same values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_tabular.arrays import TableArrays, world_of_arrays
from empo_tabular.plugin import TableParams
from empo_tabular.world import load_world


def lonely_game(seed: int, *, timed: bool) -> TableArrays:
    """A random game of one human with up to three actions; the last state ends it."""
    rng = np.random.default_rng(seed)
    num_states = int(rng.integers(3, 9))
    has = np.arange(3) < rng.integers(1, 4, num_states)[:, None]
    has[-1] = False
    counts = np.where(has, rng.integers(1, 4, has.shape), 0).ravel()
    return TableArrays(
        agents=np.array(["ann"]),
        roles=np.array(["human"]),
        actions=np.array([["a", "b", "c"]]),
        offsets=np.concatenate([[0], counts.cumsum()]),
        successors=np.concatenate([rng.choice(num_states, n, replace=False) for n in counts]),
        prob=np.concatenate([rng.dirichlet(np.ones(n)) for n in counts if n]),
        duration=rng.uniform(0.5, 2, counts.sum()) if timed else None,
        goals=np.array(["one", "other"]),
        goal_agents=np.array([0, 0]),
        achieved=np.arange(num_states)[:, None] // (num_states - 2) == np.array([1, 0]),
        initial=np.array([0]),
        horizon=np.array(5),
    )


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), timed=st.booleans())
def test_a_game_of_one_human_has_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, seed: int, timed: bool
) -> None:
    folder = tmp_path_factory.mktemp("storm")
    result = solve(world_of_arrays(lonely_game(seed, timed=timed), "game"), ExactParams())
    files = result.export_storm(folder)
    assert (folder / "game.rew" in files) == timed
    again = solve(load_world(TableParams(file=folder / "game.tra", max_steps=5)), ExactParams())
    assert again.graph.num_states == result.graph.num_states
    # States are numbered as they were explored; choices are the actions that there are.
    for state in range(result.graph.within(0) + 1):
        first, second = (solved.at(state, 1) for solved in (result, again))
        for name in ("V_r", "U_r", "V_e", "V_m"):
            np.testing.assert_allclose(getattr(second, name), getattr(first, name), rtol=1e-12)
        assert second.X_h == pytest.approx(first.X_h, rel=1e-12)


def test_several_agents_become_one_human_with_their_joint_actions(tmp_path: Path) -> None:
    world = load_world(TableParams(file=TableParams.library / "coma_pill.yaml"))
    result = solve(world, ExactParams())
    result.export_storm(tmp_path)
    (agent,) = load_world(TableParams(file=tmp_path / "game.tra")).spec.agents
    assert agent.role == "human"
    assert len(agent.actions) <= world.spec.num_joint_actions
    chain = load_world(TableParams(file=tmp_path / "chain.tra"))
    assert chain.spec.num_joint_actions == 1
    assert chain.num_states == result.chain().num_nodes
