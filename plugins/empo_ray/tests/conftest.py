"""A cluster of three nodes, simulated on this machine, for all tests of a process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's switch to the loopback address.
    "RAY_memory_monitor_refresh_ms": "0",  # Else it kills workers where others take the memory.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
NODE = {"num_cpus": 1, "object_store_memory": 200 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three nodes of one processor each; token authentication; memory monitor off."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(VARIABLES)  # Read when ray is imported.
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=NODE)
    try:
        for _ in range(2):
            cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
