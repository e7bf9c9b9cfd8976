"""PPO's loss of a dense policy and its gradient, written out, on the CPU.

Networks compute by torch, the loss by numpy, whose operations on small arrays start sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float

from empo_learning.distributions import HALF_LOG_2_PI
from empo_rollout.experience.flat_rollout import Microbatch
from empo_rollout.learning.gradients import LossGradient
from empo_rollout.learning.losses import PolicyLosses
from empo_rollout.learning.ppo import LOG_RATIO_LIMIT, Ppo
from empo_rollout.params import RolloutParams, UpdateParams
from empo_rollout.policies.dense import DenseNetwork, dense_network
from empo_rollout.policies.distributions import ActionMap
from empo_rollout.policies.protocols import ActorCritic

UNAVAILABLE = np.finfo(np.float32).min / 2
"""Logit of an option that is masked, as in ``MultiCategorical``."""
TINY = np.finfo(np.float32).tiny

Rows = Float[np.ndarray, " row"]


class Choices:
    """The options taken at each row, of independent choices: a ``MultiCategorical``.

    Attributes:
        count: Number of choices.
        log_prob: Log-probability of what was taken.
        entropy: Of all choices together.
    """

    def __init__(
        self,
        logits: Float[np.ndarray, "row option"],
        action: Float[np.ndarray, "row number"],
        nvec: Sequence[int],
        mask: Bool[np.ndarray, "row option"] | None,
    ) -> None:
        # Options first: numpy adds up rows of numbers sooner than columns.
        self._log_probs = logits.T.copy()
        self._masked = None if mask is None else ~mask.T
        if self._masked is not None:
            self._log_probs[self._masked] = UNAVAILABLE
        bounds = list(pairwise(accumulate(nvec, initial=0)))
        starts = np.array([[start] for start, _ in bounds])
        self._indices = action.T.astype(np.intp) + starts, np.arange(len(logits))
        self._likely = np.empty_like(self._log_probs)
        self._parts = [
            (self._log_probs[start:stop], self._likely[start:stop]) for start, stop in bounds
        ]
        self._entropies = []
        for part, likely in self._parts:
            part -= part.max(0)
            part -= np.log(np.exp(part, out=likely).sum(0))
            np.exp(part, out=likely)
            self._entropies.append(-(likely * part).sum(0))
        self.count = len(nvec)
        self.log_prob: Rows = self._log_probs[self._indices].sum(0)
        self.entropy: Rows = sum(self._entropies[1:], start=self._entropies[0])

    def slopes(
        self, log_prob: Rows, entropy: Rows | None
    ) -> tuple[Float[np.ndarray, "row option"], None]:
        """Slopes of a loss in the logits, by those in ``log_prob`` and, if any, ``entropy``."""
        # d log p(a) = 1[a] - p, and dH = -p (log p + H) of each choice.
        slope = self._likely * -log_prob
        if entropy is not None:
            surprise = np.concatenate(
                [
                    part + entropy_slope
                    for (part, _), entropy_slope in zip(self._parts, self._entropies, strict=True)
                ]
            )
            slope -= self._likely * surprise * entropy
        slope[self._indices] += log_prob
        if self._masked is not None:
            slope[self._masked] = 0
        return slope.T, None


class Numbers:
    """The numbers drawn at each row, of independent normals: a ``diagonal_normal``.

    Attributes as those of ``Choices``.
    """

    def __init__(
        self,
        mean: Float[np.ndarray, "row number"],
        action: Float[np.ndarray, "row number"],
        log_std: Float[np.ndarray, " number"],
        action_map: ActionMap | None = None,
    ) -> None:
        self._half: Float[np.ndarray, " number"] | None = None
        if action_map is not None:
            self._half = action_map.half.numpy()
            mean = action_map.centre.numpy() + self._half * mean
            log_std = log_std + np.log(self._half)
        self._narrowness = np.exp(-log_std)
        self._offset = (action - mean) * self._narrowness
        self._square = np.square(self._offset)
        self.count = len(log_std)
        width = log_std.sum() + self.count * np.float32(HALF_LOG_2_PI)
        self.log_prob: Rows = -0.5 * self._square.sum(1) - width
        self.entropy: Rows = np.full(len(mean), width + np.float32(0.5 * self.count))

    def slopes(
        self, log_prob: Rows, entropy: Rows | None
    ) -> tuple[Float[np.ndarray, "row number"], Float[np.ndarray, " number"]]:
        """The same as of ``Choices``, in the outputs; and in the logarithms of deviations."""
        of_each = log_prob[:, None]
        log_std = (of_each * (self._square - 1)).sum(0)
        if entropy is not None:
            log_std += entropy.sum()
        slope = of_each * self._offset * self._narrowness
        return slope if self._half is None else slope * self._half, log_std


class ClosedForm:
    """Gradients of the same loss as ``PlainGradient`` has: ``ppo``, of a dense network.

    Attributes:
        row: All weights, one behind the other; they are views of it.
    """

    def __init__(self, network: DenseNetwork, ppo: Ppo, update: UpdateParams) -> None:
        """Evaluate a policy that is ``network``; ``ppo`` is the only one of its losses."""
        self._network, self._ppo, self._update = network, ppo, update
        self.row = network.row

    @torch.no_grad()
    def __call__(self, batch: Microbatch, progress: float) -> LossGradient:
        """The loss on some steps, and its gradient."""
        forward_pass = self._network.forward(batch.observation.flatten(0, 1))
        weight, output = batch.weight.numpy(), forward_pass.output.numpy()
        share = weight / max(weight.sum(), TINY)
        ignored = weight <= 0
        with np.errstate(all="ignore"):  # Steps are refused that are not finite.
            distribution = self._distribution(output, batch)
            metrics, log_prob, entropy = self._policy_loss(distribution, batch, share, ignored)
            error, value = self._value_loss(forward_pass.value.numpy(), batch, share, ignored)
            output[...], log_std = distribution.slopes(log_prob, entropy)
            forward_pass.value.numpy()[...] = self._update.value_coef * value
        metrics["loss/value"] = error
        metrics["loss/total"] = metrics["loss/policy"] + self._update.value_coef * error
        gradient = self._network.backward(
            forward_pass,
            forward_pass.output,
            forward_pass.value,
            None if log_std is None else torch.from_numpy(log_std),
        )
        return LossGradient(gradient, metrics)

    def _distribution(
        self, output: Float[np.ndarray, "row output"], batch: Microbatch
    ) -> Choices | Numbers:
        action, network = batch.action.numpy(), self._network
        if network.log_std is not None:
            log_std = network.log_std.detach().numpy()
            return Numbers(output, action, log_std, network.action_map)
        mask = None if batch.mask is None else batch.mask.numpy()
        return Choices(output, action, network.choices, mask)

    def _policy_loss(
        self,
        distribution: Choices | Numbers,
        batch: Microbatch,
        share: Rows,
        ignored: Bool[np.ndarray, " row"],
    ) -> tuple[dict[str, float], Rows, Rows | None]:
        """Metrics, and slopes in log-probabilities and in entropies, if there are any."""
        params = self._ppo.params
        unclipped = distribution.log_prob - batch.log_prob.numpy()
        entropy = distribution.entropy
        for array in (unclipped, entropy):
            np.copyto(array, 0, where=ignored)
        log_ratio = unclipped.clip(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio, gain = np.exp(log_ratio), batch.advantage.numpy() * share
        clipped = ratio.clip(1 - params.clip, 1 + params.clip) * gain
        gain *= ratio
        loss = -float(np.minimum(gain, clipped).sum())
        # Constant where the minimum is of the clipped ratio, or the logarithm was cut.
        np.copyto(gain, 0, where=(gain > clipped) | (unclipped != log_ratio))
        beyond = ratio - 1
        coefficient = params.entropy.coef
        mean = float((entropy * share).sum())
        entropy_weight = coefficient * distribution.count**params.entropy.action_power
        metrics = {
            "policy/policy_loss": loss,
            "policy/entropy": mean,
            "policy/entropy_coef": coefficient,
            # Schulman's estimate, as in ``Ppo``.
            "policy/approx_kl": float(((beyond - log_ratio) * share).sum()),
            "policy/clip_fraction": float(share[np.abs(beyond) > params.clip].sum()),
            "policy/importance": float((ratio * share).sum()),
            "loss/policy": loss - entropy_weight * mean,
        }
        return metrics, -gain, -entropy_weight * share if entropy_weight else None

    def _value_loss(
        self, value: Rows, batch: Microbatch, share: Rows, ignored: Bool[np.ndarray, " row"]
    ) -> tuple[float, Rows]:
        """The loss, and its slope in values."""
        clip = self._update.value_clip
        error = value - batch.returns.numpy()
        np.copyto(error, 0, where=ignored)
        slope = error * share
        if clip is None:
            return 0.5 * float((slope * error).sum()), slope
        change = value - batch.value.numpy()
        np.copyto(change, 0, where=ignored)
        square = np.square(error)
        # This difference is exactly 0 within the clip, so that rounding never looks like clipping.
        clipped = np.square(error + (change.clip(-clip, clip) - change))
        np.copyto(slope, 0, where=clipped > square)
        return 0.5 * float((np.maximum(square, clipped) * share).sum()), slope


def closed_form(
    policy: ActorCritic, losses: PolicyLosses, params: RolloutParams
) -> ClosedForm | None:
    """The gradient of ``losses`` by closed form, if they and the policy have one."""
    ppo = losses.only
    if type(ppo) is not Ppo:
        return None
    entropy = ppo.params.entropy
    if entropy.jacobian or entropy.target_entropy is not None or entropy.end is not None:
        return None
    network = dense_network(policy, params.compute)
    return None if network is None else ClosedForm(network, ppo, params.update)
