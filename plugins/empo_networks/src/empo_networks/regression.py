"""Adam on the losses of a network, in the network's own space."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adam import adam

from empo_core.errors import NonFiniteError
from empo_core.trees import StateDict
from empo_core.types import Fit, ValueQuery
from empo_networks.network import Network

FORGETTING = 0.9995
"""The largest second moment shrinks by this with each step, so that errors from before anything
was learned do not shorten steps for ever."""

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
"""Names of Adam's moments: of gradients, of their squares, and the largest of these."""


class NetworkRegression:
    """Fits one network; a regression as ``empo_core.protocols`` wants it.

    The loss is the weighted mean of those in the space of the network (``scales``). Adam
    has the usual 0.9 and 0.999, divides by the largest second moment so far (AMSGrad), which it
    slowly forgets, and decays weights through the gradient.
    """

    def __init__(
        self, network: Network, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        network.is_fitted = True
        self._network, self._max_norm = network, max_grad_norm
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._names, self._parameters = [list(part) for part in zip(*named, strict=True)]
        # One tensor of all weights: then a step is a few operations, not a few per layer.
        self._weights = flattened(self._parameters)
        self._weight_decay = weight_decay
        self._forget()

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
        raw, unit, share = network.raw(query, network.dropout), network.unit(query), weight / total
        # To derive the loss automatically takes longer than all of the backward pass.
        output = raw.detach()
        loss = (share * network.scale.loss(output, read, unit)).sum()
        slope = share * network.scale.slope(output, read, unit)
        gradients = torch.autograd.grad(raw, self._parameters, slope)
        gradient = torch.cat([part.flatten() for part in gradients])
        norm = gradient.norm()
        # Moments are finite as long as gradients are so short that their squares are.
        if not torch.isfinite(loss + norm):
            raise NonFiniteError(self._complaint(target, weight, loss))
        if self._max_norm is not None:
            gradient *= (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        self._advance(gradient, lr)
        # Torch counts changes of a tensor, but not those of others that share its memory.
        torch.autograd.graph.increment_version(self._parameters)
        return Fit(loss, norm)

    def default_lr(self, *, sampled: bool) -> float:
        """The same for expectations and samples: errors of a batch are averaged anyway."""
        return 3e-3

    @torch.no_grad()
    def _advance(self, gradient: Float[Tensor, " weight"], lr: float) -> None:
        """One step of Adam."""
        # The optimiser around this function takes twice the time of the step.
        mean, square, largest = self._moments
        # The largest second moment so far: with the newest, errors that are small before beta_r
        # rises let steps grow, and the first change of targets throws the network off.
        largest *= FORGETTING
        adam(
            [self._weights], [gradient], [mean], [square], [largest], [self._steps],
            fused=True, amsgrad=True, lr=lr, beta1=0.9, beta2=0.999, eps=1e-8,
            weight_decay=self._weight_decay, maximize=False,
        )  # fmt: skip

    def _forget(self) -> None:
        """Be as before the first step."""
        weights = self._weights
        self._moments = weights.new_zeros(len(MOMENTS), len(weights))
        self._steps = torch.zeros((), device=weights.device)

    def _complaint(self, target: Tensor, weight: Tensor, loss: Tensor) -> str:
        """Message that names the first cause of something not finite."""
        quantity = self._network.quantity
        for name, wrong in {
            "weight": ~weight.isfinite(),
            "target": ~target.isfinite() & (weight > 0),
        }.items():
            if bool(wrong.any()):
                row = int(wrong.any(1).int().argmax())
                values = (weight if name == "weight" else target)[row].tolist()
                return f"{name} {row} of {quantity} is {values}; {quantity} was left as it is"
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if not bool(parameter.isfinite().all()):
                return f"parameter {name} of {quantity} is not finite"
        culprit = "gradient" if bool(loss.isfinite()) else "loss"
        return (
            f"the {culprit} of {quantity} is not finite; it was left as it is. "
            f"Lower its learning rate, or choose another space"
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The moments of all weights, one after the other; none before the first step."""
        if not self._steps:
            return {}
        return dict(zip(MOMENTS, self._moments, strict=True)) | {"step": self._steps}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            ValueError: if the state belongs to another network.
        """
        weights = self._weights
        for key, moment in state_dict.items():
            if moment.shape not in {torch.Size(), weights.shape}:
                raise ValueError(
                    f"the state of an optimiser has {key} of shape {list(moment.shape)}, which "
                    f"does not fit the {len(weights):,} weights of this {self._network.quantity} "
                    f"network; it was saved for other params or another world"
                )
        self._forget()
        if state_dict:
            for stored, name in zip(self._moments, MOMENTS, strict=True):
                stored.copy_(state_dict[name])
            self._steps.copy_(state_dict["step"])


def flattened(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    """All numbers of some parameters, which go on as views of it."""
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part.view_as(parameter)
    return nn.Parameter(flat)
