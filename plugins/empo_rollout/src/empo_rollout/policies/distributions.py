"""Distributions of actions: several categorical ones with masks, and independent normal ones.

The same as ``torch.distributions`` with much less overhead per call, which counts where a policy
acts thousands of times a second on few environments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl


class MultiCategorical(Distribution):
    """Independent choices: of one option among several, once or several times.

    Values are positions of options, ``[*batch number]``, one for each choice.

    Args:
        logits: One number per option, the options of all choices one behind the other.
        nvec: How many options each choice has.
        mask: Which options are available, laid out as ``logits``; None where all are. Where a
            choice has none at all, the agent does not act, and all count as available.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(
        self,
        logits: Float[Tensor, "*batch option"],
        nvec: Sequence[int],
        mask: Bool[Tensor, "*batch option"] | None = None,
    ) -> None:
        if logits.shape[-1] != sum(nvec):
            raise ValueError(
                f"{logits.shape[-1]} logits for choices of {list(nvec)} options, which are "
                f"{sum(nvec)} together: give one logit per option"
            )
        logits = _exact(logits)
        # Finite, since 0 * inf would make NaN of the entropy. What is padding is less likely
        # still than what is unavailable, so that a choice without any option stays clean.
        least = torch.finfo(logits.dtype).min
        if mask is not None:
            logits = logits.masked_fill(~mask, least / 2)
        self._log_probs = _by_choice(logits, nvec, least).log_softmax(-1)
        super().__init__(logits.shape[:-1], torch.Size([len(nvec)]), validate_args=False)

    def log_prob(self, value: Shaped[Tensor, "*drawn number"]) -> Float[Tensor, "*all"]:
        """Log-probability of all choices together; batch axes broadcast."""
        table, option = self._log_probs, value.long().unsqueeze(-1)
        if option.shape[:-1] != table.shape[:-1]:
            table, option = torch.broadcast_tensors(table, option)  # type: ignore[no-untyped-call]
            option = option[..., :1]
        return table.gather(-1, option).squeeze(-1).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Int[Tensor, "*drawn number"]:
        """Options drawn at random."""
        table = self._log_probs.detach()
        # The greatest of log-probabilities plus Gumbel noise is a draw.
        noise = table.new_empty((*sample_shape, *table.shape)).exponential_().log_()
        return (table - noise).argmax(-1)

    @property
    def mode(self) -> Int[Tensor, "*batch number"]:
        """The likeliest options."""
        return self._log_probs.argmax(-1)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """The entropies of all choices, added up."""
        return -(self._log_probs.exp() * self._log_probs).sum((-2, -1))


class DiagonalNormal(Distribution):
    """Independent normal distributions, one for each number.

    Args:
        mean: The means.
        log_std: Logarithms of the standard deviations; broadcasts to ``mean``.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True

    def __init__(
        self, mean: Float[Tensor, "*batch number"], log_std: Float[Tensor, "*trailing number"]
    ) -> None:
        self._mean = _exact(mean)
        self._log_std = _exact(log_std).expand_as(mean)
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)

    def log_prob(self, value: Float[Tensor, "*drawn number"]) -> Float[Tensor, "*all"]:
        """Log-density of all numbers together; batch axes broadcast."""
        deviation = (value - self._mean) * (-self._log_std).exp()
        return -(0.5 * deviation.square() + self._log_std + 0.5 * math.log(math.tau)).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Float[Tensor, "*drawn number"]:
        """DiagonalNormal drawn at random, differentiable in mean and standard deviation."""
        noise = torch.randn_like(self._mean.expand(*sample_shape, *self._mean.shape))
        return self._mean + self._log_std.exp() * noise

    def sample(self, sample_shape: Sequence[int] = ()) -> Float[Tensor, "*drawn number"]:
        """DiagonalNormal drawn at random."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    @property
    def mean(self) -> Float[Tensor, "*batch number"]:
        """The means."""
        return self._mean

    @property
    def mode(self) -> Float[Tensor, "*batch number"]:
        """The likeliest numbers: the means."""
        return self._mean

    @property
    def variance(self) -> Float[Tensor, "*batch number"]:
        """The variances."""
        return (2 * self._log_std).exp()

    def entropy(self) -> Float[Tensor, "*batch"]:
        """The entropies of all numbers, added up."""
        return (self._log_std + 0.5 * math.log(math.tau * math.e)).sum(-1)


@register_kl(MultiCategorical, MultiCategorical)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl_multi_categorical(one: MultiCategorical, other: MultiCategorical) -> Tensor:
    table = one._log_probs
    return (table.exp() * (table - other._log_probs)).sum((-2, -1))


@register_kl(DiagonalNormal, DiagonalNormal)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl_diagonal_normal(one: DiagonalNormal, other: DiagonalNormal) -> Tensor:
    wider = other._log_std - one._log_std
    distance = ((one.mean - other.mean) * (-other._log_std).exp()).square()
    return (wider + 0.5 * ((-2 * wider).exp() + distance - 1)).sum(-1)


def _exact(values: Tensor) -> Tensor:
    """In float32 at least: ratios of probabilities are differences of logarithms."""
    return values.float() if values.element_size() < 4 else values


def _by_choice(logits: Tensor, nvec: Sequence[int], padding: float) -> Tensor:
    """Logits ``[*batch number choice]``, those of shorter choices padded."""
    widest = max(nvec)
    if min(nvec) == widest:
        return logits.reshape(*logits.shape[:-1], len(nvec), widest)
    pieces = torch.split(logits, list(nvec), -1)
    padded = [
        torch.nn.functional.pad(piece, (0, widest - piece.shape[-1]), value=padding)
        for piece in pieces
    ]
    return torch.stack(padded, -2)
