"""The kit of policy networks passes right ones and fails each one broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from empo_core.protocols import PolicyNetwork
from empo_core.protocols.environments import ObservationSpec
from empo_testing.policy_network import PolicyNetworkTests

Runner = Callable[..., set[str]]


class Dense(PolicyNetwork):
    """Follows the rules, without memory."""

    def __init__(self, observations: ObservationSpec) -> None:
        super().__init__()
        self.layer = nn.Linear(observations.words, 3)
        self.features = 3

    def forward(self, observation: Tensor) -> Tensor:
        return torch.tanh(self.layer(observation))


class Fading(Dense):
    """Follows the rules, with a memory that fades."""

    memory_size = 3

    def unroll(self, observation: Tensor, memory: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        steps = []
        for row, start in zip(observation, starts, strict=True):
            memory = torch.where(start[:, None], 0, 0.5 * memory) + self(row)
            steps.append(memory)
        return torch.stack(steps), memory


class Wider(Dense):
    def __init__(self, observations: ObservationSpec) -> None:
        super().__init__(observations)
        self.features = 4


class NeverForgets(Fading):
    def unroll(self, observation: Tensor, memory: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        return super().unroll(observation, memory, torch.zeros_like(starts))


class ForgetsWithinSegments(Fading):
    def unroll(self, observation: Tensor, memory: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        features, memory = super().unroll(observation, memory, starts)
        return features, torch.zeros_like(memory)


class NeedsARow(Dense):
    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation / observation.abs().max())


class Detached(Dense):
    def forward(self, observation: Tensor) -> Tensor:
        return torch.tanh(self.layer(observation).detach() + self.layer.bias)


class WritesIntoItsInput(Dense):
    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation.mul_(0.5))


class Noisy(Dense):
    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation + torch.randn_like(observation))


class Unseeded(Dense):
    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.layer.weight, generator=torch.Generator().manual_seed(id(self)))


class KeepsOutOfItsState(Dense):
    scale: Tensor

    def __init__(self, observations: ObservationSpec) -> None:
        super().__init__(observations)
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        return super().forward(observation) * self.scale


class NoPolicyNetwork(nn.Module):
    def __init__(self, observations: ObservationSpec) -> None:
        super().__init__()

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing."""


FLAWS: list[tuple[Any, str]] = [
    (NoPolicyNetwork, "test_it_is_a_policy_network"),
    (Wider, "test_features_and_memory_have_the_sizes_that_it_says"),
    (ForgetsWithinSegments, "test_segments_are_read_as_their_steps_are"),
    (NeverForgets, "test_the_first_step_of_an_episode_is_that_of_forward"),
    (NeedsARow, "test_no_rows_give_no_features"),
    (Detached, "test_every_weight_can_learn"),
    (WritesIntoItsInput, "test_inputs_are_left_alone"),
    (Noisy, "test_equal_inputs_give_equal_features"),
    (Unseeded, "test_one_seed_gives_one_set_of_weights"),
    (KeepsOutOfItsState, "test_its_state_is_all_that_it_needs"),
]


def subclass(made: Any) -> type:
    class TestIt(PolicyNetworkTests):
        @pytest.fixture
        def make(self) -> Callable[[ObservationSpec], PolicyNetwork]:
            return made  # type: ignore[no-any-return]

    return TestIt


@pytest.mark.parametrize("right", [Dense, Fading])
def test_right_networks_pass(kit_failures: Runner, right: Any) -> None:
    assert kit_failures(subclass(right)) == set()


@pytest.mark.parametrize(("flaw", "caught_by"), FLAWS)
def test_a_broken_network_fails(kit_failures: Runner, flaw: Any, caught_by: str) -> None:
    assert caught_by in kit_failures(subclass(flaw), only=[caught_by])


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, name in FLAWS}
    assert caught == {name for name in dir(PolicyNetworkTests) if name.startswith("test_")}
