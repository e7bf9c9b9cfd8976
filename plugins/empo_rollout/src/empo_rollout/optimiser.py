"""The optimiser of a policy, as ``optimiser`` of a config says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from empo_rollout.params import OptimiserParams


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
