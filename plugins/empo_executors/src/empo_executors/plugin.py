"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from empo_core import Component, Config, hookimpl


class LocalParams(Config):
    """Start method of worker processes, and the limits beyond which one counts as failed."""

    start_method: Literal["auto", "forkserver", "spawn"] = Field(
        "auto", description="Start method; auto takes forkserver where there is one, else spawn."
    )
    start_timeout_s: float = Field(
        300.0, gt=0, description="A worker that takes longer to be built has failed."
    )
    heartbeat_s: float = Field(
        60.0, ge=0.5,
        description="A process without any sign of life for so long (stopped, or stuck in compiled "
        "code) has failed; how long a call may take is up to the caller.",
    )  # fmt: skip


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one executor."""
    yield Component(
        kind="executor",
        name="local",
        params=LocalParams,
        target="empo_executors.local:LocalExecutor",
        api=1,
        summary="Supervised processes of this machine, started by forkserver or spawn.",
    )
