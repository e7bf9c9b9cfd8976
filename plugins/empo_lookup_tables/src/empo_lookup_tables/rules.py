"""Update rules of entries, given the mean of their targets in a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class UniqueEntries:
    """The values that a batch is about, each once.

    Attributes:
        lines: Where they are.
        value: What they are.
        mean: The weighted mean of their targets in the batch; the value where there is none.
        weight: The total weight of these; 0 where there is none.
        count: The total weight of all targets so far, these included.
        gradient: Of the weighted mean of the squared errors.
        norm: Its length.
    """

    lines: Int[Tensor, " line"]
    value: Float[Tensor, "line output"]
    mean: Float[Tensor, "line output"]
    weight: Float[Tensor, "line output"]
    count: Float[Tensor, "line output"]
    gradient: Float[Tensor, "line output"]
    norm: float


class RunningMean:
    """The mean of all targets so far, or one that forgets: ``v + max(w/W, min_rate) (t - v)``.

    ``w`` is the weight of the new targets ``t``, ``W`` that of all so far.
    """

    def __init__(self, min_rate: float, weight_decay: float) -> None:
        if weight_decay:
            raise ConfigError(
                f"weight_decay {weight_decay:g} has no meaning for a table of running means: set "
                "it to 0, or give the table rule 'step' or 'adam'"
            )
        self.moments: dict[str, Tensor] = {}
        self._min_rate = min_rate

    def __call__(self, entries: UniqueEntries, lr: float) -> Float[Tensor, "line output"]:
        """The new values."""
        rate = entries.weight / entries.count
        # lerp is exact at both ends: the first target itself, not a rounding error beside it.
        return entries.value.lerp(entries.mean, rate.clamp(min=self._min_rate))

    def shares(self, lr: float) -> tuple[float, float, float]:
        """``share``, ``min_share`` and ``decay`` of ``kernels.Rates``, for compiled loops."""
        return -1.0, self._min_rate, 0.0


class Step:
    """A step towards the mean of the batch: ``v + lr (t - v - weight_decay (v - default))``."""

    def __init__(self, default: float, weight_decay: float) -> None:
        self.moments: dict[str, Tensor] = {}
        self._default = default
        self._weight_decay = weight_decay

    def __call__(self, entries: UniqueEntries, lr: float) -> Float[Tensor, "line output"]:
        """The new values."""
        # Where the rate is 1, lerp gives the target itself, without a rounding error.
        new = entries.value.lerp(entries.mean, lr)
        if self._weight_decay:
            new -= lr * self._weight_decay * (entries.value - self._default)
        return new

    def shares(self, lr: float) -> tuple[float, float, float]:
        """``share``, ``min_share`` and ``decay`` of ``kernels.Rates``, for compiled loops."""
        return lr, 0.0, lr * self._weight_decay


class Adam:
    """Adam as in ``torch.optim.Adam``, with moments and a step count for each value.

    Moments stand still while a value is not asked about, as in ``torch.optim.SparseAdam``; there
    the step count is that of the whole tensor, so that late entries start with tiny steps.
    Weight decay is decoupled (AdamW).
    """

    def __init__(self, default: float, weight_decay: float, max_grad_norm: float | None) -> None:
        self.moments = {name: torch.zeros(0, 1) for name in ("mean", "square", "steps")}
        self._default = default
        self._weight_decay = weight_decay
        self._max_norm = max_grad_norm

    def __call__(self, entries: UniqueEntries, lr: float) -> Float[Tensor, "line output"]:
        """The new values; the moments move along."""
        has_weight = entries.weight > 0
        gradient = entries.gradient * cut(entries.norm, self._max_norm)
        old = {name: moment.index_select(0, entries.lines) for name, moment in self.moments.items()}
        steps = old["steps"] + 1
        mean = old["mean"].lerp(gradient, 1 - BETAS[0])
        square = old["square"].lerp(gradient.square(), 1 - BETAS[1])
        for name, new in (("mean", mean), ("square", square), ("steps", steps)):
            self.moments[name].index_copy_(
                0, entries.lines, torch.where(has_weight, new, old[name])
            )
        unbiased = square / (1 - BETAS[1] ** steps)
        step = mean / (1 - BETAS[0] ** steps) / (unbiased.sqrt() + EPSILON)
        return entries.value - lr * (step + self._weight_decay * (entries.value - self._default))


BETAS = (0.9, 0.999)
"""Decay of Adam's moments, as usual."""
EPSILON = 1e-8
"""Keeps Adam's steps finite where gradients vanish."""

Rule = RunningMean | Step | Adam


def cut(norm: float, longest: float | None) -> float:
    """The factor that makes a gradient of this norm no longer than allowed."""
    return 1.0 if longest is None or norm <= longest else longest / norm


def grown(rows: Float[Tensor, "line output"], number: int) -> Float[Tensor, "{number} output"]:
    """The rows, followed by zeros up to the given number of rows."""
    longer = rows.new_zeros(number, rows.shape[1])
    longer[: len(rows)] = rows
    return longer
