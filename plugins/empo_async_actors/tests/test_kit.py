"""Conformance tests for collectors, run on ``AsyncCollector``."""

from __future__ import annotations

import pytest

import empo_testing.collector as kit
from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams


@pytest.mark.parametrize("actors", [1, 3])
class TestAsync(kit.CollectorTests):
    exact_resume = False

    @pytest.fixture
    def collector(self, actors: int) -> AsyncCollector:
        return AsyncCollector(AsyncParams(actors=actors, min_env_steps=1, max_restarts=1))
