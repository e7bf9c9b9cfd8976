"""The environment ``disempower``: kits, what is paid and seen, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from empo_benchmarks.disempower.board import HUMAN_ACTIONS
from empo_benchmarks.disempower.environment import Boards
from empo_benchmarks.disempower.objectives import empowerment, ends_of, objective
from empo_benchmarks.disempower.params import BoardsParams, DisempowerParams, Layout
from empo_benchmarks.disempower.world import DisempowerWorld, load_world
from empo_core.errors import ConfigError
from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    VectorEnv,
    VectorLayout,
)
from empo_testing.environment import EnvironmentTests
from empo_testing.worlds import TinyWorld

CORRIDOR = Layout(
    height=1,
    width=6,
    agent_pos=[[0, 0], [0, 3]],
    box_pos=[[0, 5]],
    goal_pos=[[0, 1], [0, 4]],
    assistant="non-embodied",
)
KEYS = Layout(
    height=2,
    width=4,
    agent_pos=[[0, 0], [1, 3]],
    box_pos=[[1, 2]],
    helper_pos=[[1, 1]],
    goal_pos=[[0, 2]],
    key_pos=[[0, 1]],
    assistant="embodied",
)
RIGHT, LEFT, STAY = (HUMAN_ACTIONS.index(name) for name in ("right", "left", "stay"))


def world(layout: Layout | str = "move_any_freeze", steps: int = 50) -> DisempowerWorld:
    return load_world(DisempowerParams(layout=layout, max_steps=steps))


def environment(of: DisempowerWorld | None = None, **params: Any) -> Boards:
    context = EnvironmentContext(world=of or world())
    return Boards(BoardsParams.model_validate(params), context)


@pytest.mark.parametrize(
    "params",
    [{}, {"reward": "mc_emp"}, {"reward": "joint", "human_prior": "uniform"}],
    ids=["humans learn", "the assistant learns", "beside a prior"],
)
class TestBoards(EnvironmentTests):
    @pytest.fixture
    def environment(self, params: dict[str, Any]) -> Environment:
        return environment(**params)


class TestBoardsInBlocks(EnvironmentTests):
    @pytest.fixture
    def environment(self) -> Environment:
        return environment(world("push_pull"))

    @pytest.fixture
    def make_vector(self, environment: Environment) -> Any:
        return lambda: environment.vector(4, VectorLayout(blocks=2, desync=True))


def stepped(vector: VectorEnv, *actions: int) -> Any:
    vector.send(0, np.array(actions, np.int64)[:, None])
    return vector.recv()


def test_humans_are_paid_for_each_step_on_their_goals_which_ends_an_episode_of_the_learner() -> (
    None
):
    vector = environment(world(CORRIDOR)).vector(1, VectorLayout())
    vector.start(0)
    vector.recv()
    arrival = stepped(vector, RIGHT, STAY)
    assert arrival.reward.tolist() == [1, 0]
    assert arrival.terminated.tolist() == arrival.starts.tolist() == [True, False]
    assert stepped(vector, STAY, STAY).reward.tolist() == [1, 0]
    # The board went on: the user leaves from where it was.
    assert stepped(vector, LEFT, RIGHT).reward.tolist() == [0, 1]


def test_a_human_without_the_key_is_not_paid_on_its_goal() -> None:
    board = world(KEYS)
    vector = environment(board).vector(1, VectorLayout())
    vector.start(0)
    vector.recv()
    assert stepped(vector, RIGHT, STAY).reward.tolist() == [0, 0]
    arrival = stepped(vector, RIGHT, STAY)
    assert arrival.reward.tolist() == [1, 0]
    user, bystander = arrival.observation
    assert (user == bystander).all()
    assert user[-4:].tolist() == [0, 1, 1, 0]  # The user has the key, and the bystander has not.


def test_boards_begin_anew_after_their_steps_and_the_last_view_is_told() -> None:
    vector = environment(world(steps=2), reward="mc_emp").vector(3, VectorLayout())
    vector.start(0)
    first = vector.recv().observation.copy()
    stepped(vector, 5, 5, 5)
    arrival = stepped(vector, 5, 5, 5)
    assert arrival.truncated.all()
    assert (arrival.observation == first).all()
    assert arrival.final_row.tolist() == [0, 1, 2]
    assert arrival.final_observation[:, -1].tolist() == [1, 1, 1]  # Frozen for three steps more.


def test_the_assistant_is_paid_for_the_state_that_it_leads_to() -> None:
    board = world(CORRIDOR)
    vector = environment(board, reward="discrete").vector(2, VectorLayout())
    vector.start(0)
    vector.recv()
    arrival = stepped(vector, 0, 0)
    where = arrival.observation[:, :6].argmax(1), arrival.observation[:, 6:12].argmax(1)
    rows = np.stack([*where, [5, 5]], 1).astype(np.int16)
    assert arrival.reward == pytest.approx(objective("discrete", board.board, rows))


def test_objectives_are_those_of_sampled_walks() -> None:
    """From a state in which the bystander is frozen for one step more."""
    board, rng, count = world(), np.random.default_rng(0), 200_000
    row = board.initial_state()
    row[-1] = 1
    ends = ends_of(board.board, row[None].numpy())
    states, first = row.repeat(count, 1), np.zeros((2, count), np.int64)
    for step in range(3):
        actions = torch.zeros(count, 3, dtype=torch.int64)
        actions[:, :2] = torch.from_numpy(rng.integers(5, size=(count, 2)))
        if step == 0:
            first = actions[:, :2].T.numpy()
        states = board.transitions(states, actions).states
    for human in range(2):
        table = np.zeros(ends.shape[2:])
        np.add.at(table, (first[human], states[:, human].numpy()), 5 / count)
        assert ends[0, human] == pytest.approx(table, abs=0.01)
    assert ends.sum(3) == pytest.approx(np.ones((1, 2, 5)))
    user, bystander = empowerment(ends)[0]
    rows = row[None].numpy()
    assert objective("mc_emp", board.board, rows) == pytest.approx(user, abs=1e-6)
    assert objective("joint", board.board, rows) == pytest.approx(user + bystander)
    chance = ends[0, 0].mean(0)
    positive = chance[chance > 0]
    assert objective("entropic", board.board, rows) == pytest.approx(
        -(positive * np.log2(positive)).sum(), abs=1e-6
    )
    places = np.array(board.board.places)
    spread = ((places - chance @ places) ** 2).sum(1) @ chance
    assert objective("ave", board.board, rows) == pytest.approx(spread, abs=1e-6)


def test_another_world_and_humans_beside_humans_are_refused() -> None:
    with pytest.raises(ConfigError, match="disempower"):
        Boards(BoardsParams(), EnvironmentContext(world=TinyWorld()))
    with pytest.raises(ConfigError, match="disempower"):
        Boards(BoardsParams(), EnvironmentContext())
    with pytest.raises(ValidationError, match="human_prior"):
        BoardsParams.model_validate({"human_prior": "uniform"})
