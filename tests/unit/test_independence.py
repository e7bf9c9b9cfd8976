"""The core knows no plugin of this repository by name."""

import re
from pathlib import Path

import pytest

from empo_core.config import installed

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
SOURCES = sorted(
    path for path in (ROOT / "empo_core").rglob("*") if path.suffix in {".py", ".tmpl"}
)


def places(pattern: str) -> list[str]:
    """The lines of the core in which a pattern occurs."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_plugin_is_named(folder: str) -> None:
    assert places(rf"\b{folder}\b|\b{folder.replace('_', '-')}\b") == []


def test_no_component_of_a_plugin_is_named() -> None:
    ours = {folder.replace("_", "-") for folder in FOLDERS}
    names = {
        offer.component.name for offer in installed().offers if offer.provider.distribution in ours
    }
    # Words that mean something else, too; their plugins' names are looked for above.
    names -= {"local", "world", "identity", "svg"}
    quoted = "|".join(re.escape(name) for name in sorted(names))
    found = places(rf"[\"'`]({quoted})[\"'`/]|(algorithm|tracker|collector) ``?({quoted})\b")
    # The hook of trackers has this name, too.
    assert [line for line in found if 'self._call_all("progress"' not in line] == []


@pytest.mark.parametrize("word", ["count.unrolled", "warm.?up", r"\bjsonl\b", "tensorboard"])
def test_no_option_or_stage_of_a_plugin_is_named(word: str) -> None:
    found = places(rf"(?i){word}")
    # Trackers come and go, but this file is part of what a run directory is.
    assert [line for line in found if "metrics.jsonl" not in line] == []
