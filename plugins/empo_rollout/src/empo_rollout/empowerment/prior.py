"""Humans who learned to reach their goals, used as a human prior."""

from __future__ import annotations

from pathlib import Path

from empo_core.errors import StorageError
from empo_core.protocols import WorldModel
from empo_core.runs.directory import CONFIG, RESULTS, existing_run
from empo_core.world_content import difference, identity
from empo_learning.saved_model import MODEL
from empo_rollout.empowerment.playback import LearnedHumans
from empo_rollout.policyfile import check_fit, load_policy
from empo_rollout.ppo_params import GoalPpoParams
from empo_world_environments.vector import WorldVectorEnv


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
