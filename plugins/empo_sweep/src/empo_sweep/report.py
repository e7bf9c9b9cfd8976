"""Results of a sweep as a table, as files, and as a picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from empo_compare.run_table import short_names, value_text
from empo_core.best_effort import best_effort
from empo_core.config.yaml import dump_yaml
from empo_core.runs.atomic import strict_json, write_file
from empo_core.runs.directory import resolved
from empo_core.trees import Json
from empo_sweep.arms import Sweep, Trial, arm_text
from empo_sweep.results import ArmResult, Estimate, Results, as_data
from empo_sweep.sweep_config import Range
from empo_sweep.trials import Status

BEST = "best.yaml"
RESULT = "sweep"
"""Stem of the files with results."""
_CSV = (
    "n", "mean", "sd", "low", "high", "difference_n", "difference", "difference_low",
    "difference_high", "iqm", "iqm_low", "iqm_high", "failed", "stopped_early", "left",
)  # fmt: skip


def write_results(sweep: Sweep, results: Results) -> list[Path]:
    """Write all files of the results, and return their paths.

    Raises:
        StorageError: if a file cannot be written.
    """
    from empo_pictures.figures import write_figure
    from empo_sweep.picture import picture

    stem = sweep.folder / RESULT
    paths = [stem.with_suffix(f".{kind}") for kind in ("json", "csv")]
    write_file(paths[0], strict_json(as_data(results)) + "\n")
    write_file(paths[1], csv_text(results))
    if results.best is not None:
        config = resolved(sweep.config_of(results.best.arm, sweep.seeds[0]))
        del config["runs"]
        head = f"# The best arm of the sweep {sweep.name}; run it with: empo run {BEST}\n"
        write_file(sweep.folder / BEST, head + dump_yaml(config))
        paths.append(sweep.folder / BEST)
    with best_effort(f"drawing {stem}.png"):
        paths[2:2] = write_figure(picture(results), stem)
    return paths


def headings_and_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table for people; a column without entries is left out."""
    names = short_names(results.arms[0].arm)
    has_baseline = results.baseline is not None
    columns: dict[str, list[str]] = {}
    for arm in results.arms:
        cells = {name: value_text(arm.arm.get(key)) for key, name in names.items()}
        cells |= {"n": str(len(arm.values)), results.objective.key: _text(arm)}
        if has_baseline:
            cells["minus baseline"] = _difference(arm)
        if arm.iqm is not None:
            cells["IQM"] = "{:.5g} [{:.5g}, {:.5g}]".format(*arm.iqm)
        for name, status in _OTHER.items():
            cells[name] = str(arm.count(*status) or "")
        cells["best"] = "*" if arm is results.best else ""
        for name in {**columns, **cells}:
            column = columns.setdefault(name, [])
            column.append(cells.get(name, ""))
    filled = {name: entries for name, entries in columns.items() if any(entries)}
    return list(filled), [list(row) for row in zip(*filled.values(), strict=True)]


_OTHER: dict[str, tuple[Status, ...]] = {
    "failed": ("failed",),
    "stopped early": ("pruned",),
    "left": ("planned", "interrupted"),
}
"""Columns of trials without a result, by heading."""


def _text(arm: ArmResult) -> str:
    """Mean and interval; of two seeds their values."""
    if arm.mean is None:
        return ""
    if arm.mean.half_width is not None:
        return f"{arm.mean.mean:.5g} ± {arm.mean.half_width:.2g}"
    return ", ".join(f"{arm.values[seed]:.5g}" for seed in sorted(arm.values))


def _difference(arm: ArmResult) -> str:
    if arm.difference is None:
        return ""
    half = arm.difference.half_width
    return f"{arm.difference.mean:+.5g}" + ("" if half is None else f" ± {half:.2g}")


def footers(results: Results) -> Iterator[str]:
    """The lines below the table."""
    if any(arm.mean and arm.mean.half_width is not None for arm in results.arms):
        yield "mean over seeds ± half of its 95 % t interval"
    if results.baseline is not None:
        compared = sum(arm.difference is not None for arm in results.arms)
        yield (
            f"differences from {arm_text(results.baseline)}, seed by seed; {compared} comparisons, "
            "not corrected for their number"
        )


def failure_lines(sweep: Sweep, failed: Sequence[tuple[Trial, str | None]]) -> Iterator[str]:
    """The trials that failed, each with its reason in a line."""
    for trial, reason in failed:
        line = " ".join((reason or "").split())
        yield f"failed: {sweep.folder / trial.run}: {line[:300]}"


def csv_text(results: Results) -> str:
    """The results as CSV, one line per arm."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = list(results.arms[0].arm)
    writer.writerow([*keys, *_CSV])
    for arm in results.arms:
        values = [value_text(arm.arm.get(key)) for key in keys]
        counts = [arm.count(*status) for status in _OTHER.values()]
        numbers: list[float | int | None] = [*_columns(arm.mean, with_sd=True)]
        numbers += [*_columns(arm.difference, with_sd=False), *(arm.iqm or (None,) * 3), *counts]
        writer.writerow([*values, *("" if number is None else number for number in numbers)])
    return text.getvalue()


def _columns(estimate: Estimate | None, *, with_sd: bool) -> list[float | int | None]:
    if estimate is None:
        return [0, *[None] * (4 if with_sd else 3)]
    half = math.nan if estimate.half_width is None else estimate.half_width
    bounds = [estimate.mean - half, estimate.mean + half]
    limits: list[float | None] = [None if math.isnan(bound) else bound for bound in bounds]
    sd = [estimate.sd] if with_sd else []
    return [estimate.n, estimate.mean, *sd, *limits]


def planned_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """The table of trials that would be run."""
    names = short_names(trials[0].arm) if trials else {}
    rows = [
        [str(trial.number), *(value_text(trial.arm.get(key)) for key in names), str(trial.seed)]
        for trial in trials
    ]
    return ["trial", *names.values(), "seed"], rows


def search_rows(sweep: Sweep) -> list[list[str]]:
    """The space of a search: rows of a key and its values."""
    assert sweep.config.search is not None
    rows = []
    for key, values in sweep.config.search.space.items():
        if isinstance(values, Range):
            kind = ", ".join(["whole"] * values.integer + ["log"] * values.log)
            text = f"{values.low:g} to {values.high:g}" + (f" ({kind})" if kind else "")
        else:
            text = ", ".join(value_text(value) for value in values)
        rows.append([key, text])
    return rows


def plan_data(sweep: Sweep, trials: Sequence[Trial], total: int) -> dict[str, Json]:
    """The trials that would be run as JSON data."""
    listed: list[Json] = [
        {"trial": trial.number, "arm": dict(trial.arm), "seed": trial.seed, "run": trial.run}
        for trial in trials
    ]
    return {"sweep": sweep.name, "folder": str(sweep.folder), "total": total, "trials": listed}
