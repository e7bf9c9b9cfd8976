import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from empo_core.errors import ConfigError
from empo_multigrid.gym.game import resolve_world
from empo_multigrid.heuristic import PathHeuristic
from empo_multigrid.layout import CELL, DIRECTION, EAST, NORTH, SOUTH, WEST
from empo_multigrid.plugin import PathHeuristicParams
from empo_multigrid.world import MultigridWorld, world_from_text
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld

STILL, LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(7)
BOTH = frozenset({LEFT, RIGHT})


def policy(
    world: MultigridWorld,
    row: torch.Tensor | None = None,
    goal: int = 0,
    **params: float | str,
) -> np.ndarray:
    prior = PathHeuristic(PathHeuristicParams(**params), world)  # type: ignore[arg-type]
    row = world.initial_state() if row is None else row
    return prior.policy(row[None], torch.tensor([3]))[0, goal].numpy()


def chosen(probabilities: np.ndarray) -> frozenset[int]:
    """The actions that share all probability evenly."""
    some = np.flatnonzero(probabilities)
    np.testing.assert_allclose(probabilities[some], 1 / len(some))
    return frozenset(some.tolist())


def softmax(advantages: list[float], beta: float = 10.0) -> list[float]:
    weights = [math.exp(beta * advantage) for advantage in advantages]
    return [weight / sum(weights) for weight in weights]


def facing(world: MultigridWorld, direction: int) -> torch.Tensor:
    row = world.initial_state()
    row[DIRECTION] = direction
    return row


def carrying(world: MultigridWorld, row: torch.Tensor | None = None, item: int = 0) -> torch.Tensor:
    row = world.initial_state() if row is None else row
    row[world.layout.first_item_word + item] = world.layout.num_cells
    return row


def room(*rows: str, goals: str, **keys: str) -> MultigridWorld:
    lines = "".join(f"  {row}\n" for row in rows)
    more = "".join(f"{key}: {value}\n" for key, value in keys.items())
    return world_from_text(
        f"map: |\n{lines}possible_goals: {goals}\ngoal_coverage: partial\n{more}"
    )


class TestPathHeuristic(HumanPriorTests):
    @pytest.fixture(params=["key_and_door", "boxes", "quiet_zone", "minimal_agent", "household"])
    def world(self, request: pytest.FixtureRequest) -> MultigridWorld:
        return resolve_world(request.param)

    @pytest.fixture
    def prior(self, world: MultigridWorld) -> PathHeuristic:
        return PathHeuristic(PathHeuristicParams(), world)

    @pytest.fixture
    def states(self, world: MultigridWorld) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        states = world.initial_state().repeat(60, 1)
        for before, after in pairwise(range(len(states))):
            available = world.available(states[before : before + 1])[0].double()
            actions = torch.multinomial(available, 1, generator=generator).T
            states[after] = world.step(states[before : before + 1], actions, generator)[0]
        return states.unique(dim=0)


# The grid of these is 4 x 1, so the largest path cost is (4 + 1) * 50 = 250.
CORRIDOR = room("Ay .. .. ..", goals="['3,0', '0,0', '1,0, 2,0']")
GAIN = 1 / 250


def test_forward_has_the_gain_in_potential_and_turns_half_of_what_forward_would_give() -> None:
    np.testing.assert_allclose(policy(CORRIDOR), softmax([0, -0.5, -0.5, GAIN]))


def test_the_single_turn_towards_the_best_direction_has_four_fifths_of_its_gain() -> None:
    north, south = facing(CORRIDOR, NORTH), facing(CORRIDOR, SOUTH)
    np.testing.assert_allclose(policy(CORRIDOR, north), softmax([0, -0.5, 0.8 * GAIN, -1]))
    np.testing.assert_allclose(policy(CORRIDOR, south), softmax([0, 0.8 * GAIN, -0.5, -1]))


def test_both_turns_have_three_fifths_of_the_gain_that_lies_behind() -> None:
    row = facing(CORRIDOR, WEST)
    expected = softmax([0, 0.6 * GAIN, 0.6 * GAIN, -1])
    np.testing.assert_allclose(policy(CORRIDOR, row), expected)


def test_both_turns_are_alike_where_both_sides_are_best() -> None:
    world = room(".. .. ..", ".. Ay ..", ".. .. ..", goals="[{cells: ['0,1', '2,1']}]")
    found = policy(world, facing(world, NORTH))
    gain = 1 / 300
    # From the cell ahead the goal is two steps away.
    np.testing.assert_allclose(found, softmax([0, 0.8 * gain, 0.8 * gain, -gain]))


def test_moving_away_costs_as_much_as_it_loses() -> None:
    world = room(".. .. Ay .. ..", goals="['4,0']")
    found = policy(world, facing(world, WEST))
    gain = 1 / 300
    assert found[FORWARD] == pytest.approx(softmax([0, 0.6 * gain, 0.6 * gain, -gain])[FORWARD])


