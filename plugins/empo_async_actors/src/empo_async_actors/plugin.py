"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from empo_core import Component, Config, hookimpl
from empo_core.config import ExecutorRef


class AsyncParams(Config):
    """Number of actors, how far they run ahead, and what becomes of one that fails."""

    actors: int = Field(1, ge=1, le=256, description="Actor processes.")
    executor: ExecutorRef = Field(
        default_factory=lambda: ExecutorRef.model_validate("local"),
        description="Executor of the actors.",
    )
    min_env_steps: int = Field(
        1000, ge=1, description="Environment steps to collect before training starts."
    )
    max_env_steps_per_training_step: float | None = Field(
        10.0, gt=0,
        description="Actors pause beyond this many environment steps per training step "
        "(and min_env_steps); null never pauses them for that.",
    )  # fmt: skip
    queue_size: int = Field(
        10_000, ge=1,
        description="Actors pause while this many environment steps wait for the learner.",
    )  # fmt: skip
    heartbeat_s: float = Field(
        60.0, gt=0,
        description="An actor without a sign of life for so long is replaced; must exceed the "
        "longest that one round of environment steps takes.",
    )  # fmt: skip
    start_timeout_s: float = Field(
        300.0, gt=0, description="The same while an actor is built and in its first round."
    )
    stall_timeout_s: float = Field(
        600.0, gt=0,
        description="The run ends where actors may act, and none has brought anything for so long.",
    )  # fmt: skip
    max_restarts: int = Field(
        5, ge=0,
        description="Replacements of one actor within a minute, or in a row without experience; "
        "after that it is given up.",
    )  # fmt: skip


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one collector."""
    yield Component(
        kind="collector",
        name="async",
        params=AsyncParams,
        target="empo_async_actors.collector:AsyncCollector",
        api=1,
        summary="Actors in processes of their own, beside the learner; replaces those that fail.",
    )
