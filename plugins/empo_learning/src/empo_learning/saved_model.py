"""Weights in a directory with a manifest that says what they belong to; without any pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import safetensors.torch
from torch import Tensor

from empo_core.storage.atomic import (
    MANIFEST,
    FileEntry,
    FileOps,
    StrictModel,
    found_directory,
    read_checked,
    read_sealed,
    refuse_surplus,
    sealed_json,
    write_synced,
    written_directory,
)
from empo_learning.finite import check_finite

WEIGHTS = "weights.safetensors"
MAX_BYTES = 2**34


class Format(NamedTuple):
    """Format name and version of a directory.

    Attributes:
        name: E.g. ``empo-rollout-policy``.
        version: Of its manifest.
    """

    name: str
    version: int


class WeightsBody(StrictModel):
    """Body of a manifest; formats add what the weights belong to."""

    weights: FileEntry


Body = TypeVar("Body", bound=WeightsBody)


def write_weights(
    path: Path,
    format_: Format,
    state_dict: Mapping[str, Tensor],
    describe: Callable[[FileEntry], WeightsBody],
    ops: FileOps,
) -> None:
    """Write weights and the manifest about them.

    Args:
        path: The directory; an older one there is replaced at once or not at all.
        format_: What it is.
        state_dict: The weights, on any device.
        describe: Makes the manifest's body, given the entry of the file of weights.
        ops: What writes.

    Raises:
        NonFiniteError: A weight is not finite.
        StorageError: The disk refuses, or something else has that place.
    """
    tensors = {name: each.detach().cpu().contiguous().clone() for name, each in state_dict.items()}
    check_finite(tensors, "a weight to be saved")
    with written_directory(path, ops) as new:
        entry = write_synced(new / WEIGHTS, safetensors.torch.save(tensors), ops)
        sealed = sealed_json(path, *format_, describe(entry).model_dump(mode="json"))
        write_synced(new / MANIFEST, sealed, ops)


def read_weights(path: Path, format_: Format, model: type[Body]) -> tuple[Path, Body, bytes]:
    """The directory where it was found, the manifest's body, and the bytes of the weights.

    Raises:
        StorageError: It is missing, damaged, foreign, or written by another version.
    """
    directory = found_directory(path)
    body = read_sealed(directory / MANIFEST, *format_, model)
    refuse_surplus(directory, {MANIFEST, WEIGHTS})
    return directory, body, read_checked(directory / WEIGHTS, body.weights, max_bytes=MAX_BYTES)
