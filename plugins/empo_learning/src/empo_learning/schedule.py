"""Numbers that change in the course of training, as pure functions of the training step."""

from __future__ import annotations

import math


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
