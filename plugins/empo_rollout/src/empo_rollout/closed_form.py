"""PPO's gradient written out, for dense networks that choose one option, on the CPU.

``update.gradient: closed-form`` names it. ``ClosedForm`` computes what ``Updater`` computes by
autograd with loss ``ppo``, and ``DensePolicy`` what ``Networks`` does where agents act, in half
the time where networks and minibatches are small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from empo_core.errors import ConfigError
from empo_learning.policy_losses import scheduled
from empo_rollout.buffer import Batch
from empo_rollout.distributions import MultiCategorical, unavailable
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Network, Networks, PolicyStep, scaled
from empo_rollout.ppo_params import LOG_RATIO_LIMIT, PpoParams

NAMES = [
    "policy/policy_loss",
    "policy/approx_kl",
    "policy/clip_fraction",
    "policy/importance",
    "policy/entropy",
    "policy/entropy_coef",
    "loss/policy",
    "loss/value",
    "loss/total",
]
"""The metrics, in their order."""


class ClosedForm:
    """The gradient of PPO's loss on a minibatch."""

    def __init__(self, policy: Networks, ppo: PpoParams | None, params: RolloutParams) -> None:
        """Evaluate a policy whose weights have gradients already, to which others are added.

        Args:
            policy: What is evaluated.
            ppo: The parameters of the only loss; None where there are others.
            params: Of the run.

        Raises:
            ConfigError: if the config asks for something else than it can do.
        """
        network, self._ppo = require_closed_form(policy, ppo, params)
        self._actor, self._critic = _actor_and_critic(network)
        self._scale, self._update = network.scale, params.update

    @np.errstate(all="ignore")  # Steps that are not finite are refused, without warnings before.
    def __call__(
        self, batch: Batch, weight: Float[Tensor, "time segment"], share: float, progress: float
    ) -> tuple[list[str], Float[Tensor, " metric"]]:
        """Add ``share`` times the gradient of a batch to that of the weights; see ``Updater``."""
        observation = scaled(batch.observation.flatten(0, 1), self._scale)
        # Options first: numpy adds up rows of numbers sooner than columns.
        logits = self._actor.forward(observation).numpy().T.copy()
        value = self._critic.forward(observation)[:, 0].numpy()
        masked = None if batch.mask is None else ~batch.mask.flatten(0, 1).numpy().T
        if masked is not None:
            logits[masked] = unavailable(torch.float32)
        old_log_prob, advantage, old_value, returns, step_weight = (
            part.numpy().ravel()
            for part in (batch.log_prob, batch.advantage, batch.value, batch.returns, weight)
        )
        normalised_weight = step_weight / len(value)  # Of each step in a mean.
        gradient_weight = normalised_weight if share == 1 else share * normalised_weight
        # Positions of the options that were chosen, among all numbers of ``[option, row]``.
        chosen = batch.action.numpy().ravel().astype(np.intp) * len(value) + np.arange(len(value))

        # The policy: its ratios r, and d loss / d log p(a) = -r A where r is not clipped.
        log_probs = logits - np.maximum.reduce(logits)
        probs = np.exp(log_probs)
        total = probs.sum(0)
        log_probs -= np.log(total)
        probs /= total
        entropy = -(probs * log_probs).sum(0)
        unbounded = log_probs.take(chosen) - old_log_prob
        log_ratio = _clipped(unbounded, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = np.exp(log_ratio)
        clip, gain = self._ppo.clip, ratio * advantage
        surrogate = np.minimum(gain, _clipped(ratio, 1 - clip, 1 + clip) * advantage)
        moves = (gain <= surrogate) & (log_ratio == unbounded)
        slope = gradient_weight * gain * moves
        # d log p(a) / d logits = 1[a] - p, and dH / d logits = -p (log p + H).
        logit_slope = probs * slope
        logit_slope.ravel()[chosen] -= slope
        coefficient = self._ppo.entropy.coef
        if self._ppo.entropy.end is not None:
            coefficient = float(scheduled(self._ppo.entropy, torch.tensor(progress)))
        if coefficient:
            logit_slope += (coefficient * gradient_weight) * probs * (log_probs + entropy)
        if masked is not None:
            logit_slope[masked] = 0
        if share:  # Not 0 times the gradient, which need not exist.
            self._actor.backward(torch.from_numpy(logit_slope).t())

        # The value: half the squared error, whose slope is the error.
        error = value - returns
        square, value_slope = error * error, error
        if self._update.value_clip is not None:
            change = value - old_value
            bounded = _clipped(change, -self._update.value_clip, self._update.value_clip)
            # The difference is exactly 0 within the clip, so that rounding never looks like one.
            clipped_square = np.square(error + (bounded - change))
            value_slope = np.where(clipped_square > square, 0, error)
            square = np.maximum(square, clipped_square)
        value_coef = self._update.value_coef
        value_slope = value_coef * gradient_weight * value_slope
        if share:
            self._critic.backward(torch.from_numpy(value_slope)[:, None])

        beyond = ratio - 1
        policy_loss, divergence, clip_fraction, importance, mean_entropy, value_loss = (
            float(normalised_weight @ numbers)
            for numbers in (
                -surrogate, beyond - log_ratio, np.abs(beyond) > clip, ratio, entropy, 0.5 * square
            )
        )  # fmt: skip
        paid = policy_loss - coefficient * mean_entropy
        numbers = (
            policy_loss, divergence, clip_fraction, importance, mean_entropy, coefficient,
            paid, value_loss, paid + value_coef * value_loss,
        )  # fmt: skip
        return NAMES, torch.from_numpy(np.array(numbers, np.float32))


class DensePolicy:
    """Acts as the ``Networks`` do whose weights it reads, now and after each step."""

    def __init__(self, policy: Networks) -> None:
        """Read the weights of a policy that ``require_closed_form`` accepts."""
        network = policy.members[0]
        self._actor, self._critic = _actor_and_critic(network)
        self._scale, self._choices = network.scale, network.choices

    def step(
        self,
        observation: Shaped[Tensor, "agent word"],
        memory: Float[Tensor, "agent unit"],
        starts: Bool[Tensor, " agent"],
        agent: Int[Tensor, " agent"],
        mask: Bool[Tensor, "agent option"] | None = None,
    ) -> PolicyStep:
        """Distribution and value, as of ``Networks.step``; there is no memory."""
        rows = scaled(observation, self._scale)
        distribution = MultiCategorical(self._actor.forward(rows), self._choices, mask)
        return PolicyStep(distribution, self._critic.forward(rows)[:, 0], memory)


class Dense:
    """Dense layers with tanh between them, forwards and backwards."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self._weights = [
            (layer.weight.detach(), layer.weight.detach().t(), layer.bias.detach())
            for layer in layers
        ]
        self._gradients = [(layer.weight.grad, layer.bias.grad) for layer in layers]
        self._inputs: list[Float[Tensor, "row feature"]] = []

    def forward(self, rows: Float[Tensor, "row feature"]) -> Float[Tensor, "row output"]:
        """The outputs; keeps what ``backward`` needs."""
        self._inputs = []
        for number, (_, transposed, bias) in enumerate(self._weights):
            if number:  # By numpy, which takes a fifth of the time.
                np.tanh(rows.numpy(), out=rows.numpy())
            self._inputs.append(rows)
            rows = torch.addmm(bias, rows, transposed)
        return rows

    def backward(self, slope: Float[Tensor, "row output"]) -> None:
        """Add the gradient of a loss whose slopes in the outputs are these.

        Overwrites what ``forward`` kept: there is one ``backward`` for each ``forward``.
        """
        layers = list(zip(self._weights, self._gradients, self._inputs, strict=True))
        for number in reversed(range(len(layers))):
            (weight, _, _), (weight_gradient, bias_gradient), rows = layers[number]
            assert weight_gradient is not None
            assert bias_gradient is not None
            if slope.shape[1] > rows.shape[1]:  # BLAS is slow where the second factor is narrow.
                weight_gradient.add_((rows.t() @ slope).t())
            else:
                weight_gradient.addmm_(slope.t(), rows)
            bias_gradient.add_(slope.sum(0))
            if number:  # d tanh(x) / dx = 1 - tanh(x)^2
                slope = slope @ weight
                slope.addcmul_(slope, rows.square_(), value=-1)


def _clipped(
    numbers: Float[np.ndarray, " row"], low: float, high: float
) -> Float[np.ndarray, " row"]:
    """``numbers.clip(low, high)``, which takes three times as long where there are few."""
    clipped: np.ndarray = np.minimum(np.maximum(numbers, low), high)
    return clipped


def _actor_and_critic(network: Network) -> tuple[Dense, Dense]:
    """From observations to logits, and to values."""
    assert network.critic_trunk is not None
    return (
        Dense([*_linear(network.trunk), network.head]),
        Dense([*_linear(network.critic_trunk), network.critic]),
    )


def _linear(trunk: nn.Module) -> list[nn.Linear]:
    return [layer for layer in trunk.modules() if isinstance(layer, nn.Linear)]


def require_closed_form(
    policy: Networks, ppo: PpoParams | None, params: RolloutParams
) -> tuple[Network, PpoParams]:
    """The network and the parameters of the loss of which a gradient can be computed here.

    Raises:
        ConfigError: if the config asks for something else than these can be.
    """
    networks, compute = params.policy, params.compute
    if ppo is None:
        raise _refusal("one loss, 'ppo' of weight 1")
    if ppo.entropy.jacobian or ppo.entropy.target_entropy is not None or ppo.entropy.action_power:
        raise _refusal("an entropy of 'ppo' without jacobian, target_entropy and action_power")
    names = networks.network.name, networks.critic, networks.agents
    dense = networks.network.params
    if names != ("mlp", "own", "shared") or getattr(dense, "activation", None) != "tanh":
        raise _refusal(
            "policy {network: {name: mlp, params: {activation: tanh}}, critic: own, agents: shared}"
        )
    if (compute.device, compute.precision, compute.compile) != ("cpu", "float32", False):
        raise _refusal("compute {device: cpu, precision: float32, compile: false}")
    network = policy.members[0]
    if len(network.choices) != 1:
        raise _refusal("actions that are one choice among options")
    return network, ppo


def _refusal(need: str) -> ConfigError:
    return ConfigError(
        f"update.gradient: 'closed-form' needs {need}; choose 'autograd', which can do all"
    )
