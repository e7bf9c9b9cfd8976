"""The core's kit, for every component, quantity and kind of world."""

from __future__ import annotations

import pytest

from empo_core.protocols import FitsItself, SharesEncoders, ValueNetwork, WorldModel
from empo_core.testing.value_network import ValueNetworkTests
from empo_core.testing.worlds import TinyWorld
from empo_core.types import Quantity, WorldSpec


@pytest.mark.parametrize("kind", ["mlp", "identity"])
class TestNetworksOfRows(ValueNetworkTests):
    @pytest.fixture
    def network(self, make, kind: str, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        return make(kind, spec, quantity)


@pytest.mark.parametrize("kind", ["mlp", "grid-conv", "identity"])
class TestNetworksOfPictures(ValueNetworkTests):
    @pytest.fixture
    def world(self, picture_world: WorldModel) -> WorldModel:
        return picture_world

    @pytest.fixture
    def network(self, make, kind: str, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        return make(kind, spec, quantity)

    def test_it_fits_itself_and_shares(self, network: ValueNetwork) -> None:
        assert isinstance(network, FitsItself)
        assert isinstance(network, SharesEncoders)


class TestNetworksThatShare(ValueNetworkTests):
    @pytest.fixture(params=["q_r", "x_h", "u_r", "v_r"])
    def quantity(self, request: pytest.FixtureRequest) -> Quantity:
        return request.param

    @pytest.fixture
    def network(self, make, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        network = make("mlp", spec, quantity)
        assert network.share(make("mlp", spec, "v_h_e"))
        return network


@pytest.mark.parametrize("options", [{"layer_norm": True}, {"dropout": 0.5}, {"head_layers": 1}])
class TestNetworksWithOtherParams(ValueNetworkTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return TinyWorld(horizon=None)

    @pytest.fixture
    def network(
        self, make, options: dict[str, object], spec: WorldSpec, quantity: Quantity
    ) -> ValueNetwork:
        return make("mlp", spec, quantity, hidden=16, **options)
