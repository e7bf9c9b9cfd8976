"""Problems of one world file, collected so that people see all of them at once."""

from __future__ import annotations

import logging
from pathlib import Path

from empo_core.config.files import joined, located_error
from empo_core.config.yaml import Document, Loc
from empo_core.errors import ConfigError
from empo_multigrid.plugin import MultigridParams
from empo_worlds.grid.maps import Token, map_error

MAX_SHOWN = 20
_log = logging.getLogger(__name__)


class Problems:
    """Located problems; ``check`` raises them, and so does the last that is shown."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._errors: list[ConfigError] = []

    def add(self, loc: Loc, reason: str) -> None:
        """Note that the value at ``loc`` cannot be used."""
        self._append(located_error(self._document, loc, reason))

    def add_in_map(self, cell: Token, reason: str) -> None:
        """Note that a cell of the map cannot be used."""
        self._append(map_error(self._document, cell, reason))

    def _append(self, error: ConfigError) -> None:
        self._errors.append(error)
        if len(self._errors) == MAX_SHOWN:  # Looking for more would take time and tell little.
            self.check()

    def warn(self, loc: Loc, reason: str) -> None:
        """Log that the value at ``loc`` is most likely a mistake; existing files have such values.

        Of the library's worlds, which follow published ones, it is known.
        """
        if Path(self._document.name).is_relative_to(MultigridParams.library):
            return
        key = ".".join(str(part) for part in loc)
        _log.warning("%s: %s: %s", self._document.place(loc), key, reason)

    def check(self) -> None:
        """Raise what was found.

        Raises:
            ConfigError: if something was wrong.
        """
        if self._errors:
            raise joined(self._errors)
