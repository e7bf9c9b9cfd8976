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


class BestCheckpointParams(Config):
    """Parameters of callback ``best-checkpoint``: checkpoints of the best evaluations."""

    min_improvement: float = Field(0.0, ge=0, description="Smaller improvements count as none.")


class EarlyStoppingParams(BestCheckpointParams):
    """Parameters of callback ``early-stopping``: the end of a run that gets no better."""

    patience: int = Field(
        5, ge=1, description="Evaluations in a row without an improvement that end the run."
    )


class PlateauParams(BestCheckpointParams):
    """Parameters of callback ``plateau``: lower learning rates where a run gets no better."""

    patience: int = Field(
        3, ge=1, description="Evaluations in a row without an improvement that lower the rate."
    )
    factor: float = Field(0.5, gt=0, lt=1, description="Factor of the learning rate each time.")
    min_scale: float = Field(
        0.01, gt=0, le=1, description="Least share of the learning rate that is left."
    )


class ConstantParams(Config):
    """Schedule ``constant`` has no parameters."""


class EndParams(Config):
    """Parameters of schedules ``linear`` and ``cosine``: where the learning rate ends."""

    end: float = Field(0.0, ge=0, le=1000, description="Factor of the learning rate at the end.")


class InverseParams(Config):
    """Parameters of schedule ``inverse``: a learning rate that falls like 1/t."""

    end: float = Field(0.5, gt=0, le=1, description="Factor of the learning rate at the end.")
    power: float = Field(1.0, gt=0, description="Power of 1/t; 0.5 falls like 1/sqrt(t).")


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
    yield Component(
        kind="callback",
        name="early-stopping",
        params=EarlyStoppingParams,
        target="empo_learning.callbacks:EarlyStopping",
        api=1,
        summary="Ends a run whose evaluations do not get better any more.",
    )
    yield Component(
        kind="callback",
        name="best-checkpoint",
        params=BestCheckpointParams,
        target="empo_learning.callbacks:BestCheckpoint",
        api=1,
        summary="Writes a checkpoint after each evaluation that is the best so far.",
    )
    yield Component(
        kind="callback",
        name="plateau",
        params=PlateauParams,
        target="empo_learning.callbacks:Plateau",
        api=1,
        summary="Lowers the learning rate where evaluations do not get better any more.",
    )
    yield from _schedules()


def _schedules() -> Iterable[Component]:
    schedules: list[tuple[str, type[Config], str]] = [
        ("constant", ConstantParams, "The learning rate as it is."),
        ("linear", EndParams, "A learning rate that falls along a straight line."),
        ("cosine", EndParams, "A learning rate that falls along half of a cosine."),
        ("inverse", InverseParams, "A learning rate that falls like 1/t, or a power of that."),
    ]
    for name, params, summary in schedules:
        yield Component(
            kind="schedule",
            name=name,
            params=params,
            target=f"empo_learning.lr_schedules:{name.capitalize()}",
            api=1,
            summary=summary,
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
