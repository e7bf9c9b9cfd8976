"""The optimiser of a policy, as ``optimiser`` of a config says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

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


def flat_weights(
    policy: nn.Module,
) -> tuple[Float[nn.Parameter, " weight"], Float[Tensor, " weight"]]:
    """All weights of a policy that learn as views of one vector, and of their gradients another.

    So an optimiser takes one step for all of them. The gradients are zeros.
    """
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    flat = nn.Parameter(parameters_to_vector(weights).detach())
    flat.grad = gradient = torch.zeros_like(flat)
    vector_to_parameters(flat.detach(), weights)
    pieces = torch.split(gradient, [weight.numel() for weight in weights])
    for weight, piece in zip(weights, pieces, strict=True):
        weight.grad = piece.view_as(weight)
    return flat, gradient
