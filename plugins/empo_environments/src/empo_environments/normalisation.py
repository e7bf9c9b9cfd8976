"""Running normalisation of observations and rewards.

Moments are merged by the parallel formula of Chan, Golub and LeVeque (1979), so one set of
statistics can serve all copies of an environment, and those of several processes. Rewards are
divided by the standard deviation of the running discounted return and keep their mean, as in
Engstrom et al. (2020), "Implementation matters in deep policy gradients".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Shaped
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec, TimeStep
from empo_core.trees import StateDict
from empo_environments.params import NormaliseParams

EPSILON = 1e-8
"""Added to variances before their root is taken."""
PRIOR_COUNT = 1e-4
"""Weight of the prior moments (mean 0, variance 1), in observations."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a stream of rows, in float64.

    Attributes:
        mean: Of each word.
        variance: Of each word, biased (divided by the count).
        count: Rows seen, a little more than that for the prior.
    """

    mean: Float[np.ndarray, " word"]
    variance: Float[np.ndarray, " word"]
    count: float

    @classmethod
    def prior(cls, words: int) -> Moments:
        """The moments before anything was seen: mean 0, variance 1, hardly any weight."""
        return cls(np.zeros(words), np.ones(words), PRIOR_COUNT)

    @classmethod
    def of(cls, rows: Shaped[np.ndarray, "row word"]) -> Moments:
        """The moments of some rows, at least one."""
        wide = np.asarray(rows, np.float64)
        return cls(wide.mean(0), wide.var(0), float(len(rows)))

    def merged(self, other: Moments) -> Moments:
        """The moments of both streams together; the order makes no difference but rounding."""
        count = self.count + other.count
        delta = other.mean - self.mean
        squares = self.variance * self.count + other.variance * other.count
        squares = squares + delta**2 * (self.count * other.count / count)
        return Moments(self.mean + delta * (other.count / count), squares / count, count)

    def without(self, other: Moments) -> Moments:
        """The inverse of ``merged``: the moments of what came after ``other`` in this stream.

        So processes that began with common statistics exchange only what each has seen since.
        The count must be greater than that of ``other``.
        """
        count = self.count - other.count
        mean = (self.mean * self.count - other.mean * other.count) / count
        squares = self.variance * self.count - other.variance * other.count
        squares = squares - (mean - other.mean) ** 2 * (count * other.count / self.count)
        return Moments(mean, np.maximum(squares / count, 0.0), count)

    def state_dict(self) -> dict[str, Tensor]:
        """The moments as tensors, for checkpoints and saved policies."""
        return {
            "mean": torch.from_numpy(self.mean.copy()),
            "variance": torch.from_numpy(self.variance.copy()),
            "count": torch.tensor(self.count, dtype=torch.float64),
        }

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Tensor]) -> Moments:
        """The moments that ``state_dict`` returned."""
        mean, variance = (state_dict[name].numpy().copy() for name in ("mean", "variance"))
        return cls(mean, variance, float(state_dict["count"]))


def normalise_observations(
    rows: Shaped[np.ndarray, "row word"], moments: Moments, clip: float
) -> Float[np.ndarray, "row word"]:
    """Rows with mean 0 and variance 1 under ``moments``, clipped to ``[-clip, clip]``, float32."""
    scaled = (rows - moments.mean) / np.sqrt(moments.variance + EPSILON)
    clipped: np.ndarray = np.clip(scaled, -clip, clip).astype(np.float32)
    return clipped


class RewardScaler:
    """Divides rewards by the standard deviation of the running discounted return.

    Attributes:
        moments: Of the running returns ``R_t = gamma * R_{t-1} + r_t``, which begin anew with
            each episode.
    """

    def __init__(self, agents: int, gamma: float, clip: float) -> None:
        """A scaler that has seen nothing.

        Args:
            agents: Rewards per step.
            gamma: Discount of the running return, in [0, 1].
            clip: Bound of scaled rewards.
        """
        self._gamma, self._clip = gamma, clip
        self._returns = np.zeros(agents)
        self.moments = Moments.prior(1)

    def __call__(
        self,
        rewards: Float[np.ndarray, " agent"],
        ended: Bool[np.ndarray, " agent"],
        agents: slice = slice(None),
        counts: Bool[np.ndarray, " agent"] | None = None,
    ) -> Float[np.ndarray, " agent"]:
        """Scaled rewards of one step, after learning from them.

        Args:
            rewards: As the environments paid them.
            ended: Whether the step ended the episode, by termination or truncation.
            agents: Which of all agents these are.
            counts: Which rewards are one; the others change nothing. None: all.
        """
        counts = np.ones(len(rewards), np.bool_) if counts is None else counts
        returns = self._returns[agents]  # A view.
        returns[counts] = returns[counts] * self._gamma + rewards[counts]
        if counts.any():
            self.moments = self.moments.merged(Moments.of(returns[counts, None]))
        returns[ended] = 0.0
        return self.scaled(rewards)

    def scaled(self, rewards: Float[np.ndarray, " agent"]) -> Float[np.ndarray, " agent"]:
        """Scaled rewards, float32, with the statistics as they are."""
        deviation = np.sqrt(self.moments.variance[0] + EPSILON)
        clipped: np.ndarray = np.clip(rewards / deviation, -self._clip, self._clip)
        return clipped.astype(np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        """Statistics and running returns."""
        return {**self.moments.state_dict(), "returns": torch.from_numpy(self._returns.copy())}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned."""
        self.moments = Moments.from_state_dict(state_dict)
        self._returns = state_dict["returns"].numpy().copy()


