"""Learned policies on disk: a directory of weights and a manifest, without any pickle.

``manifest.json`` says what the networks are made of and what they were made for, and has sha256
sums of itself and of ``weights.safetensors``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from empo_core.errors import ConfigError, StorageError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_core.storage.atomic import DISK, FileOps, StrictModel
from empo_learning.saved_model import Format, WeightsBody, read_weights, write_weights
from empo_rollout.params import PolicyParams
from empo_rollout.policies.networks import Networks, blank_policy

FORMAT = Format("empo-rollout-policy", 1)


class _Observations(StrictModel):
    words: int = Field(ge=1)
    dtype: Literal["float32", "uint8"]
    grid: list[int] | None = Field(min_length=3, max_length=3)
    scale: float = Field(gt=0)


class _Actions(StrictModel):
    choices: list[int]
    low: list[float | None] = Field(description="None: no bound, which JSON has no number for.")
    high: list[float | None]


class _Interface(StrictModel):
    observations: _Observations
    actions: _Actions
    agents: list[str] = Field(min_length=1)
    masks: bool


class _Body(WeightsBody):
    params: dict[str, Any]
    interface: _Interface


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """Result of ``load_policy``.

    Attributes:
        policy: The networks, on the CPU.
        params: What they are made of.
        interface: What they were made for, as if there were one environment.
    """

    policy: Networks
    params: PolicyParams
    interface: EnvSpec


def save_policy(
    path: str | Path,
    policy: nn.Module,
    params: PolicyParams,
    interface: EnvSpec,
    *,
    ops: FileOps = DISK,
) -> None:
    """Write a policy into a directory.

    Args:
        path: The directory; an older policy there is replaced at once or not at all.
        policy: What ``build_policy(params, interface)`` made, trained or not.
        params: What it is made of.
        interface: What it acts in.
        ops: What writes.

    Raises:
        NonFiniteError: A weight is not finite.
        StorageError: The disk refuses, or something else has that place.
    """
    described = params.model_dump(mode="json")
    write_weights(
        Path(path),
        FORMAT,
        policy.state_dict(),
        lambda entry: _Body(params=described, interface=_described(interface), weights=entry),
        ops,
    )


def load_policy(path: str | Path, interface: EnvSpec | None = None) -> SavedPolicy:
    """The policy that ``save_policy`` wrote.

    Args:
        path: The directory.
        interface: What it is going to act in; None checks nothing.

    Raises:
        StorageError: It is missing, damaged, foreign, or written by another version; or it was
            learned for other agents, observations or actions.
    """
    directory, body, raw = read_weights(Path(path), FORMAT, _Body)
    learned = _interface_of(body.interface)
    try:
        params = PolicyParams.model_validate(body.params)
        policy = _with_weights(blank_policy(params, learned), safetensors.torch.load(raw))
    except (ValidationError, ConfigError, RuntimeError, SafetensorError) as error:
        raise StorageError(
            f"{directory}: its weights and parameters do not make a policy here ({error}); it was "
            "written by another version of empo-rollout, or changed"
        ) from error
    if interface is not None:
        _check_fit(directory, learned, interface, params)
    return SavedPolicy(policy, params, learned)


def _with_weights(policy: Networks, weights: dict[str, Tensor]) -> Networks:
    """The policy, which had none; shapes are compared before memory is taken."""
    for name, weight in weights.items():
        if weight.dtype != torch.float32:
            raise RuntimeError(f"{name} is {weight.dtype}, not torch.float32")
    copies = {name: weight.clone() for name, weight in weights.items()}
    policy.load_state_dict(copies, assign=True)
    return policy


def _check_fit(path: Path, learned: EnvSpec, here: EnvSpec, params: PolicyParams) -> None:
    """Refuse environments that the policy was not learned for.

    Raises:
        StorageError: They are; the message names the first difference.
    """
    parts: list[tuple[str, Any, Any]] = [
        ("observations", learned.observations, here.observations),
        ("actions", learned.actions, here.actions),
    ]
    if params.agents == "separate":
        parts.append(("agents", learned.agents, here.agents))
    for what, known, found in parts:
        if known != found:
            raise StorageError(
                f"{path}: was learned where {what} were {known}, and does not fit {what} that are "
                f"{found}; use it where it was learned, or learn another"
            )


def _described(interface: EnvSpec) -> _Interface:
    seen, actions = interface.observations, interface.actions
    return _Interface(
        observations=_Observations(
            words=seen.words,
            dtype=seen.dtype,
            grid=None if seen.grid is None else [*seen.grid],
            scale=seen.scale,
        ),
        actions=_Actions(
            choices=[*actions.choices],
            low=[_finite(bound) for bound in actions.low],
            high=[_finite(bound) for bound in actions.high],
        ),
        agents=[*interface.agents],
        masks=interface.masks,
    )


def _interface_of(known: _Interface) -> EnvSpec:
    seen, actions = known.observations, known.actions
    grid = None if seen.grid is None else (seen.grid[0], seen.grid[1], seen.grid[2])
    return EnvSpec(
        observations=ObservationSpec(seen.words, seen.dtype, grid, seen.scale),
        actions=ActionSpec(
            tuple(actions.choices),
            tuple(-math.inf if bound is None else bound for bound in actions.low),
            tuple(math.inf if bound is None else bound for bound in actions.high),
        ),
        agents=tuple(known.agents),
        num_envs=1,
        masks=known.masks,
    )


def _finite(bound: float) -> float | None:
    return float(bound) if math.isfinite(bound) else None
