from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import empo_trackers
from empo_trackers import EMATracker, FastVectorizedHistogram
from empo_trackers.checks import checked_choice
from empo_trackers.histogram import Closed

EDGES = [0.0, 10.0, 20.0, 50.0, 100.0]
# Exact as float32, so that Python compares them as torch does.
NUMBERS = st.floats(-150, 150, width=16) | st.sampled_from([*EDGES, math.nan, math.inf, -math.inf])


def test_listing_plugins_does_not_import_torch() -> None:
    code = "import sys, empo_trackers, empo_trackers.plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert set(empo_trackers.__all__) <= set(dir(empo_trackers))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = empo_trackers.Nothing


def test_an_average_starts_at_zero() -> None:
    ema = EMATracker(0.5)
    ema.update(10)
    assert (float(ema.ema), int(ema.N), ema.value) == (5.0, 1, 5.0)
    ema.update(torch.tensor(20.0))
    assert ema.value == 12.5


def test_the_start_at_zero_can_be_corrected() -> None:
    ema = EMATracker(0.99, bias_correction=True)
    assert ema.value == 0.0
    for _ in range(3):
        ema.update(7.0)
        assert ema.value == pytest.approx(7.0)
    assert float(ema.ema) == pytest.approx(7 * (1 - 0.99**3))
    slow = EMATracker(1 - 1e-6, bias_correction=True)
    slow.update(7.0)
    assert slow.value == pytest.approx(7.0, rel=1e-5)


@settings(max_examples=50)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.floats(-100, 100), st.booleans()), max_size=8), max_size=5
    ),
    decay=st.sampled_from([0.0, 0.5, 0.99, 0.999]),
)
def test_many_at_once_are_as_one_after_the_other(
    batches: list[list[tuple[float, bool]]], decay: float
) -> None:
    single, closed, masked = (EMATracker(decay, bias_correction=True) for _ in range(3))
    for batch in batches:
        counted = [value for value, keep in batch if keep]
        for value in counted:
            single.update(value)
        closed.update_each(torch.tensor(counted))
        everything = torch.tensor([value if keep else math.nan for value, keep in batch])
        masked.update_each(everything, torch.tensor([keep for _, keep in batch]).bool())
    for other in (closed, masked):
        assert int(other.N) == int(single.N)
        assert other.value == pytest.approx(single.value, rel=1e-4, abs=1e-4)


def test_the_closed_form_stays_exact_over_many_values() -> None:
    values = torch.linspace(0, 100, 20_000, dtype=torch.float64)
    ema = EMATracker(0.999)
    ema.update_each(values)
    expected = 0.0
    for value in values.tolist():
        expected = 0.999 * expected + 0.001 * value
    assert ema.value == pytest.approx(expected, rel=2e-6)


def test_a_mean_of_nothing_changes_nothing() -> None:
    ema = EMATracker(0.5)
    ema.update(8.0)
    nothing = torch.zeros(0)
    ema.update_mean(nothing)
    ema.update_mean(torch.tensor([math.nan]), torch.tensor([False]))
    ema.update_each(nothing)
    ema.update_each(nothing, nothing.bool())
    assert (ema.value, int(ema.N)) == (4.0, 1)
    ema.update_mean(torch.tensor([1.0, math.nan, 3.0]), torch.tensor([True, False, True]))
    assert (ema.value, int(ema.N)) == (3.0, 2)


def test_a_disabled_average_keeps_nothing() -> None:
    ema = EMATracker(0.5, disable=True)
    ema.update(1.0)
    ema.update_mean(torch.ones(2))
    ema.update_each(torch.ones(2))
    assert (ema.value, ema.state_dict()) == (0.0, {})


@pytest.mark.parametrize("decay", [-0.1, 1.0, math.nan])
def test_a_decay_that_makes_no_sense_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay is"):
        EMATracker(decay)


def test_an_average_takes_one_number_at_a_time() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        EMATracker(0.5).update(torch.ones(2))


