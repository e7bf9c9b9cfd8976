"""Evaluation of a policy: whole episodes, played beside the training and without effect on it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from empo_core.protocols import PlayedEpisodes
from empo_core.protocols.environments import VectorEnv
from empo_environments.normalisation import Normaliser
from empo_learning.evaluation.videos import EpisodeCamera
from empo_learning.randomness import seeded
from empo_rollout.collector import policy_step, refuse_non_finite
from empo_rollout.params import ComputeParams
from empo_rollout.policy import Networks, autocast

log = logging.getLogger(__name__)


UNFINISHED = "unfinished"
"""Reason of episodes that had not ended when waiting ended."""


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


@torch.no_grad()
def play(
    policy: Networks,
    vector: VectorEnv,
    plan: EvaluationPlan,
    *,
    seed: int,
    compute: ComputeParams,
    device: torch.device,
    normaliser: Normaliser | None = None,
    camera: EpisodeCamera | None = None,
) -> list[PlayedEpisodes]:
    """So many episodes of each agent of each environment, by the agent's name.

    As many with each, whether they are short or long: taking whichever ends first would count
    short ones too often. ``vector`` are fresh environments, of one block, and stay open.
    ``normaliser`` normalises observations by its statistics, which stay as they are; returns are
    those of the environments. ``camera`` films the only environment.
    """
    with seeded(np.random.SeedSequence(seed)), autocast(compute):
        vector.start(seed)
        return _played(policy, vector, plan, device, normaliser, camera)


def _played(
    policy: Networks,
    vector: VectorEnv,
    plan: EvaluationPlan,
    device: torch.device,
    normaliser: Normaliser | None,
    camera: EpisodeCamera | None,
) -> list[PlayedEpisodes]:
    env_spec = vector.spec
    count, num_agents = plan.episodes_each, env_spec.num_agents
    agent = torch.arange(num_agents, device=device) % len(env_spec.agents)
    memory = policy.initial_memory(num_agents).to(device)
    returns, lengths = np.zeros((num_agents, count)), np.zeros((num_agents, count), np.int64)
    why, success = np.full((num_agents, count), -1), np.full((num_agents, count), -1)
    number, acted = np.zeros(num_agents, np.int64), np.zeros(num_agents, bool)
    left = count * plan.most_steps
    while True:
        time_step = vector.recv()
        if camera is not None:
            camera.see(time_step, acted)
        rows = np.flatnonzero(acted & (number < count))
        returns[rows, number[rows]] += time_step.reward[rows]
        lengths[rows, number[rows]] += 1
        if time_step.success is not None:
            best = np.maximum(success[rows, number[rows]], time_step.success[rows])
            success[rows, number[rows]] = best
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
    if camera is not None:
        camera.end(len(env_spec.agents))
    if (number < count).any():
        log.warning(
            "an evaluation stopped after %d steps, and %d of %d episodes had not ended; those that "
            "had begun count as they stand. Does every episode end, and does every agent act? If "
            "they are only long, raise reporting.evaluation_steps",
            count * plan.most_steps,
            int((count - number).sum()),
            num_agents * count,
        )
    reasons = [*env_spec.reasons, UNFINISHED]  # The latter at -1.
    played = []
    for index, name in enumerate(env_spec.agents):
        mine = (lengths > 0) & (np.arange(num_agents) % len(env_spec.agents) == index)[:, None]
        if not mine.any():
            continue  # An agent that never acted.
        reported = success[mine & (success >= 0)]
        counts = np.bincount(why[mine] % len(reasons), minlength=len(reasons))
        played.append(
            PlayedEpisodes(
                group={"agent": name},
                returns=returns[mine],
                lengths=lengths[mine],
                ends={name: int(n) for name, n in zip(reasons, counts, strict=True) if n},
                successes=reported if len(reported) else None,
            )
        )
    return played
