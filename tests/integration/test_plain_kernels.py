"""The exact solver without hand-written vector instructions is as exact as with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXACT = ROOT / "plugins" / "empo_exact" / "tests"
NUMBERS = Path(__file__).with_name("test_reference_numbers.py")
FAIR = Path(__file__).with_name("test_fair_reference.py")
GAMES = [EXACT / "test_random_games.py", EXACT / "test_options.py"]


@pytest.mark.parametrize(
    ("files", "selection"),
    [
        pytest.param([EXACT / "test_simd.py"], "simd", id="instructions"),
        # Nearly all of them is compiling.
        pytest.param([NUMBERS], "golden", id="golden numbers", marks=pytest.mark.slow),
        pytest.param([FAIR], "powers", id="fair objective", marks=pytest.mark.slow),
        pytest.param(
            GAMES,
            "moderate or habit or optimistic or three",
            id="random games and options",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_plain_kernels_are_as_exact(files: list[Path], selection: str) -> None:
    """In another process, since the choice of kernels is made when they are imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", selection, *map(str, files)],
        # Compiled without optimisation, which takes two thirds of the time.
        env={**os.environ, "EMPO_PLAIN_KERNELS": "1", "NUMBA_OPT": "0"},
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
