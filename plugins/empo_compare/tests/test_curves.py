"""Bands over seeds, against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from empo_compare.curves import band_of, picture
from empo_core.runs.metrics import Curve
from empo_pictures.figures import write_figure


def curve(values: dict[int, float]) -> Curve:
    return Curve(np.array(list(values), np.int64), np.array(list(values.values()), np.float64))


def test_one_curve_has_no_band() -> None:
    found = band_of([curve({1: 2.0, 3: 4.0})])
    assert found is not None
    assert (found.steps.tolist(), found.mean.tolist(), found.number) == ([1, 3], [2.0, 4.0], 1)
    assert np.isnan(found.half_width).all()


def test_curves_are_compared_on_the_coarsest_grid_as_far_as_all_go() -> None:
    fine = curve({step: float(step) for step in range(0, 8)})
    coarse = curve({2: 0.0, 5: 3.0, 9: 7.0})
    found = band_of([fine, coarse])
    assert found is not None
    assert found.steps.tolist() == [2, 5]
    assert found.mean.tolist() == [1.0, 4.0]
    assert found.number == 2


@pytest.mark.parametrize("curves", [[], [{}], [{1: 0.0}, {2: 0.0}]])
def test_without_a_common_step_there_is_no_band(curves: list[dict[int, float]]) -> None:
    assert band_of([curve(each) for each in curves]) is None


def test_a_curve_that_diverges_leaves_a_gap_and_no_warning() -> None:
    found = band_of([curve({1: math.inf, 2: 1.0, 3: math.nan}), curve({1: 0.0, 2: 3.0, 3: 1.0})])
    assert found is not None
    assert found.mean[1] == 2.0
    assert not np.isfinite(found.mean[[0, 2]]).any()


def test_the_picture_has_a_panel_per_metric_and_names_groups_as_they_are(tmp_path: Path) -> None:
    bands = [band_of([curve({1: 1.0, 2: float(n)}), curve({1: 1.5, 2: 3.0})]) for n in range(7)]
    named = {f"G{index}": band for index, band in enumerate(bands) if band is not None}
    labels = {name: f"{name}: $\\frac{{x$ & <b>" for name in named}
    metrics = {"loss/$a$": named, "exact/v_r": {"G0": named["G0"]}, "two": named}
    figure = picture(metrics, labels)
    write_figure(figure, tmp_path / "p")
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == [r"\$a\$ (loss)", "$V_r$ (exact)", "two"]
    assert [axes.get_xlabel() for axes in figure.axes[:3]] == ["step", "steps to go", "step"]
    texts = [text.get_text().replace(r"\$", "$") for text in figure.legends[0].get_texts()]
    assert texts == list(labels.values())
