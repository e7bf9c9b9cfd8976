"""Softmax-rational humans, and the robot that infers their goal: closed forms, and the rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simulator
import torch
from boards import as_grid

from empo_benchmarks.blocks.inference import GoalInference
from empo_benchmarks.blocks.params import (
    BlocksParams,
    GoalInferenceParams,
    GreedyDistanceParams,
    SoftmaxDistanceParams,
)
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.walkers import SoftmaxDistance
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_core.config import HumanPriorRef
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld

HALF = GoalInferenceParams(discount=0.5)


def world_of(**params: Any) -> BlocksWorld:
    return load_world(BlocksParams.model_validate({"size": 3, **params}))


def inference_of(boxes: int, noise: float) -> GoalInference:
    world = world_of(boxes=boxes)
    return GoalInference(HALF, world, GreedyDistance(GreedyDistanceParams(noise=noise), world))


def rows(*states: list[int]) -> torch.Tensor:
    return torch.tensor(states, dtype=torch.int16)


def belief_in(*goals: int) -> np.ndarray:
    """All of these alike, in one episode."""
    return np.isin(np.arange(9), goals)[None] / len(goals)


@pytest.mark.parametrize("params", [{}, {"beta": 0.0}], ids=str)
class TestSoftmaxDistance(HumanPriorTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return world_of()

    @pytest.fixture
    def prior(self, world: WorldModel, params: dict[str, Any]) -> HumanPrior:
        return SoftmaxDistance(SoftmaxDistanceParams.model_validate(params), world)


@pytest.mark.parametrize(
    ("state", "goal", "steps"),
    [
        # From the top left to the top right; in the order stay, left, down, right, up.
        ([0, 8], 2, [2, 2, 3, 1, 2]),
        # A box in between: the way leads around, and the blocked move is no step.
        ([0, 1], 2, [4, 4, 3, 4, 4]),
        # No way: whatever the human does, it is as far.
        ([0, 2], 2, [9, 9, 9, 9, 9]),
    ],
)
def test_softmax_humans_walk_around_boxes(state: list[int], goal: int, steps: list[int]) -> None:
    world = world_of(boxes=1)
    prior = SoftmaxDistance(SoftmaxDistanceParams(beta=1.5), world)
    policy = prior.policy(rows(state), torch.tensor([1]))[0, goal].numpy()
    weights = np.exp(-1.5 * np.array(steps))
    assert policy == pytest.approx(weights / weights.sum(), abs=1e-12)


def test_softmax_humans_need_a_blocks_world() -> None:
    with pytest.raises(ConfigError, match="needs world_model 'blocks'"):
        SoftmaxDistance(SoftmaxDistanceParams(), TinyWorld())


def test_softmax_humans_are_chosen_by_their_name() -> None:
    chosen = HumanPriorRef.model_validate({"name": "softmax-distance", "params": {"beta": 3.0}})
    assert chosen.params == SoftmaxDistanceParams(beta=3.0)


def test_beliefs_follow_bayes_rule() -> None:
    robot = inference_of(1, noise=0.2)
    # To the right with 0.84 on the way to the top right, and by chance to the bottom left.
    seen = robot.updated(belief_in(2, 6), rows([0, 8]), rows([1, 8]))
    assert seen[0, [2, 6]] == pytest.approx([0.84 / 0.88, 0.04 / 0.88])
    assert seen.sum() == pytest.approx(1)
    # Left, up and stay all end in the corner, 0.12 for either goal: that tells nothing.
    waited = robot.updated(seen, rows([0, 8]), rows([0, 8]))
    assert waited == pytest.approx(seen)
    # A human in its goal stays for certain, another one with 0.12.
    waited = robot.updated(belief_in(0, 2), rows([0, 8]), rows([0, 8]))
    assert waited[0, [0, 2]] == pytest.approx([1 / 1.12, 0.12 / 1.12])


def test_a_step_that_no_listed_goal_explains_changes_no_belief() -> None:
    robot = inference_of(1, noise=0.2)
    assert robot.updated(belief_in(0), rows([0, 8]), rows([1, 8])).tolist() == belief_in(0).tolist()


def test_what_boxes_did_tells_nothing() -> None:
    robot = inference_of(1, noise=0.2)
    beside = robot.updated(belief_in(2, 6), rows([0, 8]), rows([1, 7]))
    assert beside == pytest.approx(robot.updated(belief_in(2, 6), rows([0, 8]), rows([1, 8])))


@pytest.mark.parametrize(
    ("state", "goal", "first"),
    [
        ([0, 7, 8], 0, 0),  # It is there: 1 + 1/2 + 1/4 + ...
        ([0, 7, 8], 1, 1),
        ([0, 7, 8], 2, 2),
        ([0, 1, 3], 2, 3),  # Locked in: a box has to go first, while the human stays.
        ([0, 1, 3], 4, 3),
        ([4, 4, 8], 4, 0),  # Crushed, and so in that cell for ever.
        ([4, 4, 8], 5, None),
    ],
)
def test_values_are_those_of_the_shortest_help(
    state: list[int], goal: int, first: int | None
) -> None:
    """A human that arrives in step n counts from then on: discount^(n - 1) / (1 - discount)."""
    robot = inference_of(2, noise=0.0)
    value = robot.values[Ranks(9, 2).rank(np.array([state])), goal]
    expected = 0.0 if first is None else 0.5 ** max(first - 1, 0) / 0.5
    assert value == pytest.approx(expected, abs=1e-5)


def independent_policy(human: int, box: int, goal: int, beta: float) -> np.ndarray:
    """Softmax of steps to go, in the order of the simulator; by relaxing all pairs of cells."""
    if human in (goal, box):
        return np.arange(5) == simulator.STAY
    grid = np.zeros((1, 3, 3), bool)
    grid[0].flat[box] = True
    ends = [
        [
            int(simulator.target_cells(np.array([cell]), np.array([move]), grid)[0])
            for move in range(5)
        ]
        for cell in range(9)
    ]
    steps = [0 if cell == goal != box else 9 for cell in range(9)]
    for _ in range(9):
        steps = [min(steps[cell], *(1 + steps[end] for end in ends[cell])) for cell in range(9)]
    weights = np.exp(-beta * np.minimum([steps[end] for end in ends[human]], 9))
    return np.asarray(weights / weights.sum())


def test_values_and_decisions_are_those_of_the_simulator() -> None:
    """Value iteration over the simulator's own steps, state by state and goal by goal."""
    beta, world = 1.0, world_of(boxes=1)
    robot = GoalInference(HALF, world, SoftmaxDistance(SoftmaxDistanceParams(beta=beta), world))
    states = Ranks(9, 1).unrank(np.arange(81))
    human, grid = as_grid(world, torch.from_numpy(states))
    policy = np.array(
        [
            [independent_policy(h, box, goal, beta) for goal in range(9)]
            for h, box in states.tolist()
        ]
    )  # [state, goal, move]
    asked = robot.action_values(np.full((81, 9), 1 / 9), torch.from_numpy(states))
    values = np.zeros((81, 9))
    for _ in range(40):
        payoffs = []  # [robot, state, goal]
        for turn in (simulator.STAY, *range(4)):
            payoff = np.zeros((81, 9))
            for move in range(5):
                to = simulator.moved_human(human, np.full(81, move), grid)
                crushed = simulator.holds_box(to, grid)
                pushed = simulator.moved_boxes(grid, states[:, 1].astype(int), np.full(81, turn))
                after = np.where(crushed[:, None, None], grid, pushed)
                number = to * 9 + after.reshape(81, 9).argmax(1)
                payoff += policy[:, :, move] * (np.eye(9)[to] + 0.5 * values[number])
            payoffs.append(payoff)
        values = np.max(payoffs, 0)
    assert np.abs(robot.values - values).max() < 2e-5
    assert np.abs(asked - np.array(payoffs).mean(2).T).max() < 2e-5


