"""Evaluation of a policy: whole episodes, played beside the training and without effect on it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from empo_core.protocols import PlayedEpisodes
from empo_core.protocols.environments import TimeStep, VectorEnv
from empo_environments.normalisation import Normaliser
from empo_learning.evaluation.videos import EpisodeCamera
from empo_learning.evaluation.whole_episodes import EpisodeTable, play_episodes
from empo_learning.randomness import seeded
from empo_rollout.collector import policy_step, refuse_non_finite
from empo_rollout.params import ComputeParams
from empo_rollout.policy import Networks, autocast

log = logging.getLogger(__name__)


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
    env_spec = vector.spec
    num_agents, names = env_spec.num_agents, env_spec.agents
    member = np.arange(num_agents) % len(names)
    agent = torch.from_numpy(member).to(device)
    memory = policy.initial_memory(num_agents).to(device)
    table = EpisodeTable(np.full(num_agents, plan.episodes_each))

    def advance(time_step: TimeStep) -> TimeStep:
        nonlocal memory
        if normaliser is not None:
            time_step = normaliser.observed(time_step)
        step = policy_step(policy, time_step, memory, agent)
        memory = step.memory
        chosen: Tensor = (
            step.distribution.mode if plan.deterministic else step.distribution.sample()
        )
        refuse_non_finite(step, step.distribution.log_prob(chosen), time_step)
        vector.send(time_step.block, chosen.cpu().numpy())
        return vector.recv()

    most_steps, cameras = plan.episodes_each * plan.most_steps, [] if camera is None else [camera]
    with seeded(np.random.SeedSequence(seed)), autocast(compute):
        vector.start(seed)
        play_episodes(vector.recv(), advance, table, most_steps=most_steps, cameras=cameras)
    if table.num_left:
        log.warning(
            "an evaluation stopped after %d steps, and %d of %d episodes had not ended; those that "
            "had begun count as they stand. Does every episode end, and does every agent act? If "
            "they are only long, raise reporting.evaluation_steps",
            most_steps,
            table.num_left,
            num_agents * plan.episodes_each,
        )
    groups = [
        table.played(member == number, {"agent": name}, env_spec.reasons)
        for number, name in enumerate(names)
    ]
    return [group for group in groups if group is not None]  # Without agents that never acted.
