"""The walks through the house name files that exist, and enter each of them once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/walks.md"
FILE = re.compile(r"`([\w./]+\.py)`")
FOLDER = re.compile(r"files are those of `([\w./]+)`")


def walks() -> dict[str, str]:
    """Text of each walk by its heading."""
    parts = re.split(r"^## (The walk of .*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def folder_of(name: str) -> Path:
    """The folder that a walk is about; that of a batch goes on where an experience ends."""
    texts = walks()
    found = FOLDER.search(texts[name]) or FOLDER.search(texts["The walk of an experience"])
    assert found is not None
    return ROOT / found[1]


def test_the_page_has_the_four_walks() -> None:
    assert list(walks()) == [
        "The walk of a config", "The walk of a world",
        "The walk of an experience", "The walk of a batch",
    ]  # fmt: skip


@pytest.mark.parametrize("name", walks())
def test_every_file_of_a_walk_exists(name: str) -> None:
    places = [ROOT, folder_of(name), folder_of(name) / "replay", ROOT / "empo_core"]
    places.append(ROOT / "empo_core/config")
    files = FILE.findall(walks()[name])
    assert len(files) > 4
    assert [file for file in files if not any((place / file).is_file() for place in places)] == []


@pytest.mark.parametrize("name", walks())
def test_no_file_is_entered_twice(name: str) -> None:
    steps = re.findall(r"^\d+\. `?([^`:]+)", walks()[name], flags=re.M)
    assert len(set(steps)) == len(steps) > 3
