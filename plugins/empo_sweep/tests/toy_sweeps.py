"""Sweeps of the toy, and what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

Cli = Callable[..., Result]
HERE = Path(__file__).parent


def install_toy(site: Path) -> list[str]:
    """Make the toy a distribution; folders that have to be on the path."""
    info = site / "empo_toy_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-toy-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[empo]\nempo-toy-plugin = empo_toy_plugin\n")
    return [str(site), str(HERE)]


def events(folder: Path) -> list[dict[str, Any]]:
    """The lines of a sweep's ``trials.jsonl``."""
    lines = (folder / "trials.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ends(folder: Path) -> list[tuple[int, str]]:
    """Trials and events, without those that only prepare."""
    kinds = ("planned", "started", "reported")
    return [(e["trial"], e["event"]) for e in events(folder) if e["event"] not in kinds]


def ledger(folder: Path) -> Sequence[str]:
    """Names of runs in the order in which they came to their end."""
    path = folder / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
