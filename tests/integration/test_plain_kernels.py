"""The exact solver without hand-written vector instructions reproduces the golden numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_plain_kernels_reproduce_the_golden_numbers() -> None:
    """In another process, since the choice of kernels is made when they are imported."""
    file = Path(__file__).with_name("test_reference_numbers.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "golden", str(file)],
        # Compiled without optimisation, which takes two thirds of the time.
        env={**os.environ, "EMPO_PLAIN_KERNELS": "1", "NUMBA_OPT": "0"},
        capture_output=True, text=True, check=False, cwd=file.parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
