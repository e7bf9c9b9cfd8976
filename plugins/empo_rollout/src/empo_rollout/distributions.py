"""Distributions of actions: several categorical choices with masks, and independent normals.

The same as ``torch.distributions`` with much less overhead per call, which counts where a policy
acts thousands of times a second on few environments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from empo_core.protocols.environments import ActionSpec
from empo_learning.distributions import BoundedNormal

UNBOUNDED = 1e9
"""Bounds of actions from this on stand for none, e.g. MuJoCo's 1e10."""


def unavailable(dtype: torch.dtype) -> float:
    """Logit of an option that is masked; finite, since 0 * inf would make NaN of the entropy."""
    return torch.finfo(dtype).min / 2


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
        # In float32 at least: ratios of probabilities are differences of logarithms.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if mask is not None:
            logits = logits.masked_fill(~mask, unavailable(logits.dtype))
        # What is padding is less likely still than what is unavailable, so that a choice without
        # any option stays clean.
        smallest = torch.finfo(logits.dtype).min
        self._log_probs = _by_choice(logits, nvec, smallest).log_softmax(-1)
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
    def log_probs(self) -> Float[Tensor, "*batch number choice"]:
        """Log-probabilities of the options of each choice; shorter choices are padded."""
        return self._log_probs

    @property
    def mode(self) -> Int[Tensor, "*batch number"]:
        """The likeliest options."""
        return self._log_probs.argmax(-1)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """The entropies of all choices, added up."""
        return -(self._log_probs.exp() * self._log_probs).sum((-2, -1))


@dataclass(frozen=True, slots=True)
class ActionMap:
    """The affine map from outputs of networks to actions: ``action = centre + half * output``.

    -1 and 1 go to the bounds of a number that has two finite ones; other numbers stay as they are.

    Attributes:
        centre: Middle of the bounds of each number.
        half: Half their distance, greater than 0.
    """

    centre: Float[Tensor, " number"]
    half: Float[Tensor, " number"]

    @classmethod
    def to_bounds(cls, actions: ActionSpec) -> ActionMap | None:
        """The map to these bounds; None where it changes nothing."""
        pairs = [
            ((low + high) / 2, (high - low) / 2 or 1.0)
            if low > -UNBOUNDED and high < UNBOUNDED
            else (0.0, 1.0)
            for low, high in zip(actions.low, actions.high, strict=True)
        ]
        if all(pair == (0.0, 1.0) for pair in pairs):
            return None
        # The device is named, for policies are built on device ``meta``.
        return cls(*torch.tensor(pairs, dtype=torch.float32, device="cpu").unbind(1))

    def to(self, device: torch.device) -> ActionMap:
        """The same map on a device."""
        return (
            self
            if self.half.device == device
            else ActionMap(self.centre.to(device), self.half.to(device))
        )


def diagonal_normal(
    mean: Float[Tensor, "*batch number"],
    log_std: Float[Tensor, "*trailing number"],
    action_map: ActionMap | None = None,
) -> BoundedNormal:
    """Independent normal numbers, whose density and entropy are those before environments clip.

    ``log_std``, logarithms of standard deviations, broadcasts to ``mean``. Where there is an
    ``action_map``, actions are the mapped numbers, and densities those of actions.
    """
    # In float32 at least, as above.
    mean, log_std = (
        part.to(torch.promote_types(part.dtype, torch.float32)) for part in (mean, log_std)
    )
    if action_map is not None:
        mean = action_map.centre + action_map.half * mean
        log_std = log_std + action_map.half.log()
    return BoundedNormal(mean, log_std.expand_as(mean), bound="clip")


def missed_bounds(actions: ActionSpec, log_std: float) -> list[int]:
    """Positions of numbers whose bounds an untrained policy hardly ever reaches.

    Its outputs have mean 0, so these are the bounds that ``centre +- 2 * half * exp(log_std)``
    misses.
    """
    action_map = ActionMap.to_bounds(actions)
    reach = 2 * math.exp(log_std)
    missed = []
    for i, (low, high) in enumerate(zip(actions.low, actions.high, strict=True)):
        centre, half = (
            (0.0, 1.0)
            if action_map is None
            else (float(action_map.centre[i]), float(action_map.half[i]))
        )
        if centre + reach * half < low or centre - reach * half > high:
            missed.append(i)
    return missed


@register_kl(MultiCategorical, MultiCategorical)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl_multi_categorical(p: MultiCategorical, q: MultiCategorical) -> Tensor:
    table = p._log_probs
    return (table.exp() * (table - q._log_probs)).sum((-2, -1))


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
