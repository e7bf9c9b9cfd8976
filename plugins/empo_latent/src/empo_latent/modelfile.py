"""Learned models as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import Field, FiniteFloat, JsonValue, TypeAdapter

from empo_core.plugins.registry import Registry
from empo_core.runs.atomic import StrictModel
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.saved_model import Format, load_weights, read_model, rebuilding, write_model

FORMAT = Format("empo-latent-model", 2)
_SPEC = TypeAdapter(MultiTaskSpec)


class _Spec(StrictModel):
    words: int = Field(ge=1)
    pictures: bool
    shape: list[int]
    actions: int = Field(ge=1)
    active: list[list[bool]]
    sizes: list[int]
    bounds: list[list[list[FiniteFloat]]]
    tasks: list[str] = Field(min_length=1)
    action_repeats: list[int]
    episode_lengths: list[int]
    scale: float = Field(gt=0)


class _Body(StrictModel):
    params: dict[str, JsonValue]
    spec: _Spec


class LoadedModel(NamedTuple):
    """Result of ``load_model``.

    Attributes:
        model: The networks, on the CPU.
        params: Of the run that learned them; what they are made of is among them.
        spec: What they see and do.
    """

    model: LatentModel
    params: LatentParams
    spec: MultiTaskSpec


def save_model(
    path: str | Path,
    model: LatentModel,
    params: LatentParams,
    spec: MultiTaskSpec,
) -> None:
    """Write a model into a file; an older one there is replaced at once or not at all.

    Raises:
        NonFiniteError: if a weight is not finite.
        StorageError: if the disk refuses, or something else has that place.
    """
    # Python callers may give tasks functions as arguments; a file can only name those.
    described = params.model_dump(mode="json", fallback=repr)
    if model.terminates:  # The head may have been made when an episode terminated.
        described["reward"]["episodic"] = True
    recorded = _Spec.model_validate(_SPEC.dump_python(spec, mode="json"))
    body = _Body(params=described, spec=recorded)
    write_model(Path(path), FORMAT, body, model.state_dict())


def load_model(path: str | Path, *, registry: Registry | None = None) -> LoadedModel:
    """The model that ``save_model`` wrote.

    Args:
        path: The file.
        registry: The components that its parameters may name; default: the installed ones.

    Raises:
        StorageError: if the file is missing, damaged, foreign, or written by another version; or a
            policy loss that the model was learned with is not installed.
    """
    path = Path(path)
    saved = read_model(path, FORMAT, _Body)
    with rebuilding(path, "empo-latent"):
        spec = _spec_of(saved.body.spec)
        params = LatentParams.model_validate(saved.body.params, context={"registry": registry})
        optimistic = params.optimistic_loss is not None
        model = LatentModel(params, spec, generator=torch.Generator(), optimistic=optimistic)
        load_weights(model, saved.weights)
    return LoadedModel(model, params, spec)


def _spec_of(recorded: _Spec) -> MultiTaskSpec:
    per_task = (
        recorded.active,
        recorded.sizes,
        recorded.bounds,
        recorded.action_repeats,
        recorded.episode_lengths,
    )
    used = [sum(row) for row in recorded.active]
    if (
        {len(row) for row in per_task} != {len(recorded.tasks)}
        or {len(row) for row in recorded.active} != {recorded.actions}
        or [len(row) for row in recorded.bounds] != used
        or max(recorded.sizes) > recorded.words
    ):
        raise ValueError("its spec contradicts itself")
    return _SPEC.validate_python(recorded.model_dump())
