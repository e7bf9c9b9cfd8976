"""Humans who learned by self-play, used as a human prior."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.errors import ConfigError, StorageError
from empo_core.protocols import HumanPrior, WorldModel
from empo_learned_humans.goal_ppo import policy_path
from empo_learned_humans.params import SelfPlayParams
from empo_rollout.policyfile import load_policy
from empo_rollout.world_policies import chances, forgetful
from empo_worlds.policy_checks import human_policy


class SelfPlay:
    """Humans with some goals act by a learned policy, all others as another prior says.

    A policy that sees no time and no goal acts alike at any time and for each of these goals.
    """

    def __init__(self, params: SelfPlayParams, world: WorldModel) -> None:
        """Load the policy.

        Raises:
            ConfigError: if agents of the world have no views, or its humans no such goals.
            StorageError: if the policy is missing or damaged, remembers, or was learned by agents
                of other names, who saw or did other things.
        """
        views = world.views(world.initial_states().states[:1])
        if views is None:
            raise ConfigError(
                f"human_prior 'self-play' needs a world whose agents have views: "
                f"{world.spec.name!r} has none (WorldModel.views); use 'goal-ppo'"
            )
        names = [goal.name for goal in world.spec.goals]
        for name in params.goals:
            if name not in names:
                raise ConfigError(
                    f"human_prior.params.goals: humans have no goal {name!r}; they have: "
                    f"{', '.join(names)}"
                )
        self._world = world
        self._exploration = params.exploration
        self._goals = [goal for goal, name in enumerate(names) if name in params.goals]
        self._stays_learned = params.achieved == "learned"
        self._others: HumanPrior = build(params.others, world)
        path = policy_path(params.file)
        saved = load_policy(path)
        self._learners = {}
        for human in world.spec.humans:
            agent, num_words = world.spec.agents[human], saved.env_spec.observations.words
            words = views.shape[-1]
            options = saved.env_spec.actions.choices
            if agent.name not in saved.env_spec.agents or (num_words, *options) != (
                words,
                len(agent.actions),
            ):
                raise StorageError(
                    f"{path}: was learned by {', '.join(saved.env_spec.agents)}, who saw "
                    f"{num_words} numbers and had {', '.join(map(str, options))} options; "
                    f"{agent.name!r} of {world.spec.name!r} sees {words} and has "
                    f"{len(agent.actions)}"
                )
            self._learners[human] = saved.env_spec.agents.index(agent.name)
        try:
            self._policy = forgetful(saved.policy)
        except ValueError as error:
            raise StorageError(f"{path}: {error}") from error

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human."""
        spec, views = self._world.spec, self._world.views(states)
        assert views is not None
        policies = human_policy(self._world, self._others, states, steps_left).to(torch.float32)
        available, achieved = self._world.available(states), self._world.achieved(states)
        if self._stays_learned:
            achieved = torch.zeros_like(achieved)
        for goal in self._goals:
            human = spec.goals[goal].human
            options = available[:, human, : spec.num_actions[human]]
            options = options | ~options.any(1, keepdim=True)
            even = options.double() / options.sum(1, keepdim=True)
            learned = chances(self._policy, views[:, human], options, self._learners[human])
            mixed = self._exploration * even + (1 - self._exploration) * learned
            policies[:, goal, : mixed.shape[1]] = torch.where(
                achieved[:, goal, None], policies[:, goal, : mixed.shape[1]], mixed.float()
            )
        return policies