@settings(max_examples=60)
@given(values=st.lists(NUMBERS, max_size=20), keep=st.lists(st.booleans(), min_size=20))
def test_bins_are_numpy_s_but_for_what_lies_outside(values: list[float], keep: list[bool]) -> None:
    histogram = FastVectorizedHistogram(EDGES)
    histogram.update_batch(torch.tensor(values), torch.tensor(keep[: len(values)]).bool())
    counted = np.array([value for value, k in zip(values, keep, strict=False) if k])
    expected, _ = np.histogram(counted[(counted >= 0) & (counted <= 100)], EDGES)
    below, above = int((counted < 0).sum()), int((counted > 100).sum())
    expected[0] += below
    expected[-1] += above
    assert histogram.get_counts().tolist() == expected.tolist()
    assert (histogram.underflow, histogram.overflow) == (below, above)
    assert histogram.nan == int(np.isnan(counted).sum())
    assert int(histogram.bins.sum()) + histogram.nan == len(counted)


@settings(max_examples=60)
@given(values=st.lists(NUMBERS, max_size=20))
def test_bins_closed_on_the_right_are_mirrored_ones(values: list[float]) -> None:
    right = FastVectorizedHistogram(EDGES, closed="right")
    left = FastVectorizedHistogram([-edge for edge in reversed(EDGES)])
    right.update_batch(torch.tensor(values))
    left.update_batch(-torch.tensor(values))
    assert right.get_counts().tolist() == left.get_counts().tolist()[::-1]
    assert (right.underflow, right.overflow) == (left.overflow, left.underflow)


@pytest.mark.parametrize(
    ("closed", "bins"), [("left", [0, 1, 2, 3, 3]), ("right", [0, 0, 1, 2, 3])]
)
def test_an_edge_belongs_to_the_bin_that_was_chosen(closed: Closed, bins: list[int]) -> None:
    for edge, expected in zip(EDGES, bins, strict=True):
        histogram = FastVectorizedHistogram(EDGES, closed=closed)
        histogram.update_batch(edge)
        assert histogram.get_counts().argmax() == expected
        assert histogram.outside.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "values",
    [
        [5, 15],
        (5, 15),
        np.array([5, 15]),
        np.array([15.0, 5.0])[::-1],
        torch.tensor([[5], [15]]),
        torch.tensor([5.0, 15.0], dtype=torch.float64, requires_grad=True),
    ],
    ids=["list", "tuple", "integers", "backwards", "matrix", "differentiable"],
)
def test_values_come_in_any_form(values: Any) -> None:
    histogram = FastVectorizedHistogram(EDGES)
    histogram.update_batch(values)
    assert histogram.get_counts().tolist() == [1, 1, 0, 0]


def test_doubles_are_compared_as_the_edges_are_stored() -> None:
    histogram = FastVectorizedHistogram([0.0, 0.1, 0.2])
    histogram.update_batch(torch.tensor([0.1], dtype=torch.float64))
    assert histogram.get_counts().tolist() == [0, 1]


def test_unbounded_bins_take_everything_and_nothing_lies_outside() -> None:
    histogram = FastVectorizedHistogram([-math.inf, 0.0, math.inf])
    histogram.update_batch([-math.inf, -1.0, 0.0, math.inf, math.nan])
    assert histogram.get_counts().tolist() == [2, 2]
    assert histogram.outside.tolist() == [0, 0, 1]


def test_counts_are_copies() -> None:
    histogram = FastVectorizedHistogram(EDGES)
    histogram.get_counts().add_(5)
    assert histogram.get_counts().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "or more"),
        ([1.0], "or more"),
        ([[0.0, 1.0]], "or more"),
        (5.0, "or more"),
        ([0.0, 1.0, 1.0], "edge 2 is 1 .*after 1"),
        ([0.0, 2.0, 1.0], "edge 2 is 1 .*after 2"),
        ([0.0, math.nan], "edge 1 is nan"),
        ([1.0, 1.0 + 1e-9], "also as float32"),
        (["a", "b"], r"bin_edges .*ndarray"),
        ([1j, 2j], "real numbers"),
    ],
)
def test_edges_that_are_none_are_refused(edges: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FastVectorizedHistogram(np.array(edges))


def test_a_choice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="closed is 'middle'"):
        checked_choice("closed", "middle", ("left", "right"))


def test_every_default_bin_has_a_width() -> None:
    from empo_trackers.plugin import LENGTH_BINS, REWARD_BINS

    for edges in (REWARD_BINS, LENGTH_BINS):
        assert len(edges) == 8
        assert all(low < high for low, high in pairwise(edges))
