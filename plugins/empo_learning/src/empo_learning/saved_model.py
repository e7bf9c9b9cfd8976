"""Saved models: one safetensors file each, with a sealed JSON header; nothing is unpickled.

The metadata of the file has one entry, ``empo``, whose JSON holds the sort of model, the version of
its format, a sha256 of everything else, and a body: what it takes to build the model again. Names
of tensors begin with ``weights/``, or with ``statistics/`` for what the environments have learned
about observations and rewards, such as running means.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import safetensors.torch
import torch
from pydantic import BaseModel, JsonValue, ValidationError
from torch import Tensor, nn

from empo_core.errors import EmpoError, StorageError
from empo_core.runs.atomic import (
    Sealed,
    StrictModel,
    parse_json,
    refused,
    sealed,
    validated,
    write_file,
)
from empo_core.runs.files import open_regular, refuse_gone
from empo_learning.finite import check_finite

KEY = "empo"
WEIGHTS, STATISTICS = "weights/", "statistics/"

Body = TypeVar("Body", bound=StrictModel)


class Format(NamedTuple):
    """Sort of model and version of its body.

    Attributes:
        name: E.g. ``empo-rollout-policy``.
        version: Of the body.
    """

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class SavedModel(Generic[Body]):
    """Contents of a saved model.

    Attributes:
        body: What it takes to build the model again.
        weights: The state of the model by name, on the CPU.
        statistics: Statistics of environments by name; empty where they keep none.
    """

    body: Body
    weights: dict[str, Tensor]
    statistics: dict[str, Tensor] = field(default_factory=dict)


def write_model(
    path: Path,
    format_: Format,
    body: BaseModel,
    weights: Mapping[str, Tensor],
    *,
    statistics: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model; its folder is made if missing.

    Args:
        path: The file; an older one is replaced at once or not at all.
        format_: The sort of model.
        body: What it takes to build the model again.
        weights: The state of the model by name, on any device.
        statistics: Statistics of environments by name.

    Raises:
        NonFiniteError: if a number is not finite.
        StorageError: if the disk refuses, or something else has that place.
    """
    check_finite(weights, "a weight to be saved")
    check_finite(statistics or {}, "a statistic to be saved")
    named = {WEIGHTS + name: tensor for name, tensor in weights.items()}
    named |= {STATISTICS + name: tensor for name, tensor in (statistics or {}).items()}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
    content = body.model_dump(mode="json")
    header = Sealed(
        format=format_.name,
        version=format_.version,
        sha256=_seal(tensors, format_, content),
        body=content,
    )
    raw = safetensors.torch.save(tensors, {KEY: json.dumps(header.model_dump(), allow_nan=False)})
    refuse_gone(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(path, error) from error
    write_file(path, raw)


def read_model(path: Path, format_: Format, body: type[Body]) -> SavedModel[Body]:
    """The model that ``write_model`` wrote.

    Args:
        path: The file.
        format_: The sort of model that it should be.
        body: Checks what it takes to build the model.

    Raises:
        StorageError: if the file is missing, damaged, foreign, or of another version.
    """
    with open_regular(path):
        pass
    try:
        with safetensors.safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise StorageError(f"{path}: is no safetensors file, or damaged: {error}") from error
    if text is None:
        raise StorageError(f"{path}: is a safetensors file, but not a saved model of this library")
    header = sealed(path, parse_json(path, text.encode()), *format_)
    if header.sha256 != _seal(tensors, format_, header.body):
        raise StorageError(f"{path}: is damaged: its sha256 does not match")
    content = validated(path, body, header.body)
    return SavedModel(content, _named(tensors, WEIGHTS), _named(tensors, STATISTICS))


@contextlib.contextmanager
def rebuilding(path: Path, distribution: str) -> Iterator[None]:
    """Report whatever fails while a saved model is built again.

    Args:
        path: Its file.
        distribution: Who wrote it, e.g. ``empo-rollout``.

    Raises:
        StorageError: if something failed.
    """
    try:
        yield
    except StorageError:
        raise
    # Sizes that were never meant fail in as many ways as they can be wrong.
    except (EmpoError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = _reasons(error) if isinstance(error, ValidationError) else error
        raise StorageError(
            f"{path}: its weights and parameters do not make a model with what is installed here: "
            f"{reason}; it was written by another version of {distribution}, or changed"
        ) from error


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, assign: bool = False) -> None:
    """Give a model its weights.

    Args:
        model: The model.
        weights: Its state by name.
        assign: Take these tensors instead of copying them, e.g. where the model is on ``meta``.

    Raises:
        RuntimeError: if the weights do not fit; the message names one that does not.
    """
    for name, expected in model.state_dict().items():
        if name in weights and weights[name].dtype != expected.dtype:
            raise RuntimeError(f"{name} is {weights[name].dtype}, not {expected.dtype}")
    model.load_state_dict(weights, assign=assign)


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with the prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _seal(tensors: Mapping[str, Tensor], format_: Format, body: Mapping[str, JsonValue]) -> str:
    """The sha256 of a model: its format, its body, and all tensors."""
    digest = hashlib.sha256(json.dumps([*format_, body], sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), [*tensor.shape]]).encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _reasons(error: ValidationError) -> str:
    """All that is wrong, with the place of each in front."""
    reasons = []
    for detail in error.errors(include_url=False):
        where = ".".join(str(part) for part in detail["loc"])
        reasons.append(f"{where}: {detail['msg']}" if where else detail["msg"])
    return "; ".join(reasons)
