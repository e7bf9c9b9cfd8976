"""Policy networks by the conformance kit of their kind, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from policy_shapes import policy_params

from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.protocols import PolicyNetwork
from empo_core.protocols.environments import ObservationSpec
from empo_rollout.network_params import LstmParams
from empo_rollout.networks import Lstm
from empo_rollout.params import PolicyParams
from empo_testing.policy_network import PolicyNetworkTests


@pytest.mark.parametrize("trunk", ["mlp", "conv"])
@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
class TestNetworks(PolicyNetworkTests):
    @pytest.fixture
    def make(self, trunk: str, memory: str) -> Callable[[ObservationSpec], PolicyNetwork]:
        shape = policy_params(network=trunk, memory=memory, critic="shared")
        named = PolicyParams.model_validate(shape).network
        return lambda observations: build(named, observations)


def test_a_memory_behind_a_memory_is_refused() -> None:
    params = LstmParams.model_validate({"trunk": {"name": "lstm", "params": {}}})
    with pytest.raises(ConfigError, match="'lstm'"):
        Lstm(params, ObservationSpec(3))


@pytest.mark.parametrize("network", ["lstm", {"name": "lstm", "params": {"trunk": "conv"}}])
def test_a_critic_of_its_own_has_no_memory(network: object) -> None:
    with pytest.raises(ValueError, match="critic"):
        PolicyParams.model_validate({"network": network, "critic": "own"})
    assert PolicyParams.model_validate({"network": network, "critic": "shared"}).has_memory
