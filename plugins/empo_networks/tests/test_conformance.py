"""The core's kit, for every component and quantity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from empo_core.protocols import FitsItself, SharesEncoders, ValueNetwork, WorldModel
from empo_core.testing.value_network import ValueNetworkTests
from empo_core.testing.worlds import TinyWorld
from empo_core.types import Quantity, WorldSpec
from empo_networks.network import Network

Make = Callable[..., Network]


@pytest.mark.parametrize("kind", ["mlp", "identity"])
class TestNetworksOfRows(ValueNetworkTests):
    @pytest.fixture
    def network(self, make: Make, kind: str, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        return make(kind, spec, quantity, hidden=32)


class TestNetworksOfPictures(ValueNetworkTests):
    @pytest.fixture
    def world(self, picture_world: WorldModel) -> WorldModel:
        return picture_world

    @pytest.fixture
    def network(self, make: Make, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        return make("grid-conv", spec, quantity, hidden=32)

    def test_it_fits_itself_and_shares(self, network: ValueNetwork) -> None:
        assert isinstance(network, FitsItself)
        assert isinstance(network, SharesEncoders)


class TestNetworksThatShare(ValueNetworkTests):
    @pytest.fixture(params=["q_r", "x_h"])
    def quantity(self, request: pytest.FixtureRequest) -> Quantity:
        quantity: Quantity = request.param
        return quantity

    @pytest.fixture
    def world(self, picture_world: WorldModel) -> WorldModel:
        return picture_world

    @pytest.fixture
    def network(self, make: Make, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        network = make("mlp", spec, quantity, hidden=16)
        assert network.share(make("grid-conv", spec, "v_h_e", hidden=16))
        return network


class TestTimelessNetworksWithOtherParams(ValueNetworkTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return TinyWorld(horizon=None)

    @pytest.fixture
    def network(self, make: Make, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        return make(
            "mlp", spec, quantity, hidden=16, layer_norm=False, dropout=0.5, head_layers=1,
            activation="tanh",
        )  # fmt: skip
