import pytest
import torch

from empo_core.errors import WorldError
from empo_core.protocols import WorldModel
from empo_example_world.lift import Lift
from empo_example_world.plugin import LiftParams
from empo_testing.world_model import WorldModelTests
from empo_worlds.queries import transition_probabilities

WAIT, DOOR = 0, 1
DOWN, STOP, UP = 0, 1, 2


class TestLift(WorldModelTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return Lift(LiftParams())


def test_the_door_lets_the_human_through_only_where_the_lift_is() -> None:
    lift = Lift(LiftParams(floors=3, door_works=0.75))
    assert transition_probabilities(lift, (1, 0, 0), (DOOR, DOWN)) == [
        (0.75, (0, 0, 1)),
        (0.25, (0, 0, 0)),
    ]
    assert transition_probabilities(lift, (1, 0, 0), (DOOR, STOP)) == [(1.0, (1, 0, 0))]


def test_who_is_inside_rides_along() -> None:
    lift = Lift(LiftParams(floors=3))
    assert transition_probabilities(lift, (0, 0, 1), (WAIT, UP)) == [(1.0, (1, 1, 1))]


def test_the_lift_stays_in_the_house() -> None:
    lift = Lift(LiftParams(floors=2))
    assert transition_probabilities(lift, (0, 1, 0), (WAIT, DOWN)) == [(1.0, (0, 1, 0))]
    assert transition_probabilities(lift, (1, 0, 0), (WAIT, UP)) == [(1.0, (1, 0, 0))]


def test_a_floor_is_reached_outside_the_lift_only() -> None:
    lift = Lift(LiftParams(floors=3))
    states = torch.tensor([[2, 2, 1], [2, 2, 0]])
    assert lift.achieved(states).tolist() == [[False, False, False], [False, False, True]]


def test_a_human_inside_a_lift_that_is_elsewhere_is_refused() -> None:
    with pytest.raises(WorldError, match="a human inside is on the lift's floor"):
        Lift(LiftParams()).available(torch.tensor([[2, 0, 1]]))


def test_the_house_can_be_read() -> None:
    lift = Lift(LiftParams(floors=2))
    assert lift.describe(torch.tensor([1, 0, 0])) == "  1 [.] .\n  0     H"
    assert lift.describe(torch.tensor([1, 1, 1])) == "  1 [H] .\n  0     ."
