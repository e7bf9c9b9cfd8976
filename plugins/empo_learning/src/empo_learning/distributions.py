"""Normal distributions of actions, measured before the actions are bounded."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

Bound = Literal["tanh", "clip"]
"""Squashing functions from unbounded numbers to actions in [-1, 1]."""

HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


class BoundedNormal(Distribution):
    """Actions in [-1, 1] that come from independent normal numbers ``u``.

    Everything is measured at ``u``, the number before it is bounded: ``rsample`` returns it,
    ``log_prob`` takes it, ``bounded`` makes an action of it. So no inverse is ever needed, and
    the log-probability of a constant ``u`` has the right gradient in the distribution's
    parameters (the score), however far out the action is.

    With bound ``tanh``, ``log_prob(u)`` is the log-density of the action ``tanh(u)``; with
    ``clip``, that of ``u`` itself: a diagonal normal distribution, which also serves where others
    bound ``u``. Actions that are not active are 0 and count for nothing.

    Attributes:
        num_active: Number of an action's dimensions that are active.
    """

    num_active: Float[Tensor, "*#batch"] | int

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Float[Tensor, "*batch action"],
        log_std: Float[Tensor, "*#batch action"],
        *,
        bound: Bound = "tanh",
        active: Bool[Tensor, "*#batch action"] | None = None,
    ) -> None:
        """Take the parameters.

        Args:
            loc: Mean of ``u``.
            log_std: Logarithm of its standard deviation.
            bound: How it becomes an action.
            active: Which numbers are used; None: all.
        """
        self.num_active = loc.shape[-1]
        if active is not None:
            loc, self.num_active = loc.masked_fill(~active, 0.0), active.sum(-1).to(loc)
        self.loc, self.log_std, self.bound, self.active = loc, log_std, bound, active
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def scale(self) -> Float[Tensor, "*batch action"]:
        """Standard deviation of ``u``; 0 where it is not active."""
        scale = self.log_std.exp()
        return scale if self.active is None else scale.masked_fill(~self.active, 0.0)

    @property
    def mean(self) -> Float[Tensor, "*batch action"]:
        """Mean of ``u``."""
        return self.loc

    @property
    def mode(self) -> Float[Tensor, "*batch action"]:
        """The likeliest ``u``."""
        return self.loc

    @property
    def variance(self) -> Float[Tensor, "*batch action"]:
        """Variance of ``u``."""
        return self.scale.square()

    def rsample(self, sample_shape: Any = ()) -> Float[Tensor, "*sample action"]:
        """Draw ``u``, differentiable in the parameters."""
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise

    def bounded(self, u: Float[Tensor, "*sample action"]) -> Float[Tensor, "*sample action"]:
        """The action that ``u`` becomes."""
        action = u.tanh() if self.bound == "tanh" else u.clamp(-1, 1)
        return action if self.active is None else action.masked_fill(~self.active, 0.0)

    def log_prob(self, value: Float[Tensor, "*sample action"]) -> Float[Tensor, "*sample"]:
        """Log-density at ``u = value``, summed over active numbers."""
        offset = (value - self.loc) * torch.exp(-self.log_std)
        density = -0.5 * offset.square() - self.log_std - HALF_LOG_2_PI
        if self.bound == "tanh":
            density = density - log_one_minus_tanh_squared(value)
        return self._summed(density)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """That of ``u``, before it is bounded: the entropy of the action has no closed form.

        Its gradient in the mean is 0: unlike the action's entropy, it does not pull away from
        the bounds.
        """
        return self._summed(self.log_std + (0.5 + HALF_LOG_2_PI))

    def expand(self, batch_shape: Any, _instance: Any = None) -> BoundedNormal:
        """The same for a larger batch."""
        shape = torch.Size(batch_shape) + self.event_shape
        return type(self)(
            self.loc.expand(shape),
            self.log_std.expand(shape),
            bound=self.bound,
            active=None if self.active is None else self.active.expand(shape),
        )

    def _summed(self, terms: Float[Tensor, "*sample action"]) -> Float[Tensor, "*sample"]:
        if self.active is not None:
            terms = terms.masked_fill(~self.active, 0.0)
        return terms.sum(-1)


@register_kl(BoundedNormal, BoundedNormal)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl(p: BoundedNormal, q: BoundedNormal) -> Float[Tensor, "*batch"]:
    """``KL(p || q)`` of ``u``."""
    wider = q.log_std - p.log_std
    distance = ((p.loc - q.loc) * torch.exp(-q.log_std)).square()
    return p._summed(wider + 0.5 * ((-2 * wider).exp() + distance - 1))


def compute_action_log_prob(
    action: Float[Tensor, "*sample action"],
    mu: Float[Tensor, "*#sample action"],
    log_std: Float[Tensor, "*#sample action"],
    clamp_bound: float = 0.9999,
) -> Float[Tensor, "*sample 1"]:
    """Log-density of actions in [-1, 1] that come from elsewhere, under a squashed policy.

    For actions that the policy drew itself, ``BoundedNormal.log_prob`` of the number before
    ``tanh`` is exact. An action alone has to be inverted, and at the bounds there is no inverse.

    Args:
        action: Actions; they are constants, so that the gradient in the parameters is the score.
        mu: Mean before ``tanh``.
        log_std: Logarithm of the standard deviation before ``tanh``.
        clamp_bound: Actions beyond this count as this, below 1.
    """
    u = action.detach().clamp(-clamp_bound, clamp_bound).atanh()
    return BoundedNormal(mu, log_std).log_prob(u).unsqueeze(-1)


def log_one_minus_tanh_squared(u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``log(1 - tanh(u)^2)``, exact however large ``u`` is."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))
