"""Worlds of the library under the conformance kit of world models."""

import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_testing.world_model import WorldModelTests


class TestMultigrid(WorldModelTests):
    @pytest.fixture(params=["key_and_door", "boxes"])
    def world(self, request: pytest.FixtureRequest) -> WorldModel:
        reference = WorldModelRef.model_validate(f"multigrid/{request.param}")
        world: WorldModel = build(reference)
        return world
