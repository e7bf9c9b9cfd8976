"""Stages of training and schedules of learning rates, discounts and beta_r.

The clock is the number of training steps, never that of environment steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from empo_core.types import Quantity
from empo_learning import schedule
from empo_phase2.params import QUANTITIES, Phase2Params


@dataclass(frozen=True, slots=True)
class ScheduledTheory:
    """Parameters of the theory that a schedule changes while learning.

    Attributes:
        gamma_h: The humans' discount.
        gamma_r: The robot's discount.
        beta_r: The exponent of the robot's policy.
    """

    gamma_h: float
    gamma_r: float
    beta_r: float


STAGES = (*QUANTITIES, "ramp", "full")
"""Stages in order: each quantity joins those before it, beta_r rises, nothing changes."""


class WarmUpSchedule:
    """Stages and schedules of one run, all of them functions of the training step.

    Attributes:
        stage_start: First training step of each stage of ``STAGES``. The stage of a quantity
            in closed form is empty: it starts where the next one does.
        warm_up_end: The first step with every quantity in training; from there beta_r rises.
        total_steps: Training steps of the run.
    """

    def __init__(self, params: Phase2Params) -> None:
        self._params, self.total_steps = params, params.total_steps
        lengths = {
            name: getattr(params.warm_up, name)
            for name in QUANTITIES
            if getattr(params.values, name) is not None
        } | {"ramp": params.warm_up.ramp}
        self.stage_start: dict[str, int] = {}
        start = 0
        for stage in STAGES:
            self.stage_start[stage] = start
            start += lengths.get(stage, 0)
        self.warm_up_end = self.stage_start["ramp"]
        self._learned = tuple(q for q in QUANTITIES if q in lengths)
        constant = int(params.optimiser.lr_constant_fraction * params.total_steps)
        self._lr_falls_at = max(self.stage_start["full"], constant)
        self._warm_up_gone_at = constant  # Falling rates fit newer experience only.
        phases_out = params.replay.phase_out_warm_up
        self._phases_out = not params.targets.model_based if phases_out is None else phases_out

    def stage(self, step: int) -> str:
        """The stage that a step belongs to."""
        return [name for name, start in self.stage_start.items() if start <= step][-1]

    def active(self, step: int) -> tuple[Quantity, ...]:
        """The quantities in training, in warm-up order."""
        return tuple(q for q in self._learned if self.stage_start[q] <= step)

    def beta_r(self, step: int) -> float:
        """The exponent of the robot's policy: 0 in warm-up, then rising to its full value."""
        if step < self.warm_up_end:
            return 0.0
        risen = schedule.sigmoid_ramp(step - self.warm_up_end, self._params.warm_up.ramp)
        return self._params.theory.beta_r * risen

    def gamma_h(self, step: int) -> float:
        """The humans' discount."""
        warm_up, full = self._params.warm_up, self._params.theory.gamma_h
        start = full if warm_up.gamma_h_start is None else warm_up.gamma_h_start
        return schedule.linear(step, start, full, warm_up.gamma_h_steps)

    def gamma_r(self, step: int) -> float:
        """The robot's discount."""
        warm_up, full = self._params.warm_up, self._params.theory.gamma_r
        start = full if warm_up.gamma_r_start is None else warm_up.gamma_r_start
        return schedule.linear(step - self.stage_start["q_r"], start, full, warm_up.gamma_r_steps)

    def theory(self, step: int) -> ScheduledTheory:
        """The parameters of the theory that change."""
        return ScheduledTheory(self.gamma_h(step), self.gamma_r(step), self.beta_r(step))

    def lr_progress(self, step: int) -> float:
        """The share that is over of the steps in which learning rates change; at most 1."""
        falls_at = self._lr_falls_at
        return min(max(step - falls_at, 0) / max(self.total_steps - falls_at, 1), 1.0)

    def oldest(self, step: int) -> int | None:
        """The insertion step before which transitions are not used any more; None: use all."""
        replay = self._params.replay
        limits = []
        if replay.max_age is not None:
            limits.append(step - replay.max_age)
        if self._phases_out:
            limits.append(schedule.phased_out_before(step, self.warm_up_end, self._warm_up_gone_at))
        oldest = max(limits, default=0)
        return oldest if oldest > 0 else None
