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
        120.0, gt=0,
        description="Work ends if no worker has a place after so long; if some have one, the "
        "others wait.",
    )  # fmt: skip
    heartbeat_s: float = Field(
        60.0, ge=1.0, description="A worker without any sign of life for so long has failed."
    )
    unavailable_s: float = Field(
        10.0, ge=1.0, description="A cluster whose head does not answer for so long is lost."
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