def test_a_goal_of_several_cells_is_as_near_as_its_nearest_cell() -> None:
    near = room("Ay .. .. ..", goals="['1,0', '1,0, 3,0']")
    np.testing.assert_allclose(policy(near, goal=0), policy(near, goal=1))


def test_beta_sharpens_the_softmax() -> None:
    np.testing.assert_allclose(policy(CORRIDOR, beta=0.0), [0.25] * 4)
    np.testing.assert_allclose(policy(CORRIDOR, beta=500.0), softmax([0, -0.5, -0.5, GAIN], 500))


def test_in_the_goal_the_human_stands_still() -> None:
    assert chosen(policy(CORRIDOR, goal=1)) == {STILL}
    row = CORRIDOR.initial_state()
    row[CELL] = 2
    assert chosen(policy(CORRIDOR, row, goal=2)) == {STILL}


def test_without_standing_still_the_human_turns_in_its_goal() -> None:
    world = room("Ay .. .. ..", goals="['0,0']", action_class="MinimalActions")
    assert policy(world).tolist() == [0.0, 1.0]


def test_an_unreachable_goal_makes_all_directions_alike() -> None:
    world = room("Ay .. We ..", goals="['3,0']")
    np.testing.assert_allclose(policy(world), softmax([0, -0.5, -0.5, 0]))


def test_entering_a_bush_is_as_bad_as_can_be() -> None:
    world = room("Ay Bu ..", ".. .. ..", goals="['2,0']")
    # Around the bush there are three cells to enter; the grid's largest cost is 250 + 0.
    here, most = 4 / 250, -1.0
    assert policy(world)[FORWARD] == pytest.approx(
        softmax([0, -0.5, 0.8 / 250, most + here])[FORWARD]
    )


def test_a_way_through_a_rock_is_long() -> None:
    world = room("Ay .. We", ".. Ro ..", ".. .. ..", goals="['2,1']")
    # Over the rock 1 + 50 + 1, around it 5 steps.
    assert policy(world)[RIGHT] > policy(world)[FORWARD]


def test_actions_that_are_no_walking_have_no_probability_without_a_reason() -> None:
    world = room("Ay .. By ..", goals="['3,0']")
    found = policy(world)
    assert found.shape == (7,)
    assert (found[[PICKUP, DROP, TOGGLE]] == 0).all()
    assert (found[[STILL, LEFT, RIGHT, FORWARD]] > 0).all()


def test_unavailable_actions_have_no_probability() -> None:
    rules = "[{agents: humans, forbid: [forward]}]"
    world = room("Ay .. .. ..", goals="['3,0']", action_rules=rules)
    np.testing.assert_allclose(policy(world), [*softmax([0, -0.5, -0.5]), 0])
    only = "[{agents: humans, forbid: [still, left, right, forward]}]"
    world = room("Ay .. By ..", goals="['3,0']", action_rules=only)
    assert chosen(policy(world)) == {PICKUP, DROP, TOGGLE}


DOORS = """
map: |
  We Cr We
  We Ay ..
  We .. ..
possible_goals: ['1,2']
goal_coverage: partial
"""


@pytest.mark.parametrize(
    ("direction", "actions"), [(NORTH, {TOGGLE}), (EAST, {LEFT}), (WEST, {RIGHT}), (SOUTH, BOTH)]
)
def test_a_closed_door_nearby_is_turned_to_and_opened(direction: int, actions: set[int]) -> None:
    world = world_from_text(DOORS)
    assert chosen(policy(world, facing(world, direction))) == actions


def test_a_locked_door_is_opened_by_who_carries_its_key() -> None:
    world = room("We Lr We", "We Ay Kr", goals="['1,1, 2,1', '1,0']")
    locked = facing(world, NORTH)
    assert TOGGLE not in np.flatnonzero(policy(world, locked, goal=1))
    assert chosen(policy(world, carrying(world, locked), goal=1)) == {TOGGLE}


def test_a_key_of_another_colour_opens_nothing() -> None:
    world = room("We Lr We", "We Ay Ky", ".. .. ..", goals="['0,2']")
    assert TOGGLE not in np.flatnonzero(policy(world, carrying(world, facing(world, NORTH))))


def test_an_open_door_ahead_that_is_on_the_way_is_walked_through() -> None:
    world = room("Ay Or ..", goals="['2,0', '1,0']")
    assert chosen(policy(world)) == {FORWARD}
    assert chosen(policy(world, goal=1)) == {FORWARD}


def test_an_open_door_that_leads_away_is_not_walked_through() -> None:
    world = room(".. Ay Or ..", goals="['0,0']")
    assert policy(world)[FORWARD] < 1


