"""Digests of the contents of worlds and files that a sweep's configs name."""

from __future__ import annotations

from pathlib import Path

from empo_core.components import build_world
from empo_core.config import RunConfig
from empo_core.errors import EmpoError
from empo_core.runs.atomic import entry_of
from empo_core.runs.inputs import Inputs
from empo_core.trees import Json
from empo_core.world_content import world_digest


class Contents:
    """Works out each digest once; a file that changes while it is asked counts as it was first."""

    def __init__(self) -> None:
        self._worlds: dict[object, str | None] = {}
        self._files: dict[Path, str] = {}

    def of(self, config: RunConfig) -> dict[str, Json]:
        """The digest of a config's world, and those of all other files that it names, by place.

        Of worlds of one model and of the same files the first stands for all: in what else they
        differ is in their params. Files of a world that cannot be built count by themselves.

        Raises:
            StorageError: if a file cannot be read.
        """
        files = Inputs(config).files
        of_world: list[Path] = []
        world = None
        if config.world_model is not None:
            of_world = list(Inputs(config.world_model).files.values())
            key = config.world_model.name, *of_world
            if key not in self._worlds:
                self._worlds[key] = _world(config)
            world = self._worlds[key]
        file_digests = {
            place: self._file(path)
            for place, path in files.items()
            if world is None or path not in of_world
        }
        return {"world": world, "files": dict(file_digests)}

    def _file(self, path: Path) -> str:
        if path not in self._files:
            self._files[path] = entry_of(path.resolve()).sha256
        return self._files[path]


def _world(config: RunConfig) -> str | None:
    try:
        world = build_world(config)
    except EmpoError:
        return None  # The trial says why.
    return None if world is None else world_digest(world)
