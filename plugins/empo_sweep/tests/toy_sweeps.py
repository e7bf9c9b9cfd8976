"""Sweeps of the toy, and what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

from empo_core.runs.status import status_of

Cli = Callable[..., Result]
HERE = Path(__file__).parent


def install_toy(site: Path) -> list[str]:
    """Make the toy a distribution; folders that have to be on the path."""
    info = site / "empo_toy_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-toy-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[empo]\nempo-toy-plugin = empo_toy_plugin\n")
    return [str(site), str(HERE)]


def ends(folder: Path) -> list[tuple[int, str]]:
    """Trials that have ended, and how, by what is in their run directories."""
    found = []
    for run in sorted(folder.glob("trial-*")):
        record, status = run / "trial.json", status_of(run).status
        if status == "finished":
            found.append((number_of(run), "done"))
        elif record.exists():
            found.append((number_of(run), json.loads(record.read_text())["status"]))
    return found


def number_of(run: Path) -> int:
    """The number of a trial."""
    return int(run.name.split("-")[1])


def points(folder: Path) -> list[dict[str, Any]]:
    """The values of the points of a search, in their order."""
    trials = json.loads((folder / "sweep.json").read_text())["arms"]
    return [arm["arm"] for arm in trials]


def ledger(folder: Path) -> Sequence[str]:
    """Names of runs in the order in which they came to their end."""
    path = folder / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
