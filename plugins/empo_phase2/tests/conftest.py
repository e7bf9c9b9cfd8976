"""Makes the little world and its exact values importable by the tests of this folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from empo_core.config import installed

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs ``door_components`` as plugins are installed."""
    info = tmp_path / "site" / "empo_door_components-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: empo-door-components\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text("[empo]\nempo-door-components = door_components\n")
    monkeypatch.syspath_prepend(str(info.parent))
    installed.cache_clear()
    yield
    installed.cache_clear()
