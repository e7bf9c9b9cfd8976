"""Expected bonuses, and policies tilted by them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.types import Successors


def expected(of_item: Float[Tensor, " item"], successors: Successors) -> Float[Tensor, " pair"]:
    """The mean of something over the successors of each pair; 0 where there are none."""
    total = torch.zeros(successors.num_pairs, dtype=of_item.dtype)
    weighted = successors.prob.to(of_item.dtype) * of_item
    return total.index_add_(0, successors.segments.index, weighted)


def boosted(
    policy: Float[Tensor, "env choice"], bonus: Float[Tensor, "env choice"]
) -> Float[Tensor, "env choice"]:
    """Probabilities in proportion to policy times exp(bonus), in the policy's dtype."""
    # What has no probability has no say in how large the exponents may get.
    exponent = torch.where(policy > 0, bonus.double(), -torch.inf)
    factor = (exponent - exponent.amax(1, keepdim=True)).exp()
    product = policy * factor
    return (product / product.sum(1, keepdim=True)).to(policy.dtype)
