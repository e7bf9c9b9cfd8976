"""The components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Command, Component, Config, hookimpl


class SyncParams(Config):
    """Parameters of collector ``sync``: environment steps between training steps."""

    env_steps_per_training_step: float = Field(
        32.0, gt=0, description="Environment steps per training step, once training goes on."
    )
    min_env_steps: int = Field(1000, ge=0, description="Environment steps before training starts.")


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer what a learner needs to run at all."""
    yield Component(
        kind="collector",
        name="sync",
        params=SyncParams,
        target="empo_learning.sync_collector:Sync",
        api=1,
        summary="One actor in the learner's process; a resumed run goes on exactly.",
    )


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer the evaluation of runs, and the export of what they learned."""
    yield Command(
        name="evaluate",
        help="Play what a run has computed or learned: returns, or how often humans reach goals.",
        target="empo_learning.commands:evaluate",
        api=1,
    )
    yield Command(
        name="export",
        help="Write the policy that a run has learned as an ONNX file.",
        target="empo_learning.commands:export",
        api=1,
    )