def test_a_robot_that_knows_the_goal_frees_the_human_at_once() -> None:
    robot = inference_of(2, noise=0.0)
    names = world_of().spec.agents[1].actions
    best = robot.actions(np.concatenate([belief_in(2), belief_in(6)]), rows([0, 1, 3], [0, 1, 3]))
    assert names[best[0]].startswith("box 1 ")
    assert names[best[1]].startswith("box 2 ")


def test_a_robot_that_can_do_no_more_is_still() -> None:
    robot = inference_of(2, noise=0.2)
    crushed, arrived = [4, 4, 8], [0, 1, 3]
    assert robot.actions(np.repeat(belief_in(0), 2, 0), rows(crushed, arrived)).tolist() == [0, 0]


def test_the_robot_is_still_where_other_actions_are_no_better_within_its_precision() -> None:
    world = world_of(size=4, boxes=1)
    robot = GoalInference(
        GoalInferenceParams(), world, GreedyDistance(GreedyDistanceParams(), world)
    )
    states = torch.from_numpy(Ranks(16, 1).unrank(np.arange(256)))
    belief = np.full((len(states), 16), 1 / 16)
    values = robot.action_values(belief, states)
    behind = values.max(1) - values[:, 0]
    assert ((behind > 0) & (behind < 1e-3)).sum() > 5
    assert np.array_equal(robot.actions(belief, states) == 0, behind <= 1e-3)


def test_humans_who_depend_on_the_steps_left_are_refused() -> None:
    class Hurried:
        is_stationary = False

        def policy(self, states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
            raise AssertionError("nobody asks")

    with pytest.raises(ConfigError, match="Hurried"):
        GoalInference(HALF, world_of(), Hurried())


def test_too_many_states_for_tables_are_refused() -> None:
    world = world_of(size=5, boxes=8)
    with pytest.raises(WorldError, match="27039375 states"):
        GoalInference(HALF, world, GreedyDistance(GreedyDistanceParams(), world))
