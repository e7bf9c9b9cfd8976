"""Software of a node, which must be that of the machine that the run was started on."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib import metadata

_GROUP = "empo"
_ALWAYS = ("empo-core", "numpy", "torch")


def software() -> dict[str, str]:
    """Names and versions of what must agree; read from metadata, so that nothing is imported."""
    names = {point.dist.name for point in metadata.entry_points(group=_GROUP) if point.dist}
    versions = {"Python": platform.python_version(), "byte order": sys.byteorder}
    return versions | {name: _version(name) for name in sorted({*_ALWAYS, *names})}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """One clause per difference that could change results or break a worker.

    A node may have more plugins, another patch release of Python, and one of numpy.
    """
    return [
        f"{name} is {version} here and {theirs.get(name, 'missing')} there"
        for name, version in ours.items()
        if _compared(name, version) != _compared(name, theirs.get(name, "missing"))
    ]


def _compared(name: str, version: str) -> str:
    return ".".join(version.split(".")[:2]) if name in ("Python", "numpy") else version


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
