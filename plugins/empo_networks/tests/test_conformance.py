"""The core's kit, for every component and quantity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from empo_core.protocols import Regression, ValueNetwork, WorldModel
from empo_core.types import Quantity, WorldSpec
from empo_networks.network import Network
from empo_testing.value_network import ValueNetworkTests
from empo_testing.worlds import TinyWorld

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

    def test_it_has_a_regression_of_its_own(self, network: ValueNetwork) -> None:
        regression = network.regression(weight_decay=0.0, max_grad_norm=None)
        assert isinstance(regression, Regression)


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
