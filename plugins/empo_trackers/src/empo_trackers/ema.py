"""An exponential moving average of numbers that come one by one or many at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from empo_trackers.accumulators import Accumulators
from empo_trackers.checks import Real, tensor_of

_LOG_ZERO = -1e4
"""Stands for log 0: its multiples vanish under exp, and no multiple of it is NaN."""


class EMATracker(Accumulators):
    """The average ``ema = decay * ema + (1 - decay) * value``, which starts at 0.

    Because it starts at 0, it is too small at first: after ``N`` updates the values weigh
    ``1 - decay**N`` together. ``bias_correction`` has ``value`` divide by that.

    Attributes:
        ema: The average as the formula has it.
        N: How many updates there were.
    """

    ema: Float[Tensor, ""]
    N: Int64[Tensor, ""]

    def __init__(
        self,
        decay: Real,
        device: torch.device | str | None = None,
        *,
        bias_correction: bool = False,
        disable: bool = False,
    ) -> None:
        """Begin with 0.

        Args:
            decay: What remains of the old average with each update, in [0, 1).
            device: Where the average is kept; the CPU by default.
            bias_correction: Whether ``value`` makes up for the start at 0.
            disable: Whether to keep nothing and do nothing.
        """
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay is {decay}; it must be at least 0 and less than 1")
        self.decay = float(decay)
        self.bias_correction = bias_correction
        self.disable = disable
        self._log_decay = math.log(decay) if decay > 0 else _LOG_ZERO
        if not disable:
            self.register_buffer("ema", torch.zeros((), dtype=torch.float32, device=device))
            self.register_buffer("N", torch.zeros((), dtype=torch.int64, device=device))

    @property
    def value(self) -> float:
        """The average; corrected if asked for, and 0 before any update."""
        if self.disable:
            return 0.0
        average = float(self.ema)
        if not self.bias_correction:
            return average
        updates = int(self.N)
        # 1 - decay**N, without cancellation where decay is close to 1.
        return average / -math.expm1(updates * self._log_decay) if updates else 0.0

    def update(self, value: Shaped[Tensor, "*batch"] | Real) -> None:
        """Take in one number."""
        if self.disable:
            return
        number = tensor_of(value, "value").to(self.ema)
        if number.numel() != 1:
            raise ValueError(f"value must be one number, got shape {tuple(number.shape)}")
        self.ema.lerp_(number.reshape(()), 1 - self.decay)
        self.N.add_(1)

    def update_mean(
        self, values: Shaped[Tensor, " item"], mask: Bool[Tensor, " item"] | None = None
    ) -> None:
        """Take in the mean of several numbers, as if it were one; of none, do nothing.

        Args:
            values: The numbers.
            mask: Which of them count; all by default. With a mask nothing waits for the device.
        """
        if self.disable:
            return
        if mask is None:
            if len(values):
                self.ema.lerp_(values.to(self.ema.dtype).mean(), 1 - self.decay)
                self.N.add_(1)
            return
        count = mask.sum()
        mean = _only(values.to(self.ema.dtype), mask).sum() / count.clamp(min=1)
        new = self.ema.lerp(mean, 1 - self.decay)
        self.ema.copy_(torch.where(count > 0, new, self.ema))
        self.N.add_(count > 0)

    def update_each(
        self, values: Shaped[Tensor, " item"], mask: Bool[Tensor, " item"] | None = None
    ) -> None:
        """Take in several numbers one after the other, in closed form.

        ``ema = decay**k * ema + (1 - decay) * sum_j decay**(k-1-j) * values[j]`` for j in 0..k-1.

        Args:
            values: The numbers, the oldest first.
            mask: Which of them count; all by default. With a mask nothing waits for the device.
        """
        if self.disable:
            return
        numbers = values.to(self.ema.dtype)
        count: Tensor | int
        if mask is None:
            count = len(numbers)
            later = torch.arange(count - 1, -1, -1, device=numbers.device)
            remains: Tensor | float = math.exp(count * self._log_decay)
            weights = torch.exp(later * self._log_decay)
        else:
            count = mask.sum()
            later = count - mask.cumsum(0)
            remains = torch.exp(count * self._log_decay)
            weights = _only(torch.exp(later * self._log_decay), mask)
            numbers = _only(numbers, mask)
        self.ema.mul_(remains).add_((weights * numbers).sum(), alpha=1 - self.decay)
        self.N.add_(count)

    def update_few(self, numbers: Sequence[float], *, one_by_one: bool) -> None:
        """Do as ``update_each``, or else ``update_mean``, for an average on the CPU.

        As long as numbers are few, to start an operation on tensors takes longer than all of this.
        """
        if self.disable or not numbers:
            return
        average, updates = self._array("ema"), self._array("N")
        new = numbers if one_by_one else [sum(numbers) / len(numbers)]
        now = float(average)
        for number in new:
            now = self.decay * now + (1 - self.decay) * number
        average[()] = now
        updates[()] += len(new)

    def extra_repr(self) -> str:
        """The settings."""
        extras = {"bias_correction": self.bias_correction, "disable": self.disable}
        return ", ".join([f"decay={self.decay}", *(name for name, on in extras.items() if on)])


def _only(values: Float[Tensor, " item"], mask: Bool[Tensor, " item"]) -> Float[Tensor, " item"]:
    """The values, with 0 wherever the mask is False, also in place of NaN."""
    return torch.where(mask, values, 0)
