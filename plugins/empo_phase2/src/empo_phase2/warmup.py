"""Stages of training and schedules of learning rates, discounts and beta_r.

The clock is the number of training steps, never that of environment steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from empo_core.types import Quantity
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


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the schedules say of one training step.

    Attributes:
        stage: The stage of ``STAGES`` that it belongs to.
        active: The quantities in training, in warm-up order.
        current: The parameters of the theory that change, as they are now.
        lr_progress: The share that is over of the steps in which learning rates change; at most 1.
        oldest: The training step before which transitions came that are not used any more; None:
            all are used.
    """

    stage: str
    active: tuple[Quantity, ...]
    current: ScheduledTheory
    lr_progress: float
    oldest: int | None


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

    def at(self, step: int) -> StepPlan:
        """The stage and all schedules at a training step.

        beta_r is 0 in warm-up and rises after it. Discounts rise from the first training step of
        the quantity that they discount: V_h^e, which is the first of all, and Q_r.
        """
        warm_up, theory, replay = self._params.warm_up, self._params.theory, self._params.replay
        starts = self.stage_start
        beta_r = 0.0
        if step >= self.warm_up_end:
            risen = sigmoid_ramp(step - self.warm_up_end, warm_up.ramp)
            beta_r = theory.beta_r * risen
        gamma_h, gamma_r = theory.gamma_h, theory.gamma_r
        if warm_up.gamma_h_start is not None:
            start, steps = warm_up.gamma_h_start, warm_up.gamma_h_steps
            gamma_h = linear(step, start, gamma_h, steps)
        if warm_up.gamma_r_start is not None:
            start, steps = warm_up.gamma_r_start, warm_up.gamma_r_steps
            gamma_r = linear(step - starts["q_r"], start, gamma_r, steps)
        oldest = 0 if replay.max_age is None else step - replay.max_age
        if self._phases_out:
            begin, end = self.warm_up_end, self._warm_up_gone_at
            oldest = max(oldest, phased_out_before(step, begin, end))
        falls_at = self._lr_falls_at
        return StepPlan(
            stage=[name for name, start in starts.items() if start <= step][-1],
            active=tuple(quantity for quantity in self._learned if starts[quantity] <= step),
            current=ScheduledTheory(gamma_h, gamma_r, beta_r),
            lr_progress=min(max(step - falls_at, 0) / max(self.total_steps - falls_at, 1), 1.0),
            oldest=oldest if oldest > 0 else None,
        )


def linear(step: float, start: float, end: float, steps: float) -> float:
    """From ``start`` at step 0 straight to ``end`` at ``steps``, and constant before and after.

    Where ``steps`` is 0 or less it is ``end`` throughout.
    """
    if steps <= 0 or step >= steps:
        return end
    return start + (end - start) * max(step, 0) / steps


def sigmoid_ramp(step: float, steps: float) -> float:
    """From 0 at step 0 to 1 at ``steps`` along the middle of a sigmoid, from -3 to 3.

    Where ``steps`` is 0 or less it is 1 throughout.
    """
    if steps <= 0 or step >= steps:
        return 1.0
    low, high = _sigmoid(-3), _sigmoid(3)
    return max((_sigmoid(6 * (step / steps - 0.5)) - low) / (high - low), 0.0)


def phased_out_before(step: int, warm_up_end: int, final: int) -> int:
    """The training step of the oldest experience to learn from.

    What was collected during warm-up is phased out, oldest first, between the end of the
    warm-up and ``final``, and never used again: the limit stays where it is for ever after.

    Args:
        step: Training steps so far.
        warm_up_end: The step at which the warm-up ended.
        final: The step from which on nothing of the warm-up is used.
    """
    if step < warm_up_end:
        return 0
    if step >= final:
        return warm_up_end
    return warm_up_end * (step - warm_up_end) // (final - warm_up_end)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
