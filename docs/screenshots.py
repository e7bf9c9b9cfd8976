"""Pictures of the inspector for its page: ``python docs/screenshots.py [--runs FOLDER]``.

It solves one world, learns in another, and takes pictures of their pages in the system's
Chromium. Needs playwright.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
COLOURS = 200
RUNS = {
    "solved": ["examples/free_the_human.yaml"],
    "learned": [
        "examples/learn_trivial.yaml",
        "algorithm.params.total_steps=900",
    ],
}
"""Words for ``empo run``."""
PICTURES = {
    "robots": ("solved", 1280, "inspector.select({view: 'robot'})"),
    "why": ("solved", 1280, "inspector.select({view: 'why'})"),
    "successors": ("solved", 1280, "inspector.move(2), inspector.select({view: 'next'})"),
    "human": ("solved", 1280, "inspector.select({view: 'human', goal: 3, map: 'difference'})"),
    "learned": ("learned", 1280, "inspector.select({view: 'robot', map: 'error'})"),
    "errors": ("learned", 1280, "inspector.select({view: 'errors', map: 'error'})"),
    "narrow": ("solved", 400, "inspector.select({view: 'robot'})"),
}
"""Name of each picture: its run, the width of the window, and what is selected."""


def page_of(name: str, runs: Path) -> Path:
    """The page of a run, which is made unless it is there."""
    folder = runs / name
    if not folder.exists():
        words = [*RUNS[name], f"runs={folder}", "--quiet"]
        subprocess.run([sys.executable, "-m", "empo_core", "run", *words], cwd=ROOT, check=True)
    (directory,) = folder.iterdir()
    return directory / "inspector.html"


def picture(browser: Browser, page: Path, width: int, select: str) -> bytes:
    """A PNG, of few colours, of the upper part of a page."""
    height = 900 if width > 800 else 1500
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready=yes]", state="attached")
    tab.evaluate(f"() => {{{select}}}")
    tab.wait_for_selector("[data-busy]", state="detached")
    shot = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    tab.close()
    small = io.BytesIO()
    shot.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="Where runs are, or are left.")
    runs = parser.parse_args().runs or Path(tempfile.mkdtemp())
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (run, width, select) in PICTURES.items():
            file = ROOT / "docs" / "images" / f"inspector_{name}.png"
            file.write_bytes(picture(browser, page_of(run, runs.resolve()), width, select))
        browser.close()


if __name__ == "__main__":
    main()
