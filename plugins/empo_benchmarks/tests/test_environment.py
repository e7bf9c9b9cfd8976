"""The environment ``overcooked``: kits, what is paid and seen, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from empo_benchmarks.overcooked.environment import KitchenEnvironment
from empo_benchmarks.overcooked.kitchen import ACTIONS
from empo_benchmarks.overcooked.params import KitchenParams, OvercookedParams
from empo_benchmarks.overcooked.world import load_world
from empo_core.errors import ConfigError
from empo_core.protocols.environments import (
    Environment,
    EnvironmentContext,
    VectorEnv,
    VectorLayout,
)
from empo_testing.environment import EnvironmentTests
from empo_testing.worlds import TinyWorld

CORRIDOR = {"layout": ["XXPXX", "O1 2O", "XDXSX"], "onions": 1, "cook_time": 1}
ROBOT = "west interact east north interact interact west south interact east north interact"
"""It puts an onion into the pot, lights that, takes a dish and the soup."""
HANDS_OVER = f"{ROBOT} south interact west"
SERVES = "west south interact east south interact"


def environment(world: dict[str, Any] | None = None, **params: Any) -> KitchenEnvironment:
    kitchen = load_world(OvercookedParams.model_validate(world or {"max_steps": 50}))
    context = EnvironmentContext(world=kitchen)
    return KitchenEnvironment(KitchenParams.model_validate(params), context)


@pytest.mark.parametrize(
    "params",
    [{}, {"learners": "robot", "human_prior": "kitchen-planner", "goal": "hold an onion"}],
    ids=["both learn", "the robot learns"],
)
class TestKitchens(EnvironmentTests):
    @pytest.fixture
    def environment(self, params: dict[str, Any]) -> Environment:
        return environment(**params)


class TestKitchensInBlocks(EnvironmentTests):
    @pytest.fixture
    def environment(self) -> Environment:
        return environment()

    @pytest.fixture
    def make_vector(self, environment: Environment) -> Any:
        return lambda: environment.vector(4, VectorLayout(blocks=2, desync=True))


def paid(vector: VectorEnv, robot: str, human: str) -> list[tuple[int, float, float]]:
    """Turns in which something is paid, and what to robot and human."""
    vector.start(0)
    turns = [robot.split(), human.split()]
    found = []
    for turn, names in enumerate(zip(*turns, strict=True)):
        actions = [[ACTIONS.index(name)] for name in names]
        vector.send(vector.recv().block, np.array(actions, np.int64))
        found.append((turn, *vector.recv().reward.tolist()))
        vector.send(0, np.zeros((2, 1), np.int64))
    return [each for each in found if any(each[1:])]


def test_both_are_paid_for_what_either_does_on_the_way_and_for_soups() -> None:
    """Each turn is followed by one in which both stay."""
    robot = HANDS_OVER + " stay" * len(SERVES.split())
    human = "stay " * len(HANDS_OVER.split()) + SERVES
    for shaping in (1.0, 0.5):
        kitchen = environment(CORRIDOR | {"max_steps": 100}, shaping=shaping)
        found = paid(kitchen.vector(1, VectorLayout()), robot, human)
        on_the_way = [(4, 3.0), (8, 3.0), (11, 5.0)]
        assert found == [
            *((turn, shaping * pay, shaping * pay) for turn, pay in on_the_way),
            (20, 20.0, 20.0),
        ]


def test_agents_see_themselves_first_and_no_soups_that_were_served() -> None:
    kitchen = environment(CORRIDOR | {"max_steps": 3})
    vector = kitchen.vector(2, VectorLayout())
    vector.start(0)
    seen = vector.recv().observation
    places, cook = 3, 3 + 4 + 4
    assert seen.shape == (4, sum(load_world(OvercookedParams(**CORRIDOR)).kitchen.values))
    assert seen[:, :places].tolist() == [[1, 0, 0], [0, 0, 1]] * 2
    assert seen[:, cook : cook + places].tolist() == [[0, 0, 1], [1, 0, 0]] * 2
    assert (seen[0, 2 * cook :] == seen[1, 2 * cook :]).all()


def test_episodes_are_cut_off_at_the_horizon_where_they_stand() -> None:
    vector = environment({"max_steps": 2}).vector(1, VectorLayout())
    vector.start(0)
    start = vector.recv().observation.copy()
    for _ in range(2):
        vector.send(0, np.full((2, 1), ACTIONS.index("south")))
        arrival = vector.recv()
    assert arrival.truncated.all()
    assert not arrival.terminated.any()
    assert (arrival.observation == start).all()
    assert (arrival.final_observation != start).any(1).all()


def test_the_human_pursues_the_goal_that_it_is_given() -> None:
    """It takes an onion at once, and stays then; noise makes a few do something else."""
    kitchen = environment(
        learners="robot", human_prior={"name": "kitchen-planner", "params": {"noise": 0.0}},
        goal="hold an onion",
    )  # fmt: skip
    vector = kitchen.vector(3, VectorLayout())
    vector.start(0)
    for _ in range(3):
        vector.send(vector.recv().block, np.zeros((3, 1), np.int64))
    held = vector.recv().observation[:, 16 + 10 : 32]
    assert held.tolist() == [[0, 1, 0, 0, 0, 0]] * 3


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"learners": "robot"}, "human_prior belongs"),
        ({"human_prior": "kitchen-planner"}, "human_prior belongs"),
        ({"shaping": -1.0}, "greater_than_equal"),
    ],
)
def test_wrong_params_are_refused(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        KitchenParams.model_validate(params)


def test_the_environment_needs_a_kitchen_and_one_of_its_goals() -> None:
    for world, found in ((None, "none"), (TinyWorld(), "'door'")):
        with pytest.raises(ConfigError, match=rf"'world_model: overcooked'; .*{found}"):
            KitchenEnvironment(KitchenParams(), EnvironmentContext(world=world))
    with pytest.raises(ConfigError, match="no goal 'eat'"):
        environment(goal="eat")


def test_the_environment_needs_a_kitchen_in_which_episodes_end() -> None:
    with pytest.raises(ConfigError, match=r"needs world_model\.params\.max_steps"):
        environment({"max_steps": None}).vector(1, VectorLayout())
