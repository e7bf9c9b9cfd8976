"""Publishing policies: files written once, each with a version and a digest.

A file gets its name when it is complete, and only then are actors told its version. So no actor
can see half a policy, whenever the learner is killed; the digest finds what a disk spoils.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from pathlib import Path

import torch
from safetensors.torch import load, save

from empo_core.errors import StorageError, WorkerError
from empo_core.protocols import Weights
from empo_learning.finite import check_finite

_HEADER = struct.Struct("<4sQQ32s")  # Magic, version, length, digest of all but the magic.
_MAGIC = b"EMP1"


class Publisher:
    """The learner's side; keeps the newest two policies, since one may be being read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[Path] = []

    def publish(self, weights: Weights, version: int) -> None:
        """Write the file of a version.

        Raises:
            NonFiniteError: A weight is not finite; nothing was written.
            StorageError: The disk refuses.
        """
        check_finite(weights, f"policy {version}, which was to be published,")
        # Copies, for safetensors refuses tensors that share memory.
        body = save({name: tensor.detach().cpu().clone() for name, tensor in weights.items()})
        path = policy_path(self._directory, version)
        new = path.with_suffix(".new")
        try:
            new.write_bytes(_HEADER.pack(_MAGIC, version, len(body), _digest(version, body)) + body)
            os.replace(new, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise StorageError(
                f"{path}: policy {version} ({len(body):,} bytes) cannot be given to the actors: "
                f"{error}. Free space there, or let the run's directory be elsewhere (runs)."
            ) from error
        self._files.append(path)
        for old in self._files[:-2]:
            with contextlib.suppress(OSError):  # Windows keeps a file that somebody reads.
                old.unlink(missing_ok=True)
                self._files.remove(old)


def policy_path(directory: Path, version: int) -> Path:
    """Where the policy of a version lies."""
    return directory / f"policy-{version}.safetensors"


def read_policy(directory: Path, version: int) -> dict[str, torch.Tensor]:
    """The weights of a version.

    Raises:
        FileNotFoundError: It is not there, or not any more.
        WorkerError: The file is damaged or that of another version.
    """
    path = policy_path(directory, version)
    data = path.read_bytes()
    if len(data) >= _HEADER.size:
        magic, found, length, digest = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        if (magic, found, length) == (_MAGIC, version, len(body)) and digest == _digest(
            version, body
        ):
            return load(body)
    raise WorkerError(
        f"{path}: policy {version} is damaged (its digest, version or length is wrong) and was "
        "not loaded; check the disk"
    )


def _digest(version: int, body: bytes) -> bytes:
    digest = hashlib.blake2b(struct.pack("<QQ", version, len(body)), digest_size=32)
    digest.update(body)
    return digest.digest()


__all__ = ["Publisher", "policy_path", "read_policy"]
