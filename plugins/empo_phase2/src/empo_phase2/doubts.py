"""Warnings about what was learned, as far as faults can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from empo_core.types import Quantity
from empo_phase2.blind_spots import blind_spots
from empo_phase2.compare import Comparison
from empo_phase2.learner import Learner
from empo_phase2.targets import BatchTargets

WORST_MISFIT = 0.25
"""Distance from targets, relative to their size, above which nothing was learned yet."""

WORST_GAP = 0.1
"""Error of V_r at the start, relative to the right value, above which results are wrong."""


def doubts(
    learner: Learner, comparison: Comparison | None, describe: Callable[[Tensor], str]
) -> Iterator[str]:
    """Quantities far from their targets, a wrong value at the start, and blind spots.

    Args:
        learner: The learner at the end of its run.
        comparison: Its comparisons with the right values, if there were any.
        describe: Shows a state row.
    """
    # Samples scatter around what is learned, however well it is.
    if learner.targets is not None and learner.is_exact:
        for quantity in learner.fits:
            misfit = misfit_of(learner, quantity, learner.targets)
            if misfit > WORST_MISFIT:
                yield (
                    f"{quantity} is still off its targets by {misfit:.0%} on average, so "
                    "results mean little: train longer (algorithm.params.total_steps), or "
                    "raise or leave out algorithm.params.optimiser.lr"
                )
    if comparison is not None and comparison.history:
        off = comparison.history[-1][1]["Compare/V_r_root_rel"]
        if off > WORST_GAP:
            yield (
                f"V_r at the start is {off:.0%} off the right value: train longer "
                "(algorithm.params.total_steps)"
            )
    if len(learner.replay):
        spots = blind_spots(
            learner.replay, learner.entered, learner.quantities, learner.replay.device
        )
        if warning := spots.warning(learner.quantities.spec, describe):
            yield warning


@torch.no_grad()
def misfit_of(learner: Learner, quantity: Quantity, targets: BatchTargets) -> float:
    """Mean distance of a quantity from its targets in a batch, relative to their mean size."""
    query, target, weight = learner.regression_batch(quantity, targets)
    away = (learner.networks[quantity](query) - target).abs()
    size = torch.where(weight > 0, target.abs() * weight, 0.0).sum()
    return float(torch.where(weight > 0, away * weight, 0.0).sum() / size.clamp(min=1e-12))
