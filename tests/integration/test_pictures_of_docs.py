"""Pictures in the docs show what the code draws now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
EXACT = [
    ("free_the_human.png", "free_the_human.gif"),
    pytest.param(("key_and_door.gif",), marks=pytest.mark.slow),
    pytest.param(("thicket.gif",), marks=pytest.mark.slow),
    pytest.param(("two_rocks.png",), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/build_pictures.py"))


def frames(path: Path) -> list[Any]:
    with Image.open(path) as picture:
        return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]


def test_every_picture_is_drawn_by_the_script_and_shown(script: dict[str, Any]) -> None:
    # The inspector's are taken in a browser, by docs/screenshots.py.
    names = {path.name for path in IMAGES.iterdir() if not path.name.startswith("inspector_")}
    assert names == {*script["PICTURES"], *script["SCRIPTS"]}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert names <= set(re.findall(r"images/(\S+)\)", text))


@pytest.mark.slow
@pytest.mark.parametrize("names", EXACT, ids=" ".join)
def test_pictures_of_exact_runs_are_current(
    names: tuple[str, ...], script: dict[str, Any], tmp_path: Path
) -> None:
    script["draw"](names, tmp_path)
    for name in names:
        drawn, kept = frames(tmp_path / name), frames(IMAGES / name)
        assert len(drawn) == len(kept)
        assert all(map(np.array_equal, drawn, kept)), f"run: python docs/build_pictures.py {name}"
