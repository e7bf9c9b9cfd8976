"""Resources of workers in configs; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from empo_core import Config

if TYPE_CHECKING:
    from empo_core.protocols.executors import Needs


class NeedsParams(Config):
    """Resources of each worker, which a node must have free."""

    cpus: float = Field(1.0, ge=0, description="Processor cores.")
    gpus: float = Field(0.0, ge=0, description="Accelerators, possibly a fraction of one.")
    memory_mb: int | None = Field(None, ge=1, description="Main memory in MiB; null: any.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels that the node must have."
    )

    def needs(self) -> Needs:
        """As executors take them."""
        from empo_core.protocols.executors import Needs

        return Needs(**self.model_dump())
