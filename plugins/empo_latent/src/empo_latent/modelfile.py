"""Learned models as saved models (``empo_learning.saved_model``)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from empo_core.plugins.registry import Registry
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.saved_model import load_weights, read_model, rebuilding, write_model


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
    write_model(Path(path), "latent", described, spec, model.state_dict())


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
    saved = read_model(path, "latent", MultiTaskSpec)
    with rebuilding(path, "empo-latent"):
        params = LatentParams.model_validate(saved.params, context={"registry": registry})
        optimistic = params.optimistic_loss is not None
        model = LatentModel(params, saved.spec, generator=torch.Generator(), optimistic=optimistic)
        load_weights(model, saved.state)
    return LoadedModel(model, params, saved.spec)
