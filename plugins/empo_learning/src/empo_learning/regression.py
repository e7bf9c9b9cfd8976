"""Fitting value networks to targets by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.trees import StateDict, whole_number
from empo_core.types import Fit, ValueQuery
from empo_learning.optimiser_moments import load_moments, moments_of

Loss = Callable[[ValueQuery, Tensor], Tensor]
"""From questions and targets ``[query output]`` to the loss of each answer ``[query output]``."""

FORGETTING, INTERVAL = 0.995, 10
"""The largest second moment shrinks by this every so many steps, so that errors from before
anything was learned do not shorten steps for ever."""


class GradientRegression:
    """Adam on the weighted mean of the losses of all answers, sum(w * loss) / sum(w).

    Adam divides by the largest second moment so far (AMSGrad), which it slowly forgets: with the
    newest, steps would grow while errors are small, and the next change of targets would throw the
    network off.
    """

    def __init__(
        self,
        network: ValueNetwork,
        *,
        weight_decay: float,
        max_grad_norm: float | None,
        loss: Loss | None = None,
        usual_lr: float = 1e-3,
    ) -> None:
        """Fit a network from now on.

        Args:
            network: What to fit; it must stay on its device.
            weight_decay: Adds so much of each weight to its gradient, after that is cut.
            max_grad_norm: Longer gradients are cut to this length; None cuts none.
            loss: The loss of each answer of the network; None means squared errors.
            usual_lr: The learning rate where a config gives none.

        Raises:
            ValueError: if the network has nothing to train.
        """
        self._network, self._usual_lr = network, usual_lr
        self._loss: Loss = self._squared_error if loss is None else loss
        self._max_norm = float("inf") if max_grad_norm is None else max_grad_norm
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError(f"the network of {network.quantity} has no parameters to train")
        self._steps = 0
        # A rate is given with every step; this one is never used.
        self._adam = torch.optim.Adam(
            self._parameters, lr=0.0, weight_decay=weight_decay, amsgrad=True, fused=True
        )

    @torch.enable_grad()
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
            NonFiniteError: if the loss or the gradient is not finite; the network is unchanged.
        """
        total = weight.sum()
        if not total:  # Adam's momentum would move the network all the same.
            return Fit(total, total)
        try:
            # Where nothing counts the target may be anything, also NaN.
            losses = self._loss(query, target.where(weight > 0, 1.0))
            loss = (weight * losses).sum() / total
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [p.grad.flatten() for p in self._parameters if p.grad is not None]
            norm = torch.linalg.vector_norm(torch.cat(gradients))
            loss_value, norm_value = torch.stack([loss.detach(), norm]).tolist()
            # Moments are finite as long as gradients are so short that their squares are.
            if not math.isfinite(loss_value + norm_value):
                raise NonFiniteError(self._complaint(target, weight, loss))
            if norm_value > self._max_norm:
                torch.nn.utils.clip_grads_with_norm_(
                    self._parameters, self._max_norm, norm, foreach=True
                )
            self._steps += 1
            if self._steps % INTERVAL == 0:
                for state in self._adam.state.values():
                    state["max_exp_avg_sq"] *= FORGETTING
            self._adam.param_groups[0]["lr"] = lr
            self._adam.step()
            return Fit(loss.detach(), norm)
        finally:
            for parameter in self._parameters:
                parameter.grad = None

    def default_lr(self, *, sampled: bool) -> float:
        """The same for expectations and samples: errors of a batch are averaged anyway."""
        return self._usual_lr

    def state_dict(self) -> StateDict:
        """The number of steps, and Adam's step and moments of each parameter, by its number."""
        return {"steps": self._steps, "moments": moments_of(self._adam)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            KeyError: if a moment is missing.
            StorageError: if the moments belong to a network of other parameters.
        """
        self._steps = whole_number(state_dict["steps"])
        load_moments(self._adam, state_dict["moments"])

    def _squared_error(
        self, query: ValueQuery, target: Float[Tensor, "query output"]
    ) -> Float[Tensor, "query output"]:
        return (self._network(query) - target).square()

    def _complaint(self, target: Tensor, weight: Tensor, loss: Tensor) -> str:
        """Message that names the first cause of something not finite."""
        quantity = self._network.quantity
        for name, numbers in {"weight": weight, "target": target.where(weight > 0, 0.0)}.items():
            wrong = ~numbers.isfinite().all(1)
            if bool(wrong.any()):
                row = int(wrong.int().argmax())
                values = numbers[row].tolist()
                return f"{name} {row} of {quantity} is {values}; {quantity} was left as it is"
        for name, parameter in self._network.named_parameters():
            if not bool(parameter.isfinite().all()):
                return f"the weight {quantity}.{name} is not finite"
        culprit = "gradient" if bool(loss.isfinite()) else "loss"
        return (
            f"the {culprit} of {quantity} is not finite; it was left as it is. "
            f"Lower its learning rate, or choose another space"
        )


def regression_of(
    network: ValueNetwork, *, weight_decay: float, max_grad_norm: float | None
) -> Regression:
    """The network's own regression, or gradient descent where it has none."""
    regression = network.regression(weight_decay=weight_decay, max_grad_norm=max_grad_norm)
    if regression is not None:
        return regression
    return GradientRegression(network, weight_decay=weight_decay, max_grad_norm=max_grad_norm)
