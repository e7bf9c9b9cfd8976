"""Components of this distribution; imported to list plugins, so it must not import ray."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Component, Config, hookimpl
from empo_executors.needs import NeedsParams


class RayParams(Config):
    """Cluster and resources of workers, and the limits beyond which one counts as failed."""

    address: str = Field(
        "local",
        description="local starts a cluster on this machine, for this run only; HOST:PORT joins "
        "the one whose head is there; auto the one that this machine belongs to.",
    )
    allow_addresses: list[str] = Field(
        default_factory=list,
        description="The addresses other than local that may be used, as address says them; "
        "counts in the config file only. Who runs a cluster can run code in this process.",
    )  # fmt: skip
    needs: NeedsParams | None = Field(
        None, description="Resources of each worker; null: those that the caller asks for."
    )
    object_store_mb: int | None = Field(
        None, ge=80,
        description="Size of the object store of a local cluster in MiB; null: Ray's own choice.",
    )  # fmt: skip
    place_timeout_s: float = Field(
        60.0, gt=0,
        description="Without room for all workers for so long, those that have a place start.",
    )  # fmt: skip
    start_timeout_s: float = Field(
        300.0, gt=0, description="A worker with a place that takes longer to be built is replaced."
    )
    heartbeat_s: float = Field(
        10.0, ge=1.0, description="A worker silent for so long counts as unavailable."
    )
    unavailable_s: float = Field(
        10.0, ge=1.0,
        description="An unavailable worker is replaced after so long; a cluster that is lost, or "
        "has no place for any worker, for so long ends the work.",
    )  # fmt: skip
    in_flight: int = Field(
        2, ge=1, description="Calls of one worker at a time: one computed, the others waiting."
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one executor."""
    yield Component(
        kind="executor",
        name="ray",
        params=RayParams,
        target="empo_ray.executor:RayExecutor",
        api=1,
        summary="Actors on the machines of a Ray cluster, replaced when they or their node fail.",
    )
