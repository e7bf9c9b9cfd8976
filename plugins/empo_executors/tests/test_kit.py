"""Conformance tests for executors, run on ``LocalExecutor``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import empo_testing.executor as kit
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
class TestLocal(kit.ExecutorTests):
    @pytest.fixture
    def executor(self, method: str) -> Iterator[LocalExecutor]:
        executor = LocalExecutor(LocalParams.model_validate({"start_method": method}))
        yield executor
        executor.shutdown()
