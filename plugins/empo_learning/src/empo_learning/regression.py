"""Fitting value networks to targets by gradient descent."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.trees import StateDict
from empo_core.types import Fit, ValueQuery
from empo_learning.finite import check_finite
from empo_learning.optimiser_moments import load_moments, moments_of


class GradientRegression:
    """Adam (AMSGrad) on the weighted mean of squared errors, sum(w * e^2) / sum(w)."""

    def __init__(
        self, network: ValueNetwork, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        """Fit a network from now on.

        Args:
            network: What to fit; it must stay on its device.
            weight_decay: Adds so much of each weight to its gradient, after that is cut.
            max_grad_norm: Longer gradients are cut to this length; None cuts none.

        Raises:
            ValueError: if the network has nothing to train.
        """
        self._network = network
        self._max_norm = max_grad_norm
        self._parameters = [
            parameter for parameter in network.parameters() if parameter.requires_grad
        ]
        if not self._parameters:
            raise ValueError(f"the network of {network.quantity} has no parameters to train")
        fused = all(
            parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point()
            for parameter in self._parameters
        )
        # A rate is given with every step; this one is never used. The largest second moment so far
        # keeps steps from growing where errors shrink for a while.
        self._adam = torch.optim.Adam(
            self._parameters, lr=0.0, weight_decay=weight_decay, amsgrad=True, fused=fused
        )

    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """Take one step of Adam; where all weights are 0 nothing changes and the loss is 0.

        Raises:
            NonFiniteError: if the loss, the gradient or a moment is not finite; the network is
                unchanged.
        """
        try:
            with torch.enable_grad():
                # Zero where the weight is: a target that is not to be read may be NaN.
                error = torch.where(weight > 0, self._network(query) - target, 0.0)
                total = weight.sum()
                loss = (weight * error.square()).sum() / torch.where(total == 0, 1.0, total)
                loss.backward()  # type: ignore[no-untyped-call]
            gradients = [
                parameter.grad for parameter in self._parameters if parameter.grad is not None
            ]
            norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
            moments = sum_of_moments(self._adam, norm)
            numbers = torch.stack([total.detach(), loss.detach(), norm, moments]).tolist()
            if numbers[0] == 0:
                return Fit(torch.zeros_like(norm), torch.zeros_like(norm))
            self._check(*numbers[1:])
            if self._max_norm is not None and numbers[2] > self._max_norm:
                torch.nn.utils.clip_grads_with_norm_(
                    self._parameters, self._max_norm, norm, foreach=True
                )
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
            return Fit(loss.detach(), norm)
        finally:
            self._adam.zero_grad(set_to_none=True)

    def default_lr(self, *, sampled: bool) -> float:
        """The usual rate of Adam, for networks of any kind."""
        return 1e-3

    def state_dict(self) -> StateDict:
        """Adam's step and moments of each parameter, by its number."""
        return moments_of(self._adam)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            KeyError: if a moment is missing.
            StorageError: if the moments belong to a network of other parameters.
        """
        load_moments(self._adam, state_dict)

    def _check(self, loss: float, norm: float, moments: float) -> None:
        numbers = {"optimiser's moments": moments, "loss": loss, "gradient": norm}
        if not abs(loss) < float("inf"):
            name = self._network.quantity
            weights = {f"{name}.{key}": t for key, t in self._network.state_dict().items()}
            check_finite(weights, "a weight")
        for quantity_name, value in numbers.items():
            if not abs(value) < float("inf"):
                raise NonFiniteError(
                    f"the {quantity_name} of {self._network.quantity} is not finite ({value})"
                )


def sum_of_moments(optimiser: torch.optim.Optimizer, like: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The sum of all numbers that an optimiser remembers, finite only where they all are."""
    sums = [
        moment.sum().to(like)
        for state in optimiser.state.values()
        for moment in state.values()
        if moment.is_floating_point()
    ]
    return torch.stack(sums).sum() if sums else torch.zeros_like(like)


def regression_of(
    network: ValueNetwork, *, weight_decay: float, max_grad_norm: float | None
) -> Regression:
    """The network's own regression, or gradient descent where it has none."""
    regression = network.regression(weight_decay=weight_decay, max_grad_norm=max_grad_norm)
    if regression is not None:
        return regression
    return GradientRegression(network, weight_decay=weight_decay, max_grad_norm=max_grad_norm)
