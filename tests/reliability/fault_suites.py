"""Kinds that tests of this folder try already: all of their cases, also those that are slow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from fault_kinds import Trial

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def numbers(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """NaN and infinity in weights, moments, rewards, observations and targets."""
    yield from _suite(place, "tests/reliability/test_non_finite.py")


def disks(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Crashes, power cuts and refusals at every operation of a checkpoint, and parts that are
    killed after changes of the disk.
    """
    files = (
        "tests/reliability/test_checkpoints.py",
        "plugins/empo_exact/tests/test_parts_killed.py",
    )
    yield from _suite(place, *files)


def _suite(place: Path, *files: str) -> Iterator[Trial]:
    """A trial for each case of tests."""
    place.mkdir(parents=True, exist_ok=True)
    report = place / "report.xml"
    options = ["-q", "-n0", "-m", "slow or not slow", f"--junit-xml={report}", "--tb=short"]
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, env=environment,
        stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    # Written by pytest a moment ago, so nothing in it is hostile.
    for case in ElementTree.parse(report).iter("testcase"):
        failures = [*case.iter("failure"), *case.iter("error")]
        if not list(case.iter("skipped")):
            problem = str(failures[0].text)[-1500:] if failures else ""
            yield Trial(str(case.get("name")), problem)
