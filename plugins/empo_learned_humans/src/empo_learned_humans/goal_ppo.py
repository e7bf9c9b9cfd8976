"""Humans who learned to reach their goals, used as a human prior."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.protocols import WorldModel
from empo_core.runs.directory import CONFIG, RESULTS, existing_run
from empo_core.world_content import difference, identity
from empo_learned_humans.params import GoalPpoParams
from empo_learning.saved_model import MODEL
from empo_rollout.policy import Networks
from empo_rollout.policyfile import check_fit, load_policy
from empo_rollout.world_policies import chances, forgetful
from empo_world_environments.observation import WorldObservation
from empo_world_environments.vector import WorldVectorEnv


class LearnedHumans:
    """Learned policies of humans for each goal; an ``empo_core.protocols.HumanPrior``."""

    def __init__(self, world: WorldModel, policy: Networks, exploration: float = 0.0) -> None:
        """Act by a policy, and in a share ``exploration`` of the time evenly at random.

        Raises:
            ValueError: if the policy has a memory, and no state says what would be in it.
        """
        self._world, self._sight = world, WorldObservation(world.spec, "humans")
        self._policy, self._exploration = forgetful(policy), exploration

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human pursuing that goal."""
        spec, sight = self._world.spec, self._sight
        features = sight.features(states)
        options = sight.options(self._world.available(states))
        policies = torch.zeros(len(states), len(spec.goals), sight.num_options, dtype=torch.float64)
        for index, goal in enumerate(spec.goals):
            learner = spec.humans.index(goal.human)
            observation = sight.observation(
                features, steps_left, learner, torch.full_like(steps_left, index)
            )
            mine = options[:, learner]
            even = mine.to(torch.float64) / mine.sum(1, keepdim=True)
            learned = chances(self._policy, observation, mine, learner)
            policies[:, index] = self._exploration * even + (1 - self._exploration) * learned
        return policies.to(torch.float32)  # As for robots.


class GoalPpo(LearnedHumans):
    """The humans of a run with ``learners: humans``; an ``empo_core.protocols.HumanPrior``."""

    def __init__(self, params: GoalPpoParams, world: WorldModel) -> None:
        """Load humans that learned in this very world.

        Raises:
            StorageError: if the policies are missing or damaged, learned in another world, or
                remember.
        """
        path = policy_path(params.file)
        saved = load_policy(path)
        if saved.world is None:
            raise StorageError(
                f"{path}: holds no humans; give a run of 'rollout' with learners: humans that has "
                f"finished, or its {RESULTS}/{MODEL}"
            )
        differs = difference(saved.world, identity(world))
        if differs is not None:
            raise StorageError(
                f"{path}: was learned in another world than this {world.spec.name!r}: {differs}; "
                "let humans learn in this one"
            )
        env_spec = WorldVectorEnv(world, copies=1, learners="humans").spec
        check_fit(path, saved.env_spec, env_spec, saved.params)
        try:
            super().__init__(world, saved.policy, params.exploration)
        except ValueError as error:
            raise StorageError(f"{path}: {error}") from error


def policy_path(path: Path) -> Path:
    """The file of a policy, given as such or as the directory of its run."""
    return existing_run(path) / RESULTS / MODEL if (path / CONFIG).is_file() else path
