"""Dense networks, forwards and backwards, in few operations on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from empo_rollout.params import ComputeParams
from empo_rollout.policies.distributions import ActionMap
from empo_rollout.policies.layers import Tanh, scaled, tanh_
from empo_rollout.policies.networks import Network, Networks

_Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]
_ACTIVATIONS: dict[type[nn.Module], _Activation] = {
    Tanh: (tanh_, torch.ops.aten.tanh_backward),
    nn.ReLU: (torch.relu_, lambda slope, result: slope * (result > 0)),
}
"""Of a tensor in place, and the slope of its argument from that of its result and its result."""


class DensePass(NamedTuple):
    """What a dense network makes of observations.

    Attributes:
        output: Of the head.
        value: Of the critic.
        layers: The observations, and what each layer makes of them, in each tower.
    """

    output: Float[Tensor, "row output"]
    value: Float[Tensor, " row"]
    layers: list[Float[Tensor, "tower row feature"]]

    @property
    def features(self) -> Float[Tensor, "row feature"]:
        """What the head reads."""
        return self.layers[-1][0]


class _Weights:
    """The weights of a network as parts of one row, or a gradient that is laid out as they are.

    Attributes:
        layers: Weights and biases; those of policy and critic together, where each has its own.
        head: Weights and biases.
        critic: Weights and bias.
    """

    def __init__(self, network: Network, row: Float[Tensor, " weight"]) -> None:
        self.row = row
        layers, other = network.trunk.layers, network.critic_trunk
        pairs = zip(layers, layers if other is None else other.layers, strict=True)
        self.layers = [
            (self._stacked(first.weight, second.weight).mT, self._stacked(first.bias, second.bias))
            for first, second in pairs
            if isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
        ]
        self.head, self.critic = (
            (self.part(layer.weight), self.part(layer.bias))
            for layer in (network.head, network.critic)
        )

    def part(self, weight: Tensor) -> Tensor:
        """The part of the row that has the place of a weight."""
        return self.row.as_strided(weight.shape, weight.stride(), weight.storage_offset())

    def _stacked(self, first: Tensor, other: Tensor) -> Float[Tensor, "tower input feature"]:
        """The parts of two weights of one shape, or of one weight."""
        offset = first.storage_offset()
        distance = other.storage_offset() - offset
        shape = first.shape if first.ndim == 2 else (1, len(first))
        return self.row.as_strided((1 + (distance > 0), *shape), (distance, shape[-1], 1), offset)


class DenseNetwork:
    """The network of a policy that consists of dense layers, as its modules compute it.

    The layers of policy and critic have the same sizes, and go through each operation together;
    their gradient is written out. So there are a third of the operations that modules and autograd
    would start, which take longer than what they compute where networks are small.

    Attributes:
        row: All weights, one behind the other.
        choices: As in ``ActionSpec``.
        log_std: Logarithms of standard deviations of outputs, where actions are numbers.
        action_map: Maps outputs to actions; None: they are the same.
    """

    def __init__(self, network: Network, action_map: ActionMap | None = None) -> None:
        """Compute with the weights of a network without memory or convolutions.

        They become views of ``row``, and must be written to from now on, not be replaced.
        """
        self.row = _joined(list(network.parameters()))
        self._weights = _Weights(network, self.row)
        self._gradient = _Weights(network, torch.zeros_like(self.row))
        self._activated, self._sloped = _ACTIVATIONS[type(network.trunk.layers[1])]
        self._scale = network.scale
        self.choices = network.choices
        self.log_std = None if network.choices else network.log_std
        self.action_map = action_map

    def forward(self, observation: Shaped[Tensor, "row word"]) -> DensePass:
        """What the network makes of observations, without autograd."""
        weights = self._weights
        towers = len(weights.layers[0][0])
        layers = [scaled(observation, self._scale).expand(towers, -1, -1)]
        for weight, bias in weights.layers:
            layers.append(self._activated(torch.baddbmm(bias, layers[-1], weight)))
        (head, head_bias), (critic, critic_bias) = weights.head, weights.critic
        output = torch.addmm(head_bias, layers[-1][0], head.mT)
        value = torch.addmm(critic_bias, layers[-1][-1], critic.mT).squeeze(1)
        return DensePass(output, value, layers)

    def backward(
        self,
        forward_pass: DensePass,
        output: Float[Tensor, "row output"],
        value: Float[Tensor, " row"],
        log_std: Float[Tensor, " number"] | None,
    ) -> Float[Tensor, " weight"]:
        """The gradient of a loss in all weights; the next call overwrites it.

        Args:
            forward_pass: Result of ``forward``.
            output: Slopes of the loss in its output.
            value: Slopes in its value.
            log_std: Slopes in ``log_std``, where there is one.
        """
        gradient, features = self._gradient, forward_pass.layers[-1]
        (head, head_bias), (critic, critic_bias) = gradient.head, gradient.critic
        values = value.unsqueeze(1)
        torch.mm(output.mT, features[0], out=head)
        torch.sum(output, 0, out=head_bias)
        torch.mm(values.mT, features[-1], out=critic)
        torch.sum(values, 0, out=critic_bias)
        if self.log_std is not None and log_std is not None:
            gradient.part(self.log_std).copy_(log_std)
        slope = torch.empty_like(features)
        torch.mm(output, self._weights.head[0], out=slope[0])
        if len(slope) == 1:
            slope[0].addmm_(values, self._weights.critic[0])
        else:
            torch.mm(values, self._weights.critic[0], out=slope[1])
        for depth in reversed(range(len(gradient.layers))):
            slope = self._sloped(slope, forward_pass.layers[depth + 1])
            weight, bias = gradient.layers[depth]
            weight.copy_(torch.bmm(forward_pass.layers[depth].mT, slope))
            torch.sum(slope, 1, keepdim=True, out=bias)
            if depth:
                slope = torch.bmm(slope, self._weights.layers[depth][0].mT)
        return gradient.row


def dense_network(policy: object, compute: ComputeParams) -> DenseNetwork | None:
    """The network of a policy, if there is one, for all agents, that ``DenseNetwork`` can be."""
    plain = compute.precision == "float32" and not compute.compile
    if not plain or not isinstance(policy, Networks) or policy.normalisation is not None:
        return None
    network = policy.members[0]
    if len(policy.members) > 1 or not _is_dense(network):
        return None
    return DenseNetwork(network, policy.action_map)


def _is_dense(network: Network) -> bool:
    layers, weights = network.trunk.layers, list(network.parameters())
    return (
        network.memory is None
        and not network.trunk.reads_pictures
        and len(layers) > 0
        and type(layers[1]) in _ACTIVATIONS
        and all(
            weight.requires_grad and weight.is_cpu and weight.dtype is torch.float32
            for weight in weights
        )
    )


def _joined(weights: Sequence[nn.Parameter]) -> Float[Tensor, " weight"]:
    """All weights, one behind the other; they become views of this."""
    row = torch.cat([weight.detach().flatten() for weight in weights])
    sizes = [weight.numel() for weight in weights]
    for weight, part in zip(weights, torch.split(row, sizes), strict=True):
        weight.data = part.view_as(weight)
    return row
