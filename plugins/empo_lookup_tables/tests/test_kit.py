"""Tables of every quantity pass the core's kit, with and without time in their keys."""

import pytest

from empo_core.protocols import Regression, ValueNetwork
from empo_core.types import Quantity, WorldSpec
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.table import LookupTable
from empo_testing.value_network import ValueNetworkTests


@pytest.mark.parametrize("include_time", [True, False])
class TestLookupTable(ValueNetworkTests):
    @pytest.fixture
    def network(self, spec: WorldSpec, quantity: Quantity, include_time: bool) -> ValueNetwork:
        return LookupTable(LookupParams(include_time=include_time), spec, quantity)

    def test_it_has_a_regression_of_its_own(self, network: ValueNetwork) -> None:
        regression = network.regression(weight_decay=0.0, max_grad_norm=None)
        assert isinstance(regression, Regression)
