"""One simulated cluster for all tests of a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Tests are not on the import path (--import-mode=importlib).
sys.path.insert(0, str(Path(__file__).parent))

from simulated_cluster import simulated_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    if find_spec("ray") is None:  # Not imported, for that reads variables that are set below.
        pytest.skip("Ray is not installed")
    with simulated_cluster() as cluster:
        yield cluster
