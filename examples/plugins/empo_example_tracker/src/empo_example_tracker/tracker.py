"""Metrics as one table."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from empo_core.protocols import RunStatus, Tracker
from empo_core.runs.atomic import write_file
from empo_core.types import Histogram
from empo_example_tracker.plugin import CsvParams


class CsvTracker(Tracker):
    """Collects a row per step and writes ``metrics.csv`` when the run is over.

    Columns are only known at the end, so a run that is killed leaves no table; EMPO's own
    ``jsonl`` tracker does better there. An interrupted run that ends properly keeps its rows.
    """

    def __init__(self, params: CsvParams) -> None:
        self._separator = params.separator
        self._path: Path | None = None
        self._rows: dict[int, dict[str, str]] = {}

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Remember where to write; the rows of an interrupted run are read back."""
        self._path = directory / "metrics.csv"
        self._rows = {}
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file, delimiter=self._separator):
                    step = int(row.pop("step"))
                    self._rows[step] = {key: cell for key, cell in row.items() if cell}

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Add cells to the row of the step."""
        if self._path is None:
            raise ValueError("log needs a started tracker: call start first, finish last")
        row = self._rows.setdefault(int(step), {})
        for key, value in metrics.items():
            if isinstance(value, Histogram):
                for (low, high), count in zip(
                    itertools.pairwise(value.edges), value.counts, strict=True
                ):
                    row[f"{key}[{float(low):g}, {float(high):g})"] = str(int(count))
            else:
                row[key] = repr(float(value))

    def finish(self, status: RunStatus) -> None:
        """Write the table."""
        if self._path is None:
            return
        columns = list(dict.fromkeys(key for row in self._rows.values() for key in row))
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, ["step", *columns], delimiter=self._separator)
        writer.writeheader()
        writer.writerows({"step": step, **row} for step, row in sorted(self._rows.items()))
        write_file(self._path, table.getvalue())
        self._path = None
