"""Draws the pictures of the docs again: ``python docs/build_pictures.py [NAME...]``.

Without names it draws all, in some ten minutes. Those of exact runs are the same every time,
and a test holds them against what this draws. Other pictures are made by the scripts that
measure what they show, as the pages with them say, and those of inspectors by ``screenshots.py``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DECIDED = ("algorithm=exact", "algorithm.params.preset=paper", "algorithm.params.theory.beta_r=50")
FREE = ("examples/free_the_human.yaml",)
DOOR = ("multigrid/key_and_door", *DECIDED, "algorithm.params.theory.robot_model=optimistic")
BUSHES = ("bushworld/thicket", *DECIDED)

# What is run, and which file of its directory is shown.
PICTURES: dict[str, tuple[Sequence[str], str]] = {
    "free_the_human.png": (FREE, "results/start.png"),
    "free_the_human.gif": (FREE, "results/rollout_0.gif"),
    "key_and_door.gif": (DOOR, "results/rollout_0.gif"),
    "thicket.gif": (BUSHES, "results/rollout_0.gif"),
    "two_rocks.png": (("multigrid/asymmetric_freeing_simple", *DECIDED), "results/start.png"),
    "learn_trivial_gap.png": (("examples/learn_trivial.yaml",), "results/gap.png"),
    "learn_two_rooms_gap.png": (("examples/learn_two_rooms.yaml",), "results/gap.png"),
    "ppo_cartpole_curve.png": (("examples/ppo_cartpole.yaml",), "results/curve.png"),
    "ppo_multigrid_curve.png": (("examples/ppo_multigrid.yaml",), "results/curve.png"),
}
INSPECTORS: dict[str, tuple[Sequence[str], str]] = {
    "free_the_human.html": (FREE, "inspector.html"),
    "thicket.html": (BUSHES, "inspector.html"),
    "commitment.html": (("table/commitment", *DECIDED), "inspector.html"),
}
SCRIPTS = {
    "choosing_an_objective.png": "examples/choose_objective.py",
    "compare_beta_r.png": "examples/compare_beta_r.py",
    "minigrid_maps.png": "examples/minigrid_maps.py",
    "disempower.png": "examples/benchmarks/disempower_picture.py",
    "disempower_variations.png": "examples/benchmarks/disempower_variations.py",
}


def draw(names: Sequence[str], target: Path) -> None:
    """Run what these pictures show, and put them into a folder."""
    files = PICTURES | INSPECTORS
    runs: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if name in SCRIPTS:
            subprocess.run([sys.executable, ROOT / SCRIPTS[name], target / name], check=True)
            for kind in (".svg", ".pdf"):
                (target / name).with_suffix(kind).unlink()
        else:
            runs.setdefault(tuple(files[name][0]), []).append(name)
    for arguments, shown in runs.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "empo_core", "run", *arguments, f"runs={folder}", "-q"]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            (directory,) = Path(folder).iterdir()
            for name in shown:
                shutil.copyfile(directory / files[name][1], target / name)


if __name__ == "__main__":
    draw(sys.argv[1:] or [*PICTURES, *SCRIPTS], ROOT / "docs/images")
