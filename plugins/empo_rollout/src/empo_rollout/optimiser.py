"""The optimiser of a policy, and its learning rate, as ``optimiser`` of a config says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from empo_rollout.params import OptimiserParams

Schedule = Literal["constant", "linear", "cosine"]


def build_optimiser(
    params: OptimiserParams, weights: Sequence[nn.Parameter]
) -> torch.optim.Optimizer:
    """One of ``adam``, ``adamw`` and ``sgd`` of torch; the rate is set before each step.

    ``betas`` are the two decay rates of Adam; the momentum of ``sgd`` is the first.
    ``weight_decay`` adds to the gradient, with ``adamw`` it shrinks weights directly.
    """
    lr, decay = params.lr, params.weight_decay
    if params.name == "sgd":
        return torch.optim.SGD(weights, lr, params.betas[0], weight_decay=decay, fused=True)
    kind = torch.optim.AdamW if params.name == "adamw" else torch.optim.Adam
    return kind(weights, lr, params.betas, params.eps, decay, fused=True)


def learning_rate(
    base: float, schedule: Schedule, progress: float, *, step: int = 0, warm_up: int = 0
) -> float:
    """The rate of one step of the optimiser.

    It is ``base * w * s``: ``w = min(1, (step + 1) / warm_up)`` rises from the first step to the
    last of the warm-up, and ``s`` falls from 1 to 0 over the run, as ``1 - p`` (linear) or
    ``(1 + cos(pi * p)) / 2`` (cosine).

    Args:
        base: The rate without schedule and warm-up.
        schedule: How it falls over the run, if it does.
        progress: How much of the run is over (p); cut to [0, 1].
        step: Steps of the optimiser so far.
        warm_up: Steps of the optimiser in which it rises; 0: none.
    """
    done = min(max(progress, 0.0), 1.0)
    falling = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }
    rising = min(1.0, (step + 1) / warm_up) if warm_up > 0 else 1.0
    return base * rising * falling[schedule]