class Normaliser:
    """Normalises the time steps of vectorised environments, as SB3's ``VecNormalize`` does.

    Statistics are those of all agents of all copies. They take in the observations that agents
    act on and the rewards of agents that acted; last observations of episodes are normalised and
    not counted. Processes that learn together exchange what each has seen since they last did.

    Attributes:
        observations: Moments of observations, word by word; None where they stay as they are.
        clip: Bound of normalised observations and rewards.
    """

    def __init__(self, spec: EnvSpec, params: NormaliseParams, gamma: float) -> None:
        """A normaliser that has seen nothing.

        Args:
            spec: Of the environments.
            params: What is normalised.
            gamma: Discount of the running returns by whose deviation rewards are divided.

        Raises:
            ConfigError: if observations are pictures, which have a scale already.
        """
        observations = spec.observations
        if params.observations and observations.dtype == "uint8":
            raise ConfigError(
                "normalise.observations: belongs to observations that are numbers; here they are "
                "pictures, which networks divide by their greatest value: set it to false"
            )
        self._spec, self.clip = spec, params.clip
        self.observations = Moments.prior(observations.words) if params.observations else None
        self._scaler = None
        if params.rewards:
            self._scaler = RewardScaler(spec.num_agents, gamma, params.clip)
        self._common = self.moments

    def update(self, time_step: TimeStep, acted: Bool[np.ndarray, " agent"]) -> TimeStep:
        """The normalised time step, after taking it into the statistics.

        Args:
            time_step: As the environments gave it; is not changed.
            acted: Which of its agents acted before.
        """
        if self.observations is not None and time_step.acts.any():
            rows = time_step.observation[time_step.acts]
            self.observations = self.observations.merged(Moments.of(rows))
        normalised = self.observed(time_step)
        if self._scaler is None:
            return normalised
        over = time_step.terminated | time_step.truncated | time_step.starts
        agents = self._spec.agents_of(time_step.block)
        return replace(normalised, reward=self._scaler(time_step.reward, over, agents, acted))

    def observed(self, time_step: TimeStep) -> TimeStep:
        """The time step with observations normalised by the statistics as they are."""
        moments = self.observations
        if moments is None:
            return time_step
        return replace(
            time_step,
            observation=normalise_observations(time_step.observation, moments, self.clip),
            final_observation=normalise_observations(
                time_step.final_observation, moments, self.clip
            ),
        )

    def fresh(self) -> Float64[np.ndarray, " number"]:
        """Moments of what was seen since the last ``merge``, for the other processes."""
        parts: list[np.ndarray] = []
        for now, common in zip(self.moments, self._common, strict=True):
            new = now if now.count == common.count else now.without(common)
            parts += [np.array([now.count - common.count]), new.mean, new.variance]
        return np.concatenate(parts)

    def merge(self, fresh: Float64[np.ndarray, "rank number"]) -> None:
        """Go on with the statistics of all processes: what ``fresh`` told each, in one order."""
        self.begin(_merged(self._common, fresh))

    def take_in(self, fresh: Float64[np.ndarray, "part number"]) -> None:
        """Count what parts of the environments have seen elsewhere, in the order given."""
        self._go_on(_merged(self.moments, fresh))

    def begin(self, moments: Sequence[Moments]) -> None:
        """Go on with these ``moments``; what is seen from now on is fresh."""
        self._go_on(moments)
        self._common = list(moments)

    def _go_on(self, moments: Sequence[Moments]) -> None:
        if self.observations is not None:
            self.observations = moments[0]
        if self._scaler is not None:
            self._scaler.moments = moments[-1]

    def state_dict(self) -> StateDict:
        """Statistics and running returns."""
        return {
            "observations": None if self.observations is None else self.observations.state_dict(),
            "rewards": None if self._scaler is None else self._scaler.state_dict(),
            "common": [moments.state_dict() for moments in self._common],
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        if self.observations is not None:
            self.observations = Moments.from_state_dict(state_dict["observations"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state_dict["rewards"])
        self._common = [Moments.from_state_dict(moments) for moments in state_dict["common"]]

    @property
    def moments(self) -> list[Moments]:
        """Moments of observations and of running returns, as far as they are kept."""
        moments = [] if self.observations is None else [self.observations]
        return moments if self._scaler is None else [*moments, self._scaler.moments]


def _merged(moments: Sequence[Moments], fresh: Float64[np.ndarray, "part number"]) -> list[Moments]:
    """The moments of these streams and of what rows of ``Normaliser.fresh`` add to them."""
    merged, first = [], 0
    for part in moments:
        words = len(part.mean)
        for row in fresh[:, first : first + 1 + 2 * words]:
            if row[0] > 0:
                new = Moments(row[1 : 1 + words], row[1 + words :], float(row[0]))
                part = part.merged(new)
        merged.append(part)
        first += 1 + 2 * words
    return merged
