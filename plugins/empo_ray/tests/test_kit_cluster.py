"""Conformance tests for executors, run on a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from simulated_cluster import ray_params

import empo_testing.executor as kit
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams

pytestmark = pytest.mark.cluster


class TestRay(kit.ExecutorTests):
    @pytest.fixture
    def executor(self, cluster: Any) -> Iterator[RayExecutor]:
        executor = RayExecutor(RayParams.model_validate(ray_params(cluster)))
        yield executor
        executor.shutdown()
