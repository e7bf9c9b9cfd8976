"""An exponential moving average of numbers that come one by one or many at once."""

from __future__ import annotations

import math

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
            device: Device of the average; the CPU by default.
            bias_correction: Whether ``value`` makes up for the start at 0.
            disable: Whether to store nothing and do nothing.
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
        """Add one number."""
        if self.disable:
            return
        number = tensor_of(value, "value").to(self.ema)
        if number.numel() != 1:
            raise ValueError(f"value must be one number, got shape {tuple(number.shape)}")
        self.update_mean(number.reshape(1))

    def update_mean(
        self, values: Shaped[Tensor, " item"], mask: Bool[Tensor, " item"] | None = None
    ) -> None:
        """Add the mean of several numbers as one number; no number changes nothing.

        Args:
            values: The numbers.
            mask: Which of them count; all by default. Nothing waits for the device.
        """
        if self.disable:
            return
        values, mask = self._masked(values, mask)
        count = mask.sum()
        new = self.ema.lerp(values.sum() / count.clamp(min=1), 1 - self.decay)
        self.ema.copy_(torch.where(count > 0, new, self.ema))
        self.N.add_(count > 0)

    def update_each(
        self, values: Shaped[Tensor, " item"], mask: Bool[Tensor, " item"] | None = None
    ) -> None:
        """Add several numbers one after the other, in closed form.

        ``ema = decay**k * ema + (1 - decay) * sum_j decay**(k-1-j) * values[j]`` for j in 0..k-1.

        Args:
            values: The numbers, the oldest first.
            mask: Which of them count; all by default. Nothing waits for the device.
        """
        if self.disable:
            return
        values, mask = self._masked(values, mask)
        count = mask.sum()
        weights = torch.exp((count - mask.cumsum(0)) * self._log_decay)
        self.ema.mul_(torch.exp(count * self._log_decay))
        self.ema.add_(torch.where(mask, weights * values, 0).sum(), alpha=1 - self.decay)
        self.N.add_(count)

    def _masked(
        self, values: Shaped[Tensor, " item"], mask: Bool[Tensor, " item"] | None
    ) -> tuple[Float[Tensor, " item"], Bool[Tensor, " item"]]:
        """The values as float32, 0 where the mask is False, and the mask."""
        values = values.to(self.ema.dtype)
        if mask is None:
            return values, torch.ones_like(values, dtype=torch.bool)
        return torch.where(mask, values, 0), mask

    def extra_repr(self) -> str:
        """The settings."""
        extras = {"bias_correction": self.bias_correction, "disable": self.disable}
        return ", ".join([f"decay={self.decay}", *(name for name, on in extras.items() if on)])
