"""A cluster of three nodes on this machine, which tests may change."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's switch to the loopback address.
    "RAY_memory_monitor_refresh_ms": "0",  # Else it kills workers where others take the memory.
    # Else the head asks a killed node for a quarter of a minute before it counts as dead.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
NODE = {"num_cpus": 1, "object_store_memory": 200 * 2**20, "include_dashboard": False}


def ray_params(cluster: Any, **more: Any) -> dict[str, Any]:
    """Params of the executor ``ray`` for workers on this cluster."""
    return {"address": cluster.address, "allow_addresses": [cluster.address], **more}


@contextmanager
def simulated_cluster(nodes: int = 3, **head: Any) -> Iterator[Any]:
    """Nodes of one processor each; token authentication; memory monitor off."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(VARIABLES)  # Before ray is imported.
    try:
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=NODE | head)
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
