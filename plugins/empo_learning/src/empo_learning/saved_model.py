"""Saved models: parameters and a state dictionary in one safetensors file; nothing is unpickled.

The metadata of the file has one entry, ``empo``, whose JSON holds the version of the format, a
sha256 of everything else, and what it takes to build the model again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from torch import Tensor, nn

from empo_core.errors import EmpoError, NonFiniteError, StorageError
from empo_core.runs.atomic import Sealed, parse_json, refused, sealed, validated, write_file
from empo_core.runs.files import open_regular, refuse_gone
from empo_learning.finite import check_finite

FORMAT, VERSION = "empo-model", 1
KEY = "empo"
MODEL = "model.safetensors"
"""Name of the file in the results of a run, whatever its learner."""

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class SavedModel(Generic[Spec]):
    """Contents of a saved model.

    Attributes:
        params: The parameters that the model was built from, as JSON data.
        spec: What it sees and does.
        world: Identity of the world that it was learned in; None where another would do as well.
        state: Its state dictionary, on the CPU.
    """

    params: dict[str, JsonValue]
    spec: Spec
    world: dict[str, JsonValue] | None
    state: dict[str, Tensor]


class _Body(BaseModel, Generic[Spec]):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    learner: str
    params: dict[str, JsonValue]
    spec: Spec
    world: dict[str, JsonValue] | None


def write_model(
    path: Path,
    learner: str,
    params: Mapping[str, Any],
    spec: object,
    state: Mapping[str, Tensor],
    *,
    world: Mapping[str, JsonValue] | None = None,
) -> None:
    """Write a model; its folder is made if missing.

    Args:
        path: The file; an older one is replaced at once or not at all.
        learner: The algorithm that learned it, e.g. ``rollout``.
        params: The parameters that it was built from, as JSON data.
        spec: What it sees and does: a dataclass of plain data, or None.
        state: Its state dictionary, on any device.
        world: Identity of the world that it was learned in, where it fits no other.

    Raises:
        NonFiniteError: if a number is not finite.
        StorageError: if the disk refuses, or something else has that place.
    """
    check_finite(state, "a weight to be saved")
    where = None if world is None else dict(world)
    body = _Body[Any](learner=learner, params=dict(params), spec=spec, world=where)
    raw = model_bytes(json.loads(body.model_dump_json()), state)
    refuse_gone(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(path, error) from error
    write_file(path, raw)


def model_bytes(
    body: Mapping[str, JsonValue], state: Mapping[str, Tensor], version: int = VERSION
) -> bytes:
    """The contents of a file with this body, state dictionary and version of the format."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    header = Sealed(
        format=FORMAT, version=version, sha256=_seal(tensors, version, body), body=dict(body)
    )
    metadata = {KEY: json.dumps(header.model_dump(), allow_nan=False)}
    return safetensors.torch.save(tensors, metadata)


def read_model(path: Path, learner: str, spec: type[Spec]) -> SavedModel[Spec]:
    """The model that ``write_model`` wrote.

    Args:
        path: The file.
        learner: The algorithm that should have learned it.
        spec: The type of what it sees and does.

    Raises:
        StorageError: if the file is missing, damaged, foreign, of another version, or by another
            algorithm; or a number is not finite.
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
    header = sealed(path, parse_json(path, text.encode()), FORMAT, VERSION)
    if header.sha256 != _seal(tensors, VERSION, header.body):
        raise StorageError(f"{path}: is damaged: its sha256 does not match")
    if header.body.get("learner") != learner:
        raise StorageError(
            f"{path}: was learned by {header.body.get('learner')!r}, and not by {learner!r}"
        )
    body = validated(path, _Body[spec], header.body)  # type: ignore[valid-type]
    try:
        check_finite(tensors, "a weight")
    except NonFiniteError as error:
        raise StorageError(f"{path}: {error}") from error
    return SavedModel(body.params, body.spec, body.world, tensors)


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


def _seal(tensors: Mapping[str, Tensor], version: int, body: Mapping[str, JsonValue]) -> str:
    """The sha256 of a model: the version of its format, its body, and all tensors."""
    digest = hashlib.sha256(json.dumps([version, body], sort_keys=True).encode())
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
