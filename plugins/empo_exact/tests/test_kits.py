"""The exact algorithm and both human priors pass the core's conformance kits."""

import pytest

from empo_core.protocols import Algorithm, HumanPrior, WorldModel
from empo_core.types import AgentSpec
from empo_exact.algorithm import Exact
from empo_exact.plugin import Compute, ExactParams, PriorParams, UniformParams
from empo_exact.prior import ExactPrior, UniformPrior
from empo_testing.algorithm import AlgorithmTests
from empo_testing.human_prior import HumanPriorTests
from empo_worlds.enumeration import enumerate_world


class Ferry:
    """A human crosses a river when the robot lets the ferry go; it may break down once."""

    name, horizon = "ferry", 4
    agents = (
        AgentSpec(name="human", role="human", actions=("wait", "board")),
        AgentSpec(name="robot", role="robot", actions=("moor", "sail")),
    )
    goals = {0: [(bank, lambda s, bank=bank: s[0] == bank) for bank in ("near", "far")]}  # noqa: RUF012

    def initial_state(self) -> tuple[str, bool]:
        return "near", True

    def transition_probabilities(
        self, state: tuple[str, bool], actions: tuple[int, int]
    ) -> list[tuple[float, tuple[str, bool]]]:
        bank, runs = state
        if actions != (1, 1) or not runs:
            return [(1.0, state)]
        other = "far" if bank == "near" else "near"
        return [(0.8, (other, True)), (0.2, (bank, False))]


class OnTheFerry(AlgorithmTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return enumerate_world(Ferry())


class TestExact(OnTheFerry):
    @pytest.fixture
    def algorithm(self) -> Algorithm:
        return Exact(ExactParams(compute=Compute(workers=1)))


class TestExactOnDisk(OnTheFerry):
    @pytest.fixture
    def algorithm(self) -> Algorithm:
        return Exact(ExactParams(keep="disk", preset="paper", compute=Compute(workers=1)))


class TestExactPrior(HumanPriorTests):
    @pytest.fixture
    def prior(self, world: WorldModel) -> HumanPrior:
        return ExactPrior(PriorParams(), world)


class TestUniformPrior(HumanPriorTests):
    @pytest.fixture
    def prior(self, world: WorldModel) -> HumanPrior:
        return UniformPrior(UniformParams(), world)
