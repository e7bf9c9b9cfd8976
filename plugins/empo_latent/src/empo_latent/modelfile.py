"""Learned models on disk: a directory of weights and a manifest, without any pickle.

``manifest.json`` says what a model is made of and what it was made for, and has sha256 sums of
itself and of ``weights.safetensors``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from empo_core.errors import EmpoError, StorageError
from empo_core.plugins.registry import Registry
from empo_core.storage.atomic import DISK, FileOps, StrictModel
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import Interface
from empo_learning.saved_model import Format, WeightsBody, read_weights, write_weights

FORMAT = Format("empo-latent-model", 1)


class _Interface(StrictModel):
    words: int = Field(ge=1)
    pictures: bool
    shape: list[int]
    actions: int = Field(ge=1)
    active: list[list[bool]]
    tasks: list[str] = Field(min_length=1)
    action_repeats: list[int]
    episode_lengths: list[int]
    scale: float = Field(gt=0)


class _Body(WeightsBody):
    params: dict[str, Any]
    interface: _Interface


class SavedModel(NamedTuple):
    """Result of ``load_model``.

    Attributes:
        model: The networks, on the CPU.
        params: Of the run that learned them; what they are made of is among them.
        interface: What they see and do.
    """

    model: LatentModel
    params: LatentParams
    interface: Interface


def save_model(
    path: str | Path,
    model: LatentModel,
    params: LatentParams,
    interface: Interface,
    *,
    ops: FileOps = DISK,
) -> None:
    """Write a model into a directory.

    Args:
        path: The directory; an older model there is replaced at once or not at all.
        model: What was learned.
        params: What it is made of.
        interface: What it sees and does.
        ops: What writes.

    Raises:
        NonFiniteError: A weight is not finite.
        StorageError: The disk refuses, or something else has that place.
    """
    # Python callers may give tasks functions as arguments; a file can only name those.
    described = params.model_dump(mode="json", fallback=repr)
    write_weights(
        Path(path),
        FORMAT,
        model.state_dict(),
        lambda entry: _Body(params=described, interface=_described(interface), weights=entry),
        ops,
    )


def load_model(path: str | Path, *, registry: Registry | None = None) -> SavedModel:
    """The model that ``save_model`` wrote.

    Args:
        path: The directory.
        registry: The components that its parameters may name; default: the installed ones.

    Raises:
        StorageError: It is missing, damaged, foreign, or written by another version; or a policy
            loss that it was learned with is not installed.
    """
    directory, body, raw = read_weights(Path(path), FORMAT, _Body)
    try:
        interface = _interface_of(body.interface)
        params = LatentParams.model_validate(body.params, context={"registry": registry})
        optimistic = params.optimistic_loss is not None
        model = LatentModel(params, interface, generator=torch.Generator(), optimistic=optimistic)
        _load(model, safetensors.torch.load(raw))
    # Sizes that nobody meant fail in as many ways as they can be wrong.
    except (ValidationError, EmpoError, RuntimeError, ValueError, SafetensorError) as error:
        raise StorageError(
            f"{directory}: its weights and parameters do not make a model here ({error}); it was "
            "written by another version of empo-latent, or changed"
        ) from error
    return SavedModel(model, params, interface)


def _load(model: LatentModel, weights: dict[str, Tensor]) -> None:
    """Give a model its weights.

    Raises:
        RuntimeError: They do not fit; the message names one that does not.
    """
    for name, wanted in model.state_dict().items():
        if name in weights and weights[name].dtype != wanted.dtype:
            raise RuntimeError(f"{name} is {weights[name].dtype}, not {wanted.dtype}")
    model.load_state_dict(weights)


def _described(interface: Interface) -> _Interface:
    return _Interface(
        words=interface.words,
        pictures=interface.pictures,
        shape=list(interface.shape),
        actions=interface.actions,
        active=[list(each) for each in interface.active],
        tasks=list(interface.tasks),
        action_repeats=list(interface.action_repeats),
        episode_lengths=list(interface.episode_lengths),
        scale=interface.scale,
    )


def _interface_of(known: _Interface) -> Interface:
    sizes = {len(known.active), len(known.action_repeats), len(known.episode_lengths)}
    if sizes != {len(known.tasks)} or {len(each) for each in known.active} != {known.actions}:
        raise ValueError("its interface contradicts itself")
    return Interface(
        words=known.words,
        pictures=known.pictures,
        shape=tuple(known.shape),
        actions=known.actions,
        active=tuple(tuple(each) for each in known.active),
        tasks=tuple(known.tasks),
        action_repeats=tuple(known.action_repeats),
        episode_lengths=tuple(known.episode_lengths),
        scale=known.scale,
    )
