"""Numbers of a sweep's results: pairs, seeds that failed, few seeds, many seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from empo_learning.statistics import interval
from empo_sweep.picture import picture
from empo_sweep.report import csv_text, footers, headings_and_rows, write_results
from empo_sweep.results import Results, as_data, results_of
from empo_sweep.sweep_file import read_sweep
from empo_sweep.trials import Trials, TrialState

X = "algorithm.params.x"


def results(values: Mapping[int, list[float | None]], *more: str) -> Results:
    """Results of trials with these objectives by x and seed; None fails."""
    seeds = len(next(iter(values.values())))
    xs = ",".join(str(x) for x in values)
    overrides = [f"{X}={xs}", f"seed=0..{seeds - 1}", f"baseline.{X}={min(values)}"]
    sweep = read_sweep("run.yaml", [*overrides, *(more or ["objective.key=score"])])
    trials = Trials(sweep, sweep.trials())
    flat = [value for row in values.values() for value in row]
    trials.states = [
        TrialState(state.trial, "failed", reason="it fell")
        if value is None
        else TrialState(state.trial, "done", value)
        for state, value in zip(trials.states, flat, strict=True)
    ]
    outcome = results_of(sweep, trials)
    assert outcome is not None
    return outcome


def test_pairs_are_of_the_seeds_that_both_arms_have(toy: Path) -> None:
    outcome = results({1: [1.0, 2.0, None, 4.0], 2: [1.5, None, 9.0, 5.5]})
    pair = outcome.arms[1].difference
    assert pair is not None
    assert (pair.n, pair.mean, pair.half_width) == (2, 1.0, None)
    assert outcome.arms[0].difference is None
    headings, rows = headings_and_rows(outcome)
    assert headings == ["x", "n", "score", "minus baseline", "failed", "best"]
    assert [row[1] for row in rows] == ["3", "3"]
    assert [row[4] for row in rows] == ["1", "1"]
    assert "1 comparisons, not corrected for their number" in list(footers(outcome))[-1]


def test_fewer_than_three_seeds_are_told_as_they_are(toy: Path) -> None:
    outcome = results({1: [1.0, 2.0], 2: [3.0, 5.0]})
    assert [row[2] for row in headings_and_rows(outcome)[1]] == ["1, 2", "3, 5"]
    mean = outcome.arms[1].mean
    assert mean is not None
    assert (mean.mean, mean.half_width) == (4.0, None)
    assert mean.sd == pytest.approx(2**0.5)


def test_of_ten_seeds_there_is_the_interquartile_mean(toy: Path) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 10)).round(3)
    outcome = results({1: drawn[0].tolist(), 2: drawn[1].tolist()})
    first = outcome.arms[0]
    assert first.iqm is not None
    assert first.iqm[0] == pytest.approx(np.sort(drawn[0])[2:8].mean())
    assert first.iqm[1] < first.iqm[0] < first.iqm[2]
    assert first.mean is not None
    mean, half = interval(drawn[0])
    assert (first.mean.mean, first.mean.half_width) == pytest.approx((float(mean), float(half)))
    pair = outcome.arms[1].difference
    assert pair is not None
    mean, half = interval(drawn[1] - drawn[0])
    assert (pair.mean, pair.half_width) == pytest.approx((float(mean), float(half)))
    again = results({1: drawn[0].tolist(), 2: drawn[1].tolist()})
    assert (as_data(again), csv_text(again)) == (as_data(outcome), csv_text(outcome))


def test_the_best_arm_is_among_those_with_most_seeds_and_least_where_less_is_better(
    toy: Path,
) -> None:
    values: dict[int, list[float | None]] = {1: [1.0, 2.0], 2: [9.0, None], 3: [3.0, 1.0]}
    outcome = results(values)
    assert outcome.best is outcome.arms[2]
    less = ["objective.key=score", "objective.direction=minimize"]
    outcome = results(values, *less)
    assert outcome.best is outcome.arms[0]


def test_the_csv_has_a_line_per_arm(toy: Path) -> None:
    lines = csv_text(results({1: [1.0, 2.0, 3.0], 2: [2.0, 3.0, 4.0]})).splitlines()
    assert lines[0].startswith("algorithm.params.x,n,mean,sd,low,high,difference_n,difference,")
    assert lines[1].startswith("1,3,2.0,1.0,-0.48")
    assert lines[2].startswith("2,3,3.0,1.0,0.51")
    assert lines[2].endswith(",3,1.0,1.0,1.0,,,,0,0,0")


def test_a_picture_has_one_panel_and_intervals_where_there_are_seeds_for_them(toy: Path) -> None:
    both = ["algorithm.params.noise=1,2,3", "seed=0", "baseline.algorithm.params.noise=1"]
    both.append("objective.key=score")
    numbers: dict[int, list[float | None]] = {1: [1.0] * 3, 2: [2.0] * 3}
    (axes,) = picture(results(numbers, *both)).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("noise", "score")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["x = 1", "x = 2"]
    assert not axes.containers
    (axes,) = picture(results({1: [1.0, 2.0, 3.0], 2: [2.0, 3.0, 4.0]})).axes
    assert len(axes.containers) == 2


def test_shares_have_the_axis_of_shares(toy: Path) -> None:
    (axes,) = picture(results({1: [0.0, 0.0, 0.0], 2: [0.0, 0.0, 0.0]})).axes
    assert axes.get_ylim() == (-0.05, 1.05)


def test_results_are_written_though_their_picture_cannot_be(
    toy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def warn(*arguments: object, **options: object) -> None:
        warnings.warn("a glyph is missing", UserWarning, stacklevel=1)  # An error in these tests.

    monkeypatch.setattr(Figure, "savefig", warn)
    sweep = read_sweep("run.yaml", [f"{X}=1,2", "seed=0..1", "objective.key=score"])
    sweep.folder.mkdir(parents=True, exist_ok=True)
    paths = write_results(sweep, results({1: [1.0, 2.0], 2: [3.0, 5.0]}))
    assert [path.name for path in paths] == ["sweep.json", "sweep.csv", "best.yaml"]
    assert all(path.exists() for path in paths)
    assert "a glyph is missing" in caplog.text
