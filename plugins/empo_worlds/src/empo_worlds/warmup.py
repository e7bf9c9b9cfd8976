"""Kernels compiled before they are used: this distribution's, and those of all plugins."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from empo_core.config import installed, library_files
from empo_core.documents import build_named
from empo_core.errors import EmpoError, PluginLoadError, event
from empo_core.protocols import WorldModel
from empo_worlds.compilation import kernels
from empo_worlds.row_table import RowTable
from empo_worlds.symmetry_group import keep_less


@dataclass(frozen=True)
class Warmed:
    """Kernels that one plugin has called.

    Attributes:
        distribution: The plugin's.
        compiled: Number of kernels that were compiled.
        loaded: Number of kernels that were kept before, and are loaded.
        seconds: Duration.
    """

    distribution: str
    compiled: int
    loaded: int
    seconds: float


def warm_up() -> Iterator[Warmed]:
    """Call the hook ``empo_kernels`` of every plugin, one after the other.

    Raises:
        PluginLoadError: if a hook raises something that is no error of EMPO.
    """
    for hook in installed().kernel_hooks:
        start, before = time.perf_counter(), _counts()
        try:
            hook.load()()
        except EmpoError:
            raise
        except Exception as error:
            raise PluginLoadError(
                f"the hook empo_kernels of {hook.provider.distribution} {event(error)}"
            ) from error
        compiled, loaded = (now - then for now, then in zip(_counts(), before, strict=True))
        seconds = time.perf_counter() - start
        yield Warmed(hook.provider.distribution, compiled, loaded, seconds)


def folders() -> list[Path]:
    """The folders in which machine code of the kernels in this process is kept."""
    return sorted({Path(path) for kernel in kernels if (path := kernel._cache.cache_path)})


def small_worlds() -> Iterator[tuple[str, WorldModel]]:
    """Name and world: of every world model that comes with worlds, one that is quickly solved.

    That is the one with the fewest agents, and of these the one with the fewest steps.
    """

    def size(world: WorldModel) -> tuple[int, float]:
        return len(world.spec.agents), world.spec.horizon or math.inf

    registry = installed()
    for model in registry.names("world_model"):
        files = library_files(registry, "world_model", model)
        worlds = [(f"{model}/{stem}", build_named(model, path)) for stem, path in files.items()]
        worlds = [entry for entry in worlds if entry[1].spec.humans and entry[1].spec.robots]
        if worlds:
            yield min(worlds, key=lambda entry: size(entry[1]))


def compile_kernels() -> None:
    """Compile the kernels of this distribution."""
    rows = np.arange(4096 * 4, dtype=np.int16).reshape(4096, 4)
    for dtype in (np.int16, np.int32, np.int64):
        for words in (1, 4):  # Rows are compared by pieces of 2, 4 or 8 bytes.
            columns = np.ascontiguousarray(rows[:, :words], dtype)
            RowTable.of(columns).find(columns)
        keep_less(rows.astype(dtype), rows.astype(dtype), 1, np.zeros(len(rows), np.int64))


def _counts() -> tuple[int, int]:
    """Numbers of kernels that were compiled, and that were loaded, in this process."""
    stats = [kernel.stats for kernel in kernels]
    return (
        sum(sum(stat.cache_misses.values()) for stat in stats),
        sum(sum(stat.cache_hits.values()) for stat in stats),
    )
