"""Learned policies as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, JsonValue

from empo_core.errors import StorageError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_core.runs.atomic import StrictModel
from empo_learning.saved_model import Format, load_weights, read_model, rebuilding, write_model
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, ObservationNormalisation, blank_policy

FORMAT = Format("empo-rollout-policy", 1)
POLICY = "policy.safetensors"
NORMALISATION = "normalisation."
"""How names of the policy's statistics of observations begin."""


class _Observations(StrictModel):
    words: int = Field(ge=1)
    dtype: Literal["float32", "uint8"]
    grid: list[int] | None = Field(min_length=3, max_length=3)
    scale: float = Field(gt=0)


class _Actions(StrictModel):
    choices: list[int]
    low: list[float | None] = Field(description="None: no bound, which JSON has no number for.")
    high: list[float | None]


class _Spec(StrictModel):
    observations: _Observations
    actions: _Actions
    agents: list[str] = Field(min_length=1)
    masks: bool


class _Body(StrictModel):
    params: dict[str, JsonValue]
    env_spec: _Spec
    world: dict[str, JsonValue] | None
    normalise_clip: float | None = Field(
        gt=0, description="Bound of normalised observations; None: they are not normalised."
    )
    maps_actions: bool = Field(
        False, description="Whether outputs are mapped to finite bounds; older files do not say."
    )


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
    normalisation = policy.normalisation
    body = _Body(
        params=params.model_dump(mode="json"),
        env_spec=_described(env_spec),
        world=None if world is None else dict(world),
        normalise_clip=None if normalisation is None else normalisation.clip,
        maps_actions=policy.action_map is not None,
    )
    weights, statistics = {}, {}
    for name, tensor in policy.state_dict().items():
        if name.startswith(NORMALISATION):
            statistics[name.removeprefix(NORMALISATION)] = tensor
        else:
            weights[name] = tensor
    write_model(Path(path), FORMAT, body, weights, statistics=statistics)


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
    saved = read_model(path, FORMAT, _Body)
    with rebuilding(path, "empo-rollout"):
        learned = _spec_of(saved.body.env_spec)
        params = PolicyParams.model_validate(saved.body.params)
        # On ``meta``, so that shapes are compared before memory is taken.
        policy = blank_policy(params, learned, _blank_normalisation(learned, saved.body))
        statistics = {f"{NORMALISATION}{name}": tensor for name, tensor in saved.statistics.items()}
        load_weights(policy, {**saved.weights, **statistics}, assign=True)
    if not saved.body.maps_actions:
        policy.action_map = None
    if env_spec is not None:
        check_fit(path, learned, env_spec, params)
    return SavedPolicy(policy, params, learned, saved.body.world)


def _blank_normalisation(learned: EnvSpec, body: _Body) -> ObservationNormalisation | None:
    """A normalisation of observations without numbers, where the policy has one."""
    if body.normalise_clip is None:
        return None
    mean, variance = torch.empty(2, learned.observations.words, dtype=torch.float64, device="meta")
    return ObservationNormalisation(mean, variance, body.normalise_clip)


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
                f"{path}: was learned where {part} were {recorded}, and does not fit {part} that "
                f"are {actual}; use it where it was learned, or learn another"
            )


def _described(env_spec: EnvSpec) -> _Spec:
    observations, actions = env_spec.observations, env_spec.actions
    return _Spec(
        observations=_Observations(
            words=observations.words,
            dtype=observations.dtype,
            grid=None if observations.grid is None else [*observations.grid],
            scale=observations.scale,
        ),
        actions=_Actions(
            choices=[*actions.choices],
            low=[_finite(bound) for bound in actions.low],
            high=[_finite(bound) for bound in actions.high],
        ),
        agents=[*env_spec.agents],
        masks=env_spec.masks,
    )


def _spec_of(recorded: _Spec) -> EnvSpec:
    observations, actions = recorded.observations, recorded.actions
    grid = (
        None
        if observations.grid is None
        else (observations.grid[0], observations.grid[1], observations.grid[2])
    )
    return EnvSpec(
        observations=ObservationSpec(
            observations.words, observations.dtype, grid, observations.scale
        ),
        actions=ActionSpec(
            tuple(actions.choices),
            tuple(-math.inf if bound is None else bound for bound in actions.low),
            tuple(math.inf if bound is None else bound for bound in actions.high),
        ),
        agents=tuple(recorded.agents),
        num_envs=1,
        masks=recorded.masks,
    )


def _finite(bound: float) -> float | None:
    return float(bound) if math.isfinite(bound) else None
