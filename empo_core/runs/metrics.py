"""Metrics that a run has logged, as arrays."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from empo_core.errors import ConfigError, StorageError
from empo_core.runs.atomic import parse_json
from empo_core.runs.files import open_regular

METRICS = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric over steps.

    Attributes:
        steps: Steps at which it was logged, in ascending order [point].
        values: What was logged there [point].
    """

    steps: Int64[np.ndarray, " point"]
    values: Float64[np.ndarray, " point"]


class Metrics(dict[str, Curve]):
    """Curves by the keys of the metrics; histograms are left out."""

    def to_frame(self) -> Any:
        """A data frame of pandas: a row per step, a column per metric, NaN where there is none.

        Raises:
            ConfigError: if pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ConfigError(f"a data frame needs pandas ({error}): pip install pandas") from error
        series = {key: pandas.Series(curve.values, curve.steps) for key, curve in self.items()}
        return pandas.DataFrame(series).sort_index().rename_axis("step")


def read_metrics(directory: Path) -> Metrics:
    """The metrics in a run's directory; none where it has no ``metrics.jsonl``.

    Of several values at one step the last counts, and a last line that is not whole does not.

    Raises:
        StorageError: if the file is damaged, or not a regular one.
    """
    path = directory / METRICS
    if not path.exists() and not path.is_symlink():
        return Metrics({})
    values_by_key: dict[str, dict[int, float]] = {}
    with open_regular(path) as file:
        lines = file.read().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        record = parse_json(path, line)
        step = record.get("step") if isinstance(record, dict) else None
        if not isinstance(record, dict) or not isinstance(step, int) or abs(step) >= 2**63:
            raise StorageError(f"{path}:{number}: is no object with a whole number 'step'")
        for key, value in record.items():
            if key != "step" and not isinstance(value, dict | list | None):
                values_by_key.setdefault(key, {})[step] = _number(path, number, key, value)
    return Metrics({key: _curve(values) for key, values in values_by_key.items()})


def _number(path: Path, line: int, key: str, value: str | float) -> float:
    try:
        return float(value)  # JSON has no NaN and no infinities, so they are strings.
    except (ValueError, OverflowError) as error:
        raise StorageError(f"{path}:{line}: {key} is {value!r}, not a number") from error


def _curve(values: Mapping[int, float]) -> Curve:
    steps = sorted(values)
    return Curve(np.array(steps, np.int64), np.array([values[step] for step in steps], np.float64))
