"""From what a network puts out to values within bounds, and how wrong they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from empo_core.errors import ConfigError
from empo_core.types import Quantity

Space = Literal["value", "log", "z", "logit"]

FLOOR = 1e-3
"""Spaces log and z take targets of a smaller size for this: one step before the horizon Q_r is
about -1e-10, whose exact logarithm would count for more than all other values together."""

BEND = 4.0
"""Up to about this the logarithm of a size is what the network puts out; see ``log_of_raw``."""


def soft_clamp(
    x: Float[Tensor, "*batch"], low: float = 0.0, high: float = 1.0
) -> Float[Tensor, "*batch"]:
    """``x`` within the bounds; outside a curve that leaves them by less than ``high - low``.

    With R = high - low it is high + R (1 - exp(-(x - high) / R)) above and likewise below, which
    is smooth, so that gradients lead back from outside.
    """
    inside = x.clamp(low, high)
    reach, beyond = high - low, x - inside
    return inside - reach * beyond.sign() * torch.expm1(-beyond.abs() / reach)


def z_of_log(log_size: Float[Tensor, "*batch"], exponent: float) -> Float[Tensor, "*batch"]:
    """From log(-Q) to z = (-Q)^(-1 / exponent), and to 1 + log z where that is above 1.

    z lies in (0, 1] as long as Q <= -1. Closer to 0 it would explode; its logarithm goes on with
    the same slope there.
    """
    # elu(x) is exp(x) - 1 below 0 and x above.
    return 1 + functional.elu(-log_size / exponent)


def log_of_raw(raw: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The logarithm of a value's size: about ``raw`` within ``BEND`` of 0, then ever slower.

    The size, exp(BEND asinh(raw / BEND)), grows like the fourth power of ``raw``, so that no
    answer is infinite and no gradient disappears.
    """
    return BEND * torch.asinh(raw / BEND)


@dataclass(frozen=True, slots=True)
class Clamped:
    """Values in [0, 1], as the network puts them out: V_h^e. Answers are clamped, errors softly."""

    start: float = 0.5
    """Output of a fresh network."""

    def value(
        self, raw: Float[Tensor, "*batch"], unit: Tensor | float = 1.0
    ) -> Float[Tensor, "*batch"]:
        """Answers, from what the network puts out, with the gradient of the soft clamp."""
        hard = raw.clamp(0.0, 1.0)
        if not raw.requires_grad:
            return hard
        soft = soft_clamp(raw)
        return soft + (hard - soft).detach()

    def loss(
        self, raw: Float[Tensor, "*batch"], target: Float[Tensor, "*batch"],
        unit: Tensor | float = 1.0,
    ) -> Float[Tensor, "*batch"]:  # fmt: skip
        """Squared errors of outputs."""
        return (soft_clamp(raw) - target).square()


@dataclass(frozen=True, slots=True)
class Logit:
    """Values p in [0, 1], the network putting out log(p / (1 - p)): V_h^e."""

    start: float = 0.0
    """Output of a fresh network."""

    def value(
        self, raw: Float[Tensor, "*batch"], unit: Tensor | float = 1.0
    ) -> Float[Tensor, "*batch"]:
        """Answers, from what the network puts out."""
        return raw.sigmoid()

    def loss(
        self, raw: Float[Tensor, "*batch"], target: Float[Tensor, "*batch"],
        unit: Tensor | float = 1.0,
    ) -> Float[Tensor, "*batch"]:  # fmt: skip
        """The divergence t log(t / p) + (1 - t) log((1 - t) / (1 - p)) of outputs from targets t.

        Its gradient is p - t. Like the squared error's, its expectation is least where p is the
        mean of t; but there it is about (p - t)^2 / (2 t (1 - t)), so that small p are told apart.
        """
        target = target.clamp(0.0, 1.0)
        # The cross-entropy is least where p is t: there it is the entropy of t.
        cross_entropy = functional.binary_cross_entropy_with_logits(raw, target, reduction="none")
        entropy: Tensor = torch.special.entr(target) + torch.special.entr(1 - target)
        return cross_entropy - entropy


@dataclass(frozen=True, slots=True)
class Size:
    """Values of one sign, the network putting out the logarithm of their size in some unit.

    Attributes:
        sign: 1 for X_h, -1 for Q_r, V_r and U_r.
        space: In what errors are measured.
        exponent: That of z.
        start: What a fresh network puts out.
    """

    sign: int
    space: Space
    exponent: float = 1.0
    start: float = 0.0

    def value(
        self, raw: Float[Tensor, "*batch"], unit: Tensor | float = 1.0
    ) -> Float[Tensor, "*batch"]:
        """Answers, from what the network puts out."""
        return self.sign * unit * log_of_raw(raw).exp()

    def loss(
        self, raw: Float[Tensor, "*batch"], target: Float[Tensor, "*batch"],
        unit: Tensor | float = 1.0,
    ) -> Float[Tensor, "*batch"]:  # fmt: skip
        """Squared errors of outputs, in this space."""
        if self.space == "value":
            return (self.value(raw, unit) - target).square()
        log_target = (self.sign * target).clamp(min=FLOOR).log()
        log_size = log_of_raw(raw) + torch.as_tensor(unit).log()
        if self.space == "log":
            return (log_size - log_target).square()
        z = z_of_log(log_size, self.exponent)
        return (z - z_of_log(log_target, self.exponent)).square()


Scale: TypeAlias = Clamped | Logit | Size


def scale_of(quantity: Quantity, space: Space | None, exponent: float) -> Scale:
    """The scale of a quantity.

    Raises:
        ConfigError: if the quantity has no errors in that space.
    """
    spaces: tuple[Space, ...] = ("log", "value", "z")
    if quantity == "v_h_e":
        spaces = ("logit", "value")
    elif quantity == "x_h":
        spaces = ("value", "log")
    space = space or spaces[0]
    if space not in spaces:
        raise ConfigError(
            f"the errors of {quantity} cannot be measured in space {space!r}; "
            f"choose from: {', '.join(spaces)}"
        )
    if quantity == "v_h_e":
        return Logit() if space == "logit" else Clamped()
    return Size(1 if quantity == "x_h" else -1, space, exponent)
