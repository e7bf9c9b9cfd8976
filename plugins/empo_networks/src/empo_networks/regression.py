"""Adam on the losses of a network, in the network's own space."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.trees import StateDict
from empo_core.types import Fit, ValueQuery
from empo_learning.regression import size_of_moments
from empo_networks.network import Network


class NetworkRegression:
    """Fits one network; a regression as ``empo_core.protocols`` wants it.

    The loss is the weighted mean of those in the space of the network (``scales``). Adam
    has the usual 0.9 and 0.999, divides by the largest second moment so far (AMSGrad), and decays
    weights through the gradient.
    """

    def __init__(
        self, network: Network, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        network.is_fitted = True
        self._network, self._max_norm = network, max_grad_norm
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._names, self._parameters = [list(part) for part in zip(*named, strict=True)]
        # The largest second moment so far: with the newest, errors that are small before beta_r
        # rises let steps grow, and the first change of targets throws the network off.
        self._adam = torch.optim.Adam(
            self._parameters, weight_decay=weight_decay, amsgrad=True, fused=True
        )

    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """One step of Adam; see ``empo_core.protocols.Regression``."""
        total = weight.sum()
        if not total:  # Adam's momentum would move the network all the same.
            return Fit(total, total)
        # Where nothing counts the target may be anything, also NaN.
        read = target.where(weight > 0, 1.0)
        network = self._network
        losses = network.scale.loss(network.raw(query, network.dropout), read, network.unit(query))
        loss = (weight / total * losses).sum()
        gradients = torch.autograd.grad(loss, self._parameters)
        norm = torch.nn.utils.get_total_norm(gradients)
        loss = loss.detach()
        moments = size_of_moments(self._adam, norm)
        if not torch.isfinite(loss + norm + moments):
            raise NonFiniteError(self._complaint(target, weight, loss, moments))
        if self._max_norm is not None:
            factor = (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
            gradients = torch._foreach_mul(gradients, factor)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._adam.param_groups[0]["lr"] = lr
        self._adam.step()
        self._adam.zero_grad()
        return Fit(loss, norm)

    def default_lr(self, *, sampled: bool) -> float:
        """The same for expectations and samples: errors of a batch are averaged anyway."""
        return 3e-3

    def _complaint(self, target: Tensor, weight: Tensor, loss: Tensor, moments: Tensor) -> str:
        """Message that names the first cause of something not finite."""
        quantity = self._network.quantity
        for what, wrong in {
            "weight": ~weight.isfinite(),
            "target": ~target.isfinite() & (weight > 0),
        }.items():
            if bool(wrong.any()):
                row = int(wrong.any(1).int().argmax())
                values = (weight if what == "weight" else target)[row].tolist()
                return f"{what} {row} of {quantity} is {values}; {quantity} was left as it is"
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if not bool(parameter.isfinite().all()):
                return f"parameter {name} of {quantity} is not finite"
        if not bool(moments.isfinite()):
            return f"the optimiser's moments of {quantity} are not finite; it was left as it is"
        what = "gradient" if bool(loss.isfinite()) else "loss"
        return (
            f"the {what} of {quantity} is not finite; it was left as it is. "
            f"Lower its learning rate, or choose another space"
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The moments of each parameter; none before the first step."""
        return {
            f"{name}.{what}": moment
            for name, parameter in zip(self._names, self._parameters, strict=True)
            for what, moment in self._adam.state.get(parameter, {}).items()
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            ValueError: It belongs to another network.
        """
        state: dict[Tensor, dict[str, Tensor]] = {}
        shapes = dict(zip(self._names, self._parameters, strict=True))
        for key, moment in state_dict.items():
            name, _, what = key.rpartition(".")
            if name not in shapes or moment.shape not in {torch.Size(), shapes[name].shape}:
                raise ValueError(
                    f"the state of an optimiser has {key} of shape {list(moment.shape)}, which "
                    f"fits no parameter of this {self._network.quantity} network; it was "
                    f"saved for other params or another world"
                )
            # Fused Adam counts steps where the parameters are.
            kept = moment.to(shapes[name].device, copy=True)
            state.setdefault(shapes[name], {})[what] = kept
        if state and len(state) < len(shapes):
            missing = [name for name, parameter in shapes.items() if parameter not in state]
            raise ValueError(f"the state of an optimiser lacks {', '.join(missing)}")
        self._adam.state.clear()
        self._adam.state.update(state)
