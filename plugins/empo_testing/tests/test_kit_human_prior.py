"""The human prior kit passes a right prior and fails each one broken on purpose."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from empo_core.protocols import HumanPrior, WorldModel
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld

Runner = Callable[..., set[str]]


class Uniform:
    """Each human does any available action."""

    def __init__(self, world: WorldModel) -> None:
        self._world = world
        spec = world.spec
        self._humans = [goal.human for goal in spec.goals]
        self._width = max(spec.num_actions[human] for human in spec.humans)

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        available = self._world.available(states)[:, self._humans, : self._width].double()
        return available / available.sum(-1, keepdim=True)


class NoPolicy:
    def __init__(self, world: WorldModel) -> None:
        pass


class OneWordPerHuman(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return super().policy(states, steps_left)[:, :2]


class CarriesGradients(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return super().policy(states, steps_left).requires_grad_()


class SumsToLess(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return super().policy(states, steps_left) * (1 - 1e-9)


class GoesNegative(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return 3 * super().policy(states, steps_left) - 2 * super().policy(states, steps_left).roll(
            1, -1
        )


class IgnoresAvailability(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        same = super().policy(states, steps_left)
        initial = super().policy(self._world.initial_state()[None], steps_left)
        return initial.expand_as(same).clone()


class FillsThePadding(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.full_like(super().policy(states, steps_left), 1 / self._width)


class LooksAtTheFirstRow(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return super().policy(states[:1].expand_as(states), steps_left).clone()


class SortsItsRows(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return super().policy(states[states.sum(1).argsort()], steps_left)


class RemembersTheTime(Uniform):
    """Ages with every question, so that answers depend on their order."""

    age = 0

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        self.age += 1
        return super().policy(states, steps_left) ** self.age


class LendsItsTable(Uniform):
    def __init__(self, world: WorldModel) -> None:
        super().__init__(world)
        self._known: dict[str, Tensor] = {}

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        found = super().policy(states, steps_left)
        return self._known.setdefault(f"{states.tolist()} {steps_left}", found)


class DrawsGlobally(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        torch.rand(1)
        return super().policy(states, steps_left)


class NeedsRows(Uniform):
    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.cat([super(NeedsRows, self).policy(row[None], steps_left) for row in states])


FLAWS: list[tuple[type, list[str]]] = [
    (NoPolicy, ["test_it_fits_the_protocol"]),
    (OneWordPerHuman, ["test_there_is_one_policy_per_state_and_goal"]),
    (CarriesGradients, ["test_there_is_one_policy_per_state_and_goal"]),
    (SumsToLess, ["test_every_policy_is_a_distribution"]),
    (GoesNegative, ["test_every_policy_is_a_distribution"]),
    (IgnoresAvailability, ["test_nobody_does_what_is_not_available"]),
    (FillsThePadding, ["test_padding_has_no_probability"]),
    (LooksAtTheFirstRow, ["test_a_batch_gives_what_its_rows_give_alone"]),
    (SortsItsRows, ["test_order_and_repetition_in_a_batch_do_not_matter"]),
    (RemembersTheTime, ["test_asking_changes_nothing"]),
    (LendsItsTable, ["test_asking_changes_nothing"]),
    (DrawsGlobally, ["test_asking_changes_nothing"]),
    (NeedsRows, ["test_an_empty_batch_gives_an_empty_answer"]),
]


def subclass(make: type) -> type:
    class TestIt(HumanPriorTests):
        @pytest.fixture
        def prior(self, world: WorldModel) -> HumanPrior:
            return make(world)  # type: ignore[no-any-return]

    return TestIt


def test_a_right_prior_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(Uniform)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_prior_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in vars(HumanPriorTests) if name.startswith("test_")}


def test_the_default_world_can_tell_priors_apart() -> None:
    spec = TinyWorld().spec
    assert len({spec.num_actions[human] for human in spec.humans}) > 1