def test_an_occupied_doorway_is_not_walked_into() -> None:
    world = room("Ay Or ..", "Ae .. ..", goals="['2,0']")
    row = world.initial_state()
    row[4 + CELL] = 1
    assert policy(world, row)[FORWARD] < policy(world, row)[STILL]


@pytest.mark.parametrize(
    ("direction", "actions"), [(EAST, {PICKUP}), (NORTH, {RIGHT}), (SOUTH, {LEFT}), (WEST, BOTH)]
)
def test_a_useful_key_nearby_is_turned_to_and_picked_up(direction: int, actions: set[int]) -> None:
    world = room(".. Ay Kr", ".. Lr ..", goals="['0,0']")
    row = facing(world, direction)
    assert chosen(policy(world, row)) == actions


@pytest.mark.parametrize("last_row", [".. .. ..", ".. Ly ..", ".. .. Or"])
def test_a_key_without_a_locked_door_of_its_colour_is_left_alone(last_row: str) -> None:
    world = room(".. Ay Kr", ".. .. ..", last_row, goals="['0,0']")
    assert policy(world)[PICKUP] == 0


def test_full_hands_pick_up_no_key() -> None:
    world = room("Ay Kr", ".. Lr", ".. By", goals="['0,1']")
    ball = [int(kind) for kind in world.layout.item_kind].index(3)
    assert policy(world, carrying(world, item=ball))[PICKUP] == 0


def test_a_key_from_an_opened_box_is_picked_up_and_one_in_a_closed_box_is_not() -> None:
    world = room("Ay Xr", ".. Lr", goals="['0,1']", objects="{'1,0': {contains: Kr}}")
    assert policy(world)[PICKUP] == 0
    row = world.initial_state()
    row[world.layout.first_item_word] = world.layout.opened + 1
    assert chosen(policy(world, row)) == {PICKUP}


def test_a_door_comes_before_a_key() -> None:
    world = room("Cr Ay Kr", ".. .. Lr", goals="['0,1']")
    assert chosen(policy(world)) == BOTH  # Towards the door behind, not to the key ahead.


def test_a_key_that_opens_nothing_any_more_is_put_down() -> None:
    world = room("Ay .. ..", ".. .. Kr", goals="['2,0', '0,1']")
    assert chosen(policy(world, carrying(world))) == {DROP}
    assert chosen(policy(world, carrying(world), goal=1)) == {DROP}


def test_a_key_whose_door_is_still_locked_is_kept() -> None:
    world = room("Ay .. ..", ".. Lr Kr", goals="['2,0']")
    assert policy(world, carrying(world))[DROP] == 0


@pytest.mark.parametrize("thing", ["We", "By", "Bl", "Ae", "Bu", "Kb", "Or"])
def test_nothing_is_put_down_where_there_is_no_room(thing: str) -> None:
    world = room(f"Ay {thing} ..", ".. .. ..", ".. .. Kr", goals="['0,1']")
    keys = [int(kind) for kind in world.layout.item_kind].index(2)
    assert policy(world, carrying(world, item=keys))[DROP] == 0


def test_a_key_put_down_aside_never_blocks_the_way() -> None:
    world = room("Ay .. ..", ".. .. Kr", goals="['2,0', '0,1']")
    assert policy(world, carrying(world), drop="aside")[DROP] == 0
    assert chosen(policy(world, carrying(world), goal=1, drop="aside")) == {DROP}


def test_a_human_fetches_the_key_opens_the_door_and_walks_to_its_goal() -> None:
    world = room(
        "We We We We We We We",
        "We Ay .. We .. .. We",
        "We .. .. Lr .. .. We",
        "We .. Kr We .. .. We",
        "We We We We We We We",
        goals="['5,1']",
    )
    prior = PathHeuristic(PathHeuristicParams(beta=5000.0, drop="aside"), world)
    generator = torch.Generator().manual_seed(0)
    state = world.initial_state()[None]
    for _ in range(40):
        actions = torch.multinomial(
            prior.policy(state, torch.full((len(state),), 1))[:, 0], 1, generator=generator
        )
        state = world.step(state, actions, generator)
    assert bool(world.achieved(state)[0, 0])


def test_humans_have_policies_for_their_own_goals() -> None:
    world = world_from_text(
        "map: 'Ay .. .. Ay'\ngoals: {0: ['3,0'], 1: ['0,0', '3,0']}\ngoal_coverage: partial"
    )
    found = PathHeuristic(PathHeuristicParams(), world).policy(
        world.initial_state()[None], torch.tensor([1])
    )[0]
    assert found.shape == (3, 4)
    assert found[0, FORWARD] > found[0, STILL]
    assert found[1, FORWARD] < found[1, STILL]  # It looks away from its goal, at the border.
    assert found[2].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_only_multigrid_worlds_are_understood() -> None:
    with pytest.raises(ConfigError, match=r"TinyWorld; .*human_prior"):
        PathHeuristic(PathHeuristicParams(), TinyWorld())
