"""Evaluation of a policy: whole episodes, played beside the training and without effect on it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols.environments import VectorEnv
from empo_environments.normalisation import Normaliser
from empo_learning.randomness import seeded
from empo_rollout.collector import policy_step, refuse_non_finite
from empo_rollout.params import ComputeParams
from empo_rollout.policy import Networks, autocast

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Statistics of an evaluation's episodes; with several agents, each one's part is an episode.

    Attributes:
        episodes: How many were played.
        mean_return: Mean sum of rewards.
        standard_error: Of that mean.
        min_return: The least.
        max_return: The greatest.
        mean_length: Mean number of steps.
        reasons: Share of the episodes that ended for each reason.
    """

    episodes: int
    mean_return: float
    standard_error: float
    min_return: float
    max_return: float
    mean_length: float
    reasons: dict[str, float]

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers."""
        return {
            "eval/return_mean": self.mean_return,
            "eval/return_standard_error": self.standard_error,
            "eval/length_mean": self.mean_length,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """Size and rules of an evaluation.

    Attributes:
        episodes_each: Episodes of each agent of each environment, at least 1.
        most_steps: So long an episode is waited for, on average. What has not ended by then counts
            as it stands, and agents that never acted do not count.
        deterministic: Take the likeliest actions instead of drawing them.
    """

    episodes_each: int
    most_steps: int
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of episodes that have begun.

    Attributes:
        agent: Index of the agent within its environment.
        returns: Sum of rewards.
        lengths: Steps.
        reasons: Index into ``EnvSpec.reasons``; -1 where an episode has not ended.
    """

    agent: Int[np.ndarray, " episode"]
    returns: Float[np.ndarray, " episode"]
    lengths: Int[np.ndarray, " episode"]
    reasons: Int[np.ndarray, " episode"]

    def statistics(self, reasons: Sequence[str]) -> Evaluation:
        """Statistics of the episodes, with shares of reasons by name."""
        size = self.returns.size
        spread = float(self.returns.std(ddof=1)) if size > 1 else 0.0
        return Evaluation(
            episodes=size,
            mean_return=float(self.returns.mean()),
            standard_error=spread / math.sqrt(size),
            min_return=float(self.returns.min()),
            max_return=float(self.returns.max()),
            mean_length=float(self.lengths.mean()),
            reasons={name: float((self.reasons == i).mean()) for i, name in enumerate(reasons)},
        )


@torch.no_grad()
def outcomes(
    policy: Networks,
    vector: VectorEnv,
    plan: EvaluationPlan,
    *,
    seed: int,
    compute: ComputeParams,
    device: torch.device,
    normaliser: Normaliser | None = None,
) -> Outcomes:
    """Play so many episodes with each agent of each environment.

    As many with each, whether they are short or long: taking whichever ends first would count
    short ones too often. ``vector`` are fresh environments, of one block, and stay open.
    ``normaliser`` normalises observations by its statistics, which stay as they are; returns are
    those of the environments.
    """
    with seeded(np.random.SeedSequence(seed)), autocast(compute):
        vector.start(seed)
        return _played(policy, vector, plan, device, normaliser)


def _played(
    policy: Networks,
    vector: VectorEnv,
    plan: EvaluationPlan,
    device: torch.device,
    normaliser: Normaliser | None,
) -> Outcomes:
    env_spec = vector.spec
    count, num_agents = plan.episodes_each, env_spec.num_agents
    agent = torch.arange(num_agents, device=device) % len(env_spec.agents)
    memory = policy.initial_memory(num_agents).to(device)
    returns, lengths = np.zeros((num_agents, count)), np.zeros((num_agents, count), np.int64)
    why = np.full((num_agents, count), -1)
    number, acted = np.zeros(num_agents, np.int64), np.zeros(num_agents, bool)
    left = count * plan.most_steps
    while True:
        time_step = vector.recv()
        rows = np.flatnonzero(acted & (number < count))
        returns[rows, number[rows]] += time_step.reward[rows]
        lengths[rows, number[rows]] += 1
        done = rows[(time_step.terminated | time_step.truncated)[rows]]
        why[done, number[done]] = time_step.reasons[done]
        number[done] += 1
        if not left or bool((number >= count).all()):
            break
        left -= 1
        if normaliser is not None:
            time_step = normaliser.observed(time_step)
        step = policy_step(policy, time_step, memory, agent)
        memory, acted = step.memory, time_step.acts.copy()
        chosen: Tensor = (
            step.distribution.mode if plan.deterministic else step.distribution.sample()
        )
        refuse_non_finite(step, step.distribution.log_prob(chosen), time_step)
        vector.send(time_step.block, chosen.cpu().numpy())
    if (number < count).any():
        log.warning(
            "an evaluation stopped after %d steps, and %d of %d episodes had not ended; those that "
            "had begun count as they stand. Does every episode end, and does every agent act? If "
            "they are only long, raise reporting.evaluation_steps",
            count * plan.most_steps,
            int((count - number).sum()),
            num_agents * count,
        )
    begun = lengths > 0
    index = np.broadcast_to(np.arange(num_agents)[:, None] % len(env_spec.agents), lengths.shape)
    return Outcomes(index[begun], returns[begun], lengths[begun], why[begun])
