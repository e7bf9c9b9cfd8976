"""The environment of a run, which its results may depend on: versions, machine, commit."""

from __future__ import annotations

import datetime
import logging
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from empo_core.config import RunConfig
from empo_core.errors import StorageError
from empo_core.plugins.registry import Registry
from empo_core.runs.atomic import read_json, strict_json, write_file
from empo_core.trees import JsonData

LIBRARIES = ("empo-core", "torch", "numpy", "numba", "llvmlite")
RECORDED = ("python", "platform", "versions", "plugins", "git")
"""What ``env.json`` says again of each time that a run goes on with something else."""
PARAMS = "params"
"""Key of changed params there: the value before and the value now of each."""

log = logging.getLogger("empo_core")


def record_environment(
    path: Path,
    config: RunConfig,
    registry: Registry,
    changes: Mapping[str, tuple[JsonData, JsonData]] | None = None,
) -> None:
    """Write ``env.json``; to that of a run that goes on, add what differs, and warn of it.

    Args:
        path: The file.
        config: Of the run.
        registry: The components that it may name.
        changes: Changed params of a run that goes on: the value before and the value now.

    Raises:
        StorageError: if the file cannot be written.
    """
    record = current = environment(config, registry)
    if path.exists():
        try:
            before = read_json(path)
            if not isinstance(before, dict):
                raise StorageError(f"{path}: is damaged or not ours")
        except StorageError as error:
            log.warning("%s; what the run began with is not known", error)
            return
        resumed = before.get("resumed")
        attempts = resumed if isinstance(resumed, list) else []
        previous = attempts[-1] if attempts and isinstance(attempts[-1], dict) else before
        differences = list(_differences(previous, current))
        if not (differences or changes):
            return
        if differences:
            log.warning(
                "goes on with other versions than it had (%s); results may differ from those of a "
                "run with one of them",
                ", ".join(differences),
            )
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        attempt = {"time": now, **{key: current[key] for key in RECORDED}}
        if changes:
            attempt[PARAMS] = {key: list(values) for key, values in changes.items()}
        record = {**before, "resumed": [*attempts, attempt]}
    write_file(path, strict_json(record) + "\n")


def missing_plugins(path: Path, registry: Registry) -> list[str]:
    """The plugins that a run had and that are not installed, with versions; none if not known."""
    try:
        record = read_json(path)
    except StorageError:
        return []
    plugins = record.get("plugins") if isinstance(record, dict) else None
    installed = {provider.distribution for provider in registry.providers if not provider.problem}
    names = plugins if isinstance(plugins, dict) else {}
    return [f"{name} {version}" for name, version in names.items() if name not in installed]


def _differences(recorded: Mapping[str, object], current: Mapping[str, object]) -> Iterator[str]:
    """What differs between two environments, as ``name: one, now another``."""
    if recorded.get("python") != current.get("python"):
        yield f"Python {recorded.get('python')}, now {current.get('python')}"
    for group in ("versions", "plugins"):
        old, new = recorded.get(group), current.get(group)
        old, new = (part if isinstance(part, dict) else {} for part in (old, new))
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                yield f"{name} {old.get(name) or 'none'}, now {new.get(name) or 'none'}"


def environment(config: RunConfig, registry: Registry) -> dict[str, JsonData]:
    """Versions and machine facts that a result may depend on besides its config."""
    return {
        "seed": config.seed,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "plugins": {provider.distribution: provider.version for provider in registry.providers},
        "git": _git_commit(Path.cwd()),
    }


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache  # Code that was imported stays as it is, and a sweep has thousands of runs.
def _git_commit(folder: Path) -> str | None:
    """The commit of a folder, with ``+`` where it has uncommitted changes; None: it has none."""
    git = shutil.which("git") or "git"
    try:
        commit = _output(git, "-C", str(folder), "rev-parse", "HEAD")
        changed = _output(git, "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")


def _output(*command: str) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return completed.stdout.strip()


def peak_memory_bytes() -> int:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
