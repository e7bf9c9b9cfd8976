"""Conformance kit of policy networks: the same step by step and at once, whatever they compute."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from empo_core.protocols import PolicyNetwork
from empo_core.protocols.environments import ObservationSpec
from empo_testing.exploration import global_randomness_untouched, stored

TIMES, SEGMENTS = 7, 5
Make = Callable[[ObservationSpec], PolicyNetwork]


class PolicyNetworkTests:
    """Subclass this in your plugin's tests and override ``make``."""

    @pytest.fixture
    def make(self) -> Make:
        """A function that builds the network for what agents see."""
        raise NotImplementedError("override the fixture 'make'")

    @pytest.fixture
    def observations(self) -> ObservationSpec:
        """What agents see: a picture of 2 by 3 by 4, and 5 more numbers."""
        return ObservationSpec(2 * 3 * 4 + 5, grid=(2, 3, 4))

    @pytest.fixture
    def network(self, make: Make, observations: ObservationSpec) -> PolicyNetwork:
        """A network with initial weights."""
        torch.manual_seed(0)
        network = make(observations)
        network.initialise(torch.Generator().manual_seed(0))
        return network

    def test_it_is_a_policy_network(self, network: PolicyNetwork) -> None:
        assert isinstance(network, PolicyNetwork)

    def test_features_and_memory_have_the_sizes_that_it_says(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        seen, memory, starts = segments(network, observations)
        features, after = network.unroll(seen, memory, starts)
        assert features.shape == (TIMES, SEGMENTS, network.features)
        assert after.shape == (SEGMENTS, network.memory_size)
        assert network(seen[0]).shape == (SEGMENTS, network.features)

    def test_segments_are_read_as_their_steps_are(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        seen, memory, starts = segments(network, observations)
        at_once, after = network.unroll(seen, memory, starts)
        for time in range(TIMES):
            here, memory = network.unroll(seen[time, None], memory, starts[time, None])
            torch.testing.assert_close(here[0], at_once[time], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(memory, after, rtol=1e-5, atol=1e-5)

    def test_the_first_step_of_an_episode_is_that_of_forward(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        seen, memory, _ = segments(network, observations)
        starts = torch.ones(1, SEGMENTS, dtype=torch.bool)
        features, _ = network.unroll(seen[:1], memory, starts)
        torch.testing.assert_close(features[0], network(seen[0]), rtol=1e-5, atol=1e-5)

    def test_no_rows_give_no_features(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        memory, starts = torch.zeros(0, network.memory_size), torch.zeros(1, 0, dtype=torch.bool)
        features, after = network.unroll(torch.zeros(1, 0, observations.words), memory, starts)
        assert features.shape == (1, 0, network.features)
        assert after.shape == (0, network.memory_size)

    def test_every_weight_can_learn(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        with torch.no_grad():  # Initial weights may be such that nothing comes through.
            for weight in network.parameters():
                seeded = torch.Generator().manual_seed(weight.numel())
                weight.add_(0.1 * torch.randn(weight.shape, generator=seeded))
        features, _ = network.unroll(*segments(network, observations))
        features.square().sum().backward()  # type: ignore[no-untyped-call]
        still = [name for name, weight in network.named_parameters() if weight.grad is None]
        assert not still, f"no gradient reaches {still}"

    def test_inputs_are_left_alone(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        arguments = segments(network, observations)
        before = copy.deepcopy(arguments)
        network.unroll(*arguments)
        for actual, expected in zip(arguments, before, strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    def test_equal_inputs_give_equal_features(
        self, network: PolicyNetwork, observations: ObservationSpec
    ) -> None:
        arguments = segments(network, observations)
        with global_randomness_untouched():
            (first, _), (second, _) = network.unroll(*arguments), network.unroll(*arguments)
        torch.testing.assert_close(first, second, rtol=0, atol=0)

    def test_one_seed_gives_one_set_of_weights(
        self, network: PolicyNetwork, make: Make, observations: ObservationSpec
    ) -> None:
        torch.manual_seed(0)
        again = make(observations)
        again.initialise(torch.Generator().manual_seed(0))
        torch.testing.assert_close(again.state_dict(), network.state_dict(), rtol=0, atol=0)

    def test_its_state_is_all_that_it_needs(
        self, network: PolicyNetwork, make: Make, observations: ObservationSpec
    ) -> None:
        with torch.device("meta"):  # As a saved policy is loaded.
            loaded = make(observations)
        loaded.load_state_dict(stored(dict(network.state_dict())), assign=True)
        arguments = segments(network, observations)
        torch.testing.assert_close(loaded.unroll(*arguments), network.unroll(*arguments))


def segments(
    network: PolicyNetwork, observations: ObservationSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Observations ``[time segment word]``, memories, and episodes that begin anywhere."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(TIMES, SEGMENTS, observations.words, generator=generator),
        torch.randn(SEGMENTS, network.memory_size, generator=generator),
        torch.rand(TIMES, SEGMENTS, generator=generator) < 0.3,
    )
