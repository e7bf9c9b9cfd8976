"""Curves over training, a line and a band per arm."""

from __future__ import annotations

from pathlib import Path

from empo_compare.curves import Band, band_of, picture
from empo_core.errors import ConfigError
from empo_core.runs.metrics import read_metrics
from empo_core.suggestions import nearest
from empo_pictures.figures import write_figure
from empo_sweep.arms import Sweep, arm_text
from empo_sweep.results import Results

CURVES = "curves"


def write_curves(sweep: Sweep, results: Results, metric: str) -> list[Path]:
    """Draw a metric of all trials that are done, and return the paths of the pictures.

    Raises:
        ConfigError: if no trial has logged the metric.
        StorageError: if a trial's metrics are damaged.
    """
    bands: dict[str, Band] = {}
    labels: dict[str, str] = {}
    keys: set[str] = set()
    for number, arm in enumerate(results.arms):
        runs = [sweep.folder / state.trial.run for state in arm.states if state.status == "done"]
        metrics = [read_metrics(run) for run in runs]
        keys.update(*metrics)
        band = band_of([curves[metric] for curves in metrics if metric in curves])
        if band is not None:
            bands[str(number)] = band
            labels[str(number)] = f"{arm_text(arm.arm) or sweep.name} (n = {band.number})"
    if not bands:
        near = nearest(metric, sorted(keys))
        hint = f"; did you mean {near!r}?" if near else ""
        raise ConfigError(f"--metric {metric}: no trial has logged it{hint}")
    return write_figure(picture({metric: bands}, labels), sweep.folder / CURVES)
