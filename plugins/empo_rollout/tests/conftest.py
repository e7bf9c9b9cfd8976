"""Rollouts of policies that act at random places, for tests of what learns from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.buffer import Rollout
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks, build_policy

# Reference implementations beside the tests are importable.
sys.path.insert(0, str(Path(__file__).parent))

from policy_shapes import policy_params

WORDS = 3


class Scene:
    """Small policies, plans and rollouts for tests of the learner."""

    def __init__(self, agents: int = 1, actions: ActionSpec | None = None, **groups: Any) -> None:
        """A learner's parameters; ``groups`` are its groups, as a config has them."""
        shape = {"hidden": [4], "memory_size": 3, **groups.get("policy", {})}
        groups["policy"] = policy_params(**shape)
        self.params = RolloutParams.model_validate(
            {
                "total_steps": 1000,
                "num_envs": None,  # The defaults of many environments: one epoch.
                "environment": "gymnasium/CartPole-v1",
                "optimiser": {"name": "sgd", "lr": 0.1, "betas": [0.0, 0.0], "max_grad_norm": None},
                **groups,
            }
        )
        names = tuple(f"agent {i}" for i in range(agents))
        actions = actions or ActionSpec(choices=(3,))
        self.spec = EnvSpec(
            ObservationSpec(WORDS), actions, names, num_envs=4, masks=actions.is_discrete
        )

    def policy(self, seed: int = 0) -> Networks:
        generator = torch.Generator().manual_seed(seed)
        policy = build_policy(self.params.policy, self.spec, generator=generator)
        with torch.no_grad():  # Heads start near 0, where hardly any gradient comes through.
            for weight in policy.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
        return policy

    def plan(self, horizon: int, segments: int, size: int, accumulate: int = 1) -> VecPlan:
        agents = len(self.spec.agents)
        return VecPlan(agents, 1, 1, 4, horizon, segments, size, accumulate)

    @torch.no_grad()
    def rollout(
        self, policy: Networks, horizon: int, segments: int, seed: int = 0, holes: bool = True
    ) -> Rollout:
        """A random rollout of a policy; with holes, episodes end and not all steps are valid."""
        torch.manual_seed(seed)

        def chance(probability: float) -> torch.Tensor:
            return torch.rand(horizon, segments) < probability * holes

        observation = torch.randn(horizon, segments, WORDS)
        terminated, truncated = chance(0.1), chance(0.1)
        starts = torch.cat([chance(0.5)[:1], (terminated | truncated)[:-1]])
        agent = torch.arange(segments) % self.spec.num_agents
        turn = agent % len(self.spec.agents)
        first = torch.randn(segments, policy.memory_size) * ~starts[0][:, None]
        mask = None
        if self.spec.masks:
            mask = torch.rand(horizon, segments, sum(self.spec.actions.choices)) < 0.8
        memory, actions, log_probs, values = first, [], [], []
        for t in range(horizon):
            some = None if mask is None else mask[t]
            distribution, value, memory = policy.step(observation[t], memory, starts[t], turn, some)
            actions.append(distribution.sample())
            log_probs.append(distribution.log_prob(actions[-1]))
            values.append(value)
        value = torch.stack(values)
        next_value = torch.cat([value[1:], torch.randn(1, segments)])
        next_value = torch.where(truncated, torch.randn(horizon, segments), next_value)
        known = ~chance(1.0)
        known[:-1] = True
        return Rollout(
            observation=observation,
            action=torch.stack(actions),
            log_prob=torch.stack(log_probs),
            value=value,
            reward=torch.randn(horizon, segments),
            terminated=terminated,
            truncated=truncated,
            next_value=next_value.masked_fill(terminated, 0.0),
            unseen=torch.zeros_like(terminated),
            starts=starts,
            valid=~chance(0.15),
            is_known=known,
            mask=mask,
            memory=first,
            agent=agent,
            version=torch.zeros(horizon, segments, dtype=torch.int64),
        )


@pytest.fixture(scope="session")
def scene() -> type[Scene]:
    return Scene
