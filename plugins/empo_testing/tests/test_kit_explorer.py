"""The explorer kit passes right explorers and fails each one broken on purpose."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.protocols import Explorer
from empo_core.types import Scene, WorldSpec
from empo_testing.explorer import ExplorerTests

Runner = Callable[..., set[str]]


class Mixes(Explorer):
    """Follows the protocol: half of the policy, half of the uniform one; remembers nothing."""

    def __init__(self, spec: WorldSpec, agents: tuple[int, ...]) -> None:
        self.agents = agents

    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        even = scene.available.float()
        return (policy + even / even.sum(1, keepdim=True)) / 2


class Repeats(Mixes):
    """Follows the protocol: does the same again where that is available; has a memory."""

    last: Tensor | None = None

    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        if self.last is None:
            return policy
        again = torch.nn.functional.one_hot(self.last, policy.shape[1]).float()
        possible = scene.available.gather(1, self.last[:, None]) & ~scene.started[:, None]
        return torch.where(possible, again, policy)

    def observe(self, scene: Scene, choice: Tensor) -> None:
        self.last = choice.clone()

    def state_dict(self) -> dict[str, Any]:
        return {"last": None if self.last is None else self.last.clone()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.last = state_dict["last"]


class Learns(Mixes):
    """Follows the protocol: one number learns to be 1."""

    learns = True

    def __init__(self, spec: WorldSpec, agents: tuple[int, ...]) -> None:
        super().__init__(spec, agents)
        self.number = torch.zeros(())

    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return torch.lerp(super().explore(policy, scene, generator), policy, self.number.item() / 2)

    def learn(self, states: Tensor, choice: Tensor) -> dict[str, float]:
        loss = float((self.number - 1).square())
        self.number = torch.lerp(self.number, torch.ones(()), 0.1)
        return {"loss": loss}

    def weights(self) -> dict[str, Tensor]:
        return {"number": self.number}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.number = weights["number"].clone()

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number.clone()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.number = state_dict["number"]


class NoExplorer:
    def __init__(self, spec: WorldSpec, agents: tuple[int, ...]) -> None:
        pass


class SumsToLess(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return 0.999 * super().explore(policy, scene, generator)


class GoesNegative(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return 3 * policy - 2 * super().explore(policy, scene, generator)


class GivesUp(Mixes):
    """Divides by a probability that is 0 where an action is not available."""

    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return policy / policy * super().explore(policy, scene, generator)


class IgnoresAvailability(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return torch.full_like(policy, 1 / policy.shape[1])


class DoesNothing(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return policy


class DrawsGlobally(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return torch.lerp(policy, super().explore(policy, scene, generator), float(torch.rand(())))


class WritesIntoThePolicy(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return policy.copy_(super().explore(policy, scene, generator))


class WritesIntoTheScene(Mixes):
    def observe(self, scene: Scene, choice: Tensor) -> None:
        scene.states.zero_()


class LooksAtTheFirstEnvironment(Mixes):
    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        mixed = super().explore(policy, scene, generator)
        return torch.lerp(policy, mixed, float(policy[0].max()))


class ForgetsOnRestart(Repeats):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        pass


class LendsItsMemory(Repeats):
    def observe(self, scene: Scene, choice: Tensor) -> None:
        self.last = choice.clone() if self.last is None else self.last.copy_(choice)

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}


class KeepsAnObject(Repeats):
    def state_dict(self) -> dict[str, Any]:
        return {"last": torch.Generator()}


class NeverLearns(Learns):
    def learn(self, states: Tensor, choice: Tensor) -> dict[str, float]:
        return {"loss": 1.0}


class LearnsTheWrongWay(Learns):
    def learn(self, states: Tensor, choice: Tensor) -> dict[str, float]:
        self.number = self.number - 0.1
        return {"loss": float((self.number - 1).square())}


class PassesNothingOn(Learns):
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        pass


FLAWS: list[tuple[type, str]] = [
    (NoExplorer, "test_it_fits_the_protocol"),
    (SumsToLess, "test_probabilities_stay_probabilities"),
    (GoesNegative, "test_probabilities_stay_probabilities"),
    (GivesUp, "test_probabilities_stay_probabilities"),
    (IgnoresAvailability, "test_nobody_does_what_is_not_available"),
    (DoesNothing, "test_it_changes_something"),
    (DrawsGlobally, "test_all_randomness_is_that_of_the_generator"),
    (WritesIntoThePolicy, "test_asking_leaves_its_arguments_alone"),
    (WritesIntoTheScene, "test_asking_leaves_its_arguments_alone"),
    (
        LooksAtTheFirstEnvironment,
        "test_the_order_of_environments_does_not_matter_to_one_without_memory",
    ),
    (ForgetsOnRestart, "test_a_restored_copy_goes_on_in_the_same_way"),
    (LendsItsMemory, "test_what_it_remembered_does_not_change_afterwards"),
    (KeepsAnObject, "test_a_restored_copy_goes_on_in_the_same_way"),
    (NeverLearns, "test_learning_makes_what_was_learned_less_new"),
    (LearnsTheWrongWay, "test_learning_makes_what_was_learned_less_new"),
    (PassesNothingOn, "test_what_was_learned_can_be_passed_on"),
]


def subclass(make: type) -> type:
    class TestIt(ExplorerTests):
        @pytest.fixture
        def make_explorer(self, spec: WorldSpec, agents: tuple[int, ...]) -> Callable[[], Explorer]:
            return lambda: make(spec, agents)  # type: ignore[no-any-return]

    return TestIt


@pytest.mark.parametrize("make", [Mixes, Repeats, Learns])
def test_a_right_explorer_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_explorer_fails(kit_failures: Runner, make: type, caught_by: str) -> None:
    assert kit_failures(subclass(make), only=[caught_by]) == {caught_by}


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, name in FLAWS}
    assert caught == {name for name in vars(ExplorerTests) if name.startswith("test_")}
