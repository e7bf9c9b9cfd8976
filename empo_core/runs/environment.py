"""The environment of a run, which its results may depend on: versions, machine, commit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from empo_core.config import RunConfig
from empo_core.plugins.registry import Registry
from empo_core.trees import JsonData

RECORDED = ("python", "platform", "versions", "compilers", "plugins", "git")
"""What ``env.json`` says again of each time that a run goes on with something else."""


def differences(recorded: Mapping[str, object], current: Mapping[str, object]) -> Iterator[str]:
    """What differs between two environments, as ``name: one, now another``."""
    if recorded.get("python") != current.get("python"):
        yield f"Python {recorded.get('python')}, now {current.get('python')}"
    for group in ("versions", "compilers", "plugins"):
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
        "versions": {name: _version(name) for name in ("empo-core", "torch", "numpy")},
        "compilers": {name: _version(name) for name in ("numba", "llvmlite")},
        "plugins": {provider.distribution: provider.version for provider in registry.providers},
        "git": _git_commit_here(),
    }


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _git_commit_here() -> str | None:
    """The commit of the working directory, with ``+`` where it has uncommitted changes."""
    try:
        return _git_commit(Path.cwd())
    except (OSError, subprocess.SubprocessError):
        return None


@cache  # Code that was imported stays as it is, and a sweep has thousands of runs.
def _git_commit(folder: Path) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    commit = _output(git, "-C", str(folder), "rev-parse", "HEAD")
    changed = _output(git, "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changed else "")


def _output(*command: str) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return completed.stdout.strip()
