"""Humans who learned to reach their goals, kept in a folder and used as a human prior.

The folder holds the policy and a manifest that says which world it was learned in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from empo_core.errors import StorageError
from empo_core.protocols import WorldModel
from empo_core.storage.atomic import (
    DISK,
    MANIFEST,
    FileOps,
    StrictModel,
    found_directory,
    read_sealed,
    sealed_json,
    write_synced,
    written_directory,
)
from empo_core.storage.run_directory import CONFIG, RESULTS
from empo_rollout.empowerment.identity import difference, identity
from empo_rollout.empowerment.playback import LearnedHumans
from empo_rollout.empowerment.world_vector import WorldVectorEnv
from empo_rollout.params import PolicyParams
from empo_rollout.plugin import GoalPpoParams
from empo_rollout.policies.networks import Networks
from empo_rollout.policies.policyfile import load_policy, save_policy

FORMAT, VERSION = "empo-rollout-prior", 1
POLICY, PRIOR = "policy", "prior"


class _Body(StrictModel):
    world: dict[str, Any]


def save_prior(
    path: str | Path,
    policy: Networks,
    params: PolicyParams,
    world: WorldModel,
    *,
    ops: FileOps = DISK,
) -> None:
    """Write humans into a folder, from which prior ``goal-ppo`` reads them.

    Args:
        path: The folder; an older one is replaced at once or not at all.
        policy: What was learned with ``learners: humans``.
        params: What it is made of.
        world: What it was learned in.
        ops: What writes.

    Raises:
        NonFiniteError: A weight is not finite.
        StorageError: The disk refuses, or something else has that place.
    """
    path = Path(path)
    env_spec = WorldVectorEnv(world, copies=1, learners="humans").spec
    with written_directory(path, ops) as new:
        save_policy(new / POLICY, policy, params, env_spec, ops=ops)
        body = _Body(world=identity(world))
        write_synced(
            new / MANIFEST, sealed_json(path, FORMAT, VERSION, body.model_dump(mode="json")), ops
        )


class GoalPpo(LearnedHumans):
    """The humans of a run with ``learners: humans``; an ``empo_core.protocols.HumanPrior``."""

    def __init__(self, params: GoalPpoParams, world: WorldModel) -> None:
        """Load them.

        Args:
            params: Where they are.
            world: Where they are to act: the world that they learned in.

        Raises:
            StorageError: They are missing or damaged, learned in another world, or remember.
        """
        path = params.file
        if (path / CONFIG).is_file():
            path = path / RESULTS / PRIOR
        directory = found_directory(path)
        if not (directory / MANIFEST).is_file():
            raise StorageError(
                f"{path}: holds no humans: it has no {MANIFEST}; give a run of 'rollout' with "
                f"learners: humans that has finished, or its {RESULTS}/{PRIOR} folder"
            )
        known = read_sealed(directory / MANIFEST, FORMAT, VERSION, _Body).world
        differs = difference(known, identity(world))
        if differs is not None:
            raise StorageError(
                f"{path}: was learned in another world than this {world.spec.name!r}: {differs}; "
                "let humans learn in this one"
            )
        env_spec = WorldVectorEnv(world, copies=1, learners="humans").spec
        saved = load_policy(directory / POLICY, env_spec)
        try:
            super().__init__(world, saved.policy, params.exploration)
        except ValueError as error:
            raise StorageError(f"{path}: {error}") from error
