"""Learned policies as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from empo_core.errors import StorageError
from empo_core.protocols.environments import EnvSpec
from empo_learning.saved_model import load_weights, read_model, rebuilding, write_model
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, ObservationNormalisation, blank_policy


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """Result of ``load_policy``.

    Attributes:
        policy: The networks, on the CPU.
        params: What they are made of.
        env_spec: What they were made for, as if there were one environment.
        world: Identity of the world in which humans learned; None otherwise.
    """

    policy: Networks
    params: PolicyParams
    env_spec: EnvSpec
    world: dict[str, JsonValue] | None = None


def save_policy(
    path: str | Path,
    policy: Networks,
    params: PolicyParams,
    env_spec: EnvSpec,
    *,
    world: Mapping[str, JsonValue] | None = None,
) -> None:
    """Write a policy into a file.

    Args:
        path: The file; an older policy there is replaced at once or not at all.
        policy: What ``build_policy(params, env_spec)`` made, trained or not.
        params: What it is made of.
        env_spec: What it acts in.
        world: Identity of the world, where it was humans that learned: they can be a human prior.

    Raises:
        NonFiniteError: if a weight is not finite.
        StorageError: if the disk refuses, or something else has that place.
    """
    single = replace(env_spec, num_envs=1, num_blocks=1)
    described = params.model_dump(mode="json")
    write_model(Path(path), "rollout", described, single, policy.state_dict(), world=world)


def load_policy(path: str | Path, env_spec: EnvSpec | None = None) -> SavedPolicy:
    """The policy that ``save_policy`` wrote.

    Args:
        path: The file.
        env_spec: What it is going to act in; None checks nothing.

    Raises:
        StorageError: if the file is missing, damaged, foreign, or written by another version; or
            the policy was learned for other agents, observations or actions.
    """
    path = Path(path)
    saved = read_model(path, "rollout", EnvSpec)
    with rebuilding(path, "empo-rollout"):
        params = PolicyParams.model_validate(saved.params)
        # On ``meta``, so that shapes are compared before memory is taken.
        policy = blank_policy(params, saved.spec, ObservationNormalisation.within(saved.state))
        load_weights(policy, saved.state, assign=True)
    if env_spec is not None:
        check_fit(path, saved.spec, env_spec, params)
    return SavedPolicy(policy, params, saved.spec, saved.world)


def check_fit(path: Path, learned: EnvSpec, here: EnvSpec, params: PolicyParams) -> None:
    """Refuse environments that the policy was not learned for.

    Raises:
        StorageError: if the specs differ; the message names the first difference.
    """
    parts: list[tuple[str, Any, Any]] = [
        ("observations", learned.observations, here.observations),
        ("actions", learned.actions, here.actions),
    ]
    if params.agents == "separate":
        parts.append(("agents", learned.agents, here.agents))
    for part, recorded, actual in parts:
        if recorded != actual:
            raise StorageError(
                f"{path}: was learned where {part} have {_but(recorded, actual)}, and here they "
                f"have {_but(actual, recorded)}; use it where it was learned, or learn another"
            )


def _but(spec: Any, other: Any) -> str:
    """In what a spec differs from another, e.g. ``words 4, grid None``."""
    if not is_dataclass(spec):
        return f"the names {', '.join(spec)}"
    values = {field.name: getattr(spec, field.name) for field in fields(spec) if field.compare}
    return ", ".join(
        f"{key} {value}" for key, value in values.items() if value != getattr(other, key)
    )
