"""Object stores of nodes, and warnings where one is full."""

from __future__ import annotations

from collections.abc import Collection

from ray._private.state import state as cluster_state

_RESOURCE = "object_store_memory"
_FULL = 0.8
"""Share of a store that is in use when Ray begins to write to the disk."""


class ObjectStores:
    """The stores of all nodes; only what Ray cannot evict counts as used."""

    def __init__(self, is_local: bool) -> None:
        """Begin without a warning; ``is_local`` where the cluster was started for this run."""
        self._where = (
            "object_store_mb of the executor sets its size"
            if is_local
            else "`ray start --object-store-memory=BYTES` on that machine sets its size"
        )
        self._known: set[str] = set()

    def warnings(self, nodes: Collection[str]) -> list[str]:
        """Sentences on those of these nodes whose store has become full, once on each."""
        sizes = cluster_state.total_resources_per_node()
        free = cluster_state.available_resources_per_node()
        full = {
            node
            for node in nodes
            if free.get(node, {}).get(_RESOURCE, 0.0)
            < (1 - _FULL) * sizes.get(node, {}).get(_RESOURCE, 0.0)
        }
        found = [
            f"the object store of node {node[:8]} ({_mib(sizes[node])}) is full, so Ray writes to "
            "the disk there, which takes time. It should have room for two broadcasts, and for "
            f"16 MiB of each worker on that node; {self._where}"
            for node in sorted(full - self._known)
        ]
        self._known |= full
        return found

    def failure(self, node: str) -> str:
        """Sentence on a store that has refused an object."""
        size = _mib(cluster_state.total_resources_per_node().get(node, {}))
        return (
            f"the object store of node {node[:8]} ({size}) is full, and so is the disk there, "
            f"where Ray would write what does not fit: free some of it; {self._where}"
        )


def _mib(resources: dict[str, float]) -> str:
    return f"{resources.get(_RESOURCE, 0.0) / 2**20:,.0f} MiB"


__all__ = ["ObjectStores"]
