"""The import contracts of ``pyproject.toml`` with every plugin in them. Run by ``nox -s types``.

``python tests/quality/import_layers.py`` does what ``lint-imports`` does. Import-linter takes no
globs, so the packages of ``plugins/`` are added here: all to the packages that are read, and those
that ``pyproject.toml`` does not place to its shelf "components", where they are independent of each
other. Placed are the foundations below, and above what is made of components.
"""

from __future__ import annotations

import sys
from pathlib import Path

from importlinter.adapters.user_options import TomlFileUserOptionReader
from importlinter.application.app_config import settings
from importlinter.application.use_cases import lint_imports
from importlinter.application.user_options import UserOptions
from importlinter.configuration import configure

ROOT = Path(__file__).parents[2]
SHELVES, COMPONENTS = "shelves", "components"


def packages() -> list[str]:
    """Names of the packages in ``plugins/``."""
    return sorted(path.parent.name for path in ROOT.glob("plugins/*/src/*/__init__.py"))


class CompletedOptions(TomlFileUserOptionReader):
    """The options in ``pyproject.toml``, completed by the plugins."""

    def read_options(self, config_filename: str | None = None) -> UserOptions | None:
        """Read the options; None where the file has none."""
        found = super().read_options(config_filename)
        if found is not None:
            placed = found.session_options["root_packages"]
            components = [name for name in packages() if name not in placed]
            found.session_options["root_packages"] = [*placed, *components]
            for contract in found.contracts_options:
                if contract["name"] == SHELVES:
                    place = contract["layers"].index(COMPONENTS)
                    contract["layers"][place] = " | ".join(components)
        return found


def main() -> int:
    """Check every contract and print a report; the exit status."""
    configure()
    settings.configure(USER_OPTION_READERS={"toml": CompletedOptions()})
    cache = str(ROOT / ".import_linter_cache")
    # The packages need not be installed to be read.
    before, sys.path = sys.path, [*sys.path, *map(str, ROOT.glob("plugins/*/src"))]
    try:
        return int(not lint_imports(str(ROOT / "pyproject.toml"), cache_dir=cache, no_logo=True))
    finally:
        sys.path = before


if __name__ == "__main__":
    sys.exit(main())
