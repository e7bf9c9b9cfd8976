"""Humans with the prior ``kitchen-planner``: kit, steps by hand, goals that they reach."""

from __future__ import annotations

import pytest
import torch

from empo_benchmarks.overcooked.kitchen import ACTIONS, DISH, NOTHING, ONION
from empo_benchmarks.overcooked.params import KitchenPlannerParams, OvercookedParams
from empo_benchmarks.overcooked.prior import KitchenPlanner
from empo_benchmarks.overcooked.world import OvercookedWorld, load_world
from empo_core.errors import ConfigError
from empo_core.protocols import HumanPrior, WorldModel
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld

NORTH, SOUTH, EAST, WEST = range(4)


@pytest.mark.parametrize("noise", [0.1, 0.0, 1.0])
class TestKitchenPlanner(HumanPriorTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return load_world(OvercookedParams(soups=1, cook_time=3, max_steps=9))

    @pytest.fixture
    def prior(self, world: WorldModel, noise: float) -> HumanPrior:
        return KitchenPlanner(KitchenPlannerParams(noise=noise), world)


@pytest.fixture(scope="module")
def room() -> OvercookedWorld:
    return load_world(OvercookedParams())


def wanted(
    room: OvercookedWorld, goal: str, human: tuple[int, int, int], pot: tuple[int, int], robot: int
) -> str:
    """What the human does; places of cramped_room are 0 1 2 above 3 4 5, the pot is above 1."""
    row = room.initial_state()
    row[0], row[3:6] = robot, torch.tensor(human)
    row[room.kitchen.first_pot : -1] = torch.tensor(pot)
    goals = [each.name for each in room.spec.goals]
    return ACTIONS[int(room.goal_actions(row[None])[0, goals.index(goal)])]


@pytest.mark.parametrize(
    ("goal", "human", "pot", "robot", "action"),
    [
        ("hold an onion", (1, NORTH, NOTHING), (0, 0), 3, "west"),
        ("hold an onion", (1, NORTH, NOTHING), (0, 0), 0, "east"),
        ("hold an onion", (2, EAST, NOTHING), (0, 0), 3, "interact"),
        ("hold an onion", (2, EAST, ONION), (0, 0), 3, "stay"),
        ("hold an onion", (4, SOUTH, DISH), (0, 0), 3, "interact"),
        ("1 in a pot", (1, EAST, ONION), (0, 0), 3, "north"),
        ("1 in a pot", (1, NORTH, ONION), (0, 0), 3, "interact"),
        ("a soup is ready", (1, NORTH, NOTHING), (3, 0), 3, "interact"),
        ("a soup is ready", (1, NORTH, NOTHING), (3, 7), 3, "stay"),
        ("hold a soup of 3", (1, NORTH, NOTHING), (3, 7), 5, "south"),
        ("hold a soup of 3", (1, NORTH, DISH), (3, 7), 5, "stay"),
        ("hold a soup of 3", (1, NORTH, DISH), (3, 20), 5, "interact"),
        ("soup 1 served", (1, NORTH, DISH + 3), (0, 0), 3, "south"),
        ("soup 1 served", (5, SOUTH, DISH + 3), (0, 0), 3, "interact"),
        ("soup 1 served", (5, SOUTH, DISH + 1), (0, 0), 3, "interact"),
        # A soup of too few onions has to go before others can be made.
        ("3 in a pot", (1, NORTH, DISH), (1, 20), 3, "interact"),
        ("at the dishes", (4, WEST, NOTHING), (0, 0), 0, "west"),
        # Where the robot stands in the only place, the human walks up to it.
        ("at the dishes", (5, WEST, NOTHING), (0, 0), 3, "west"),
        ("at the dishes", (4, WEST, NOTHING), (0, 0), 3, "west"),
    ],
)
def test_a_step_by_hand(
    room: OvercookedWorld,
    goal: str,
    human: tuple[int, int, int],
    pot: tuple[int, int],
    robot: int,
    action: str,
) -> None:
    assert wanted(room, goal, human, pot, robot) == action


@pytest.mark.parametrize("layout", ["cramped_room", "coordination_ring"])
def test_every_goal_is_reached_beside_a_robot_that_acts_at_random(layout: str) -> None:
    world = load_world(OvercookedParams.model_validate({"layout": layout, "soups": 1}))
    prior = KitchenPlanner(KitchenPlannerParams(), world)
    count, generator = len(world.spec.goals), torch.Generator().manual_seed(0)
    states = world.initial_state().repeat(10 * count, 1)
    goals = torch.arange(count).repeat(10)
    episodes = torch.arange(len(states))
    reached = torch.zeros(len(states), dtype=torch.bool)
    for _ in range(300):
        human = torch.multinomial(
            prior.policy(states, torch.full((len(states),), 1))[episodes, goals],
            1,
            generator=generator,
        )
        robot = torch.randint(len(ACTIONS), human.shape, generator=generator)
        states = world.step(states, torch.cat([robot, human], 1), generator)
        reached |= world.achieved(states)[episodes, goals]
    assert reached.float().mean() > 0.97
    assert (torch.bincount(goals[reached], minlength=count) >= 8).all()


def test_the_prior_needs_a_kitchen() -> None:
    with pytest.raises(ConfigError, match="needs world_model 'overcooked'"):
        KitchenPlanner(KitchenPlannerParams(), TinyWorld())
