"""Conformance kit of aggregators, whatever kernels they use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Reduction, Segments

REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean", "min", "max")
# Where shapes are checked at run time, that check may speak first.
REFUSAL = (ValueError, TypeCheckError)

INDEX = torch.tensor([0, 2, 0, 4, 2, 2])
"""Six items in segments of 2, 0, 3, 0 and 1."""
VALUES = torch.tensor([1.0, 2.0, 5.0, -3.0, 4.0, -6.0])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 0.25, 1.0])
INF = float("inf")


def unsorted_segments() -> Segments:
    """The example's segments, its items in the given order."""
    return Segments.from_index(INDEX, 5)


def sorted_segments() -> Segments:
    """Segments of the same lengths as the example's, known to be sorted."""
    return Segments.from_offsets(torch.tensor([0, 2, 2, 5, 5, 6]))


class _AggregatorCase:
    """The aggregator under test."""

    @pytest.fixture
    def aggregator(self) -> Aggregator:
        """The aggregator under test."""
        raise NotImplementedError("override the fixture 'aggregator'")

    @pytest.fixture(params=REDUCTIONS)
    def reduction(self, request: pytest.FixtureRequest) -> Reduction:
        """A way in which items combine."""
        reduction: Reduction = request.param
        return reduction


class _ReductionTests(_AggregatorCase):
    """Values: neutral elements, weights, dtypes, layouts and sizes."""

    @pytest.mark.parametrize(
        ("reduction", "expected"),
        [
            ("sum", [6.0, 0.0, 0.0, 0.0, -3.0]),
            ("mean", [3.0, 0.0, 0.0, 0.0, -3.0]),
            ("min", [1.0, INF, -6.0, INF, -3.0]),
            ("max", [5.0, -INF, 4.0, -INF, -3.0]),
        ],
    )
    def test_each_segment_is_reduced_and_an_empty_one_is_neutral(
        self, aggregator: Aggregator, reduction: Reduction, expected: list[float]
    ) -> None:
        result = aggregator(VALUES, unsorted_segments(), reduction=reduction)
        torch.testing.assert_close(result, torch.tensor(expected))

    @pytest.mark.parametrize(
        ("reduction", "expected"),
        [
            ("sum", [10.5, 0.0, -3.0, 0.0, 0.0]),
            # The last segment has an item, but no weight.
            ("mean", [4.2, 0.0, -3.0 / 2.25, 0.0, 0.0]),
        ],
    )
    def test_weights_count_in_sum_and_mean(
        self, aggregator: Aggregator, reduction: Reduction, expected: list[float]
    ) -> None:
        result = aggregator(VALUES, unsorted_segments(), reduction=reduction, weight=WEIGHT)
        torch.testing.assert_close(result, torch.tensor(expected))

    def test_the_default_is_the_sum(self, aggregator: Aggregator) -> None:
        segments = unsorted_segments()
        explicit = aggregator(VALUES, segments, reduction="sum", weight=None)
        torch.testing.assert_close(aggregator(VALUES, segments), explicit)

    def test_order_of_items_does_not_matter(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values, index, weight = random_items(300, (3,), 20)
        weights = weight if reduction in ("sum", "mean") else None
        order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(
            aggregator(
                values[order],
                Segments.from_index(index[order], 20),
                reduction=reduction,
                weight=None if weights is None else weights[order],
            ),
            aggregator(values, Segments.from_index(index, 20), reduction=reduction, weight=weights),
        )

    @pytest.mark.parametrize("trailing", [(), (1,), (3,), (17,), (2, 3)])
    @pytest.mark.parametrize(("items", "number"), [(90, 60), (90, 12), (90, 2)])
    def test_it_agrees_with_reducing_each_segment_alone(
        self,
        aggregator: Aggregator,
        reduction: Reduction,
        trailing: tuple[int, ...],
        items: int,
        number: int,
    ) -> None:
        values, index, weight = random_items(items, trailing, number)
        index = index.sort().values
        counts = torch.bincount(index, minlength=number)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        for weights in [None, weight] if reduction in ("sum", "mean") else [None]:
            expected = one_by_one(values, index, number, reduction, weights)
            for segments in [Segments.from_index(index, number), Segments.from_offsets(offsets)]:
                result = aggregator(values, segments, reduction=reduction, weight=weights)
                torch.testing.assert_close(result, expected)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_both_widths_of_index_give_the_same(
        self, aggregator: Aggregator, reduction: Reduction, dtype: torch.dtype
    ) -> None:
        for segments in (
            Segments.from_index(INDEX.to(dtype), 5),
            Segments.from_index(INDEX.sort().values.to(dtype), 5),
        ):
            wide = Segments.from_index(segments.index.long(), 5)
            expected = aggregator(VALUES, wide, reduction=reduction)
            assert torch.equal(aggregator(VALUES, segments, reduction=reduction), expected)
        narrow = Segments.from_offsets(torch.tensor([0, 2, 2, 5, 5, 6], dtype=dtype))
        expected = aggregator(VALUES, sorted_segments(), reduction=reduction)
        assert torch.equal(aggregator(VALUES, narrow, reduction=reduction), expected)

    @pytest.mark.parametrize(
        "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
    )
    def test_the_result_has_the_dtype_of_the_values(
        self, aggregator: Aggregator, reduction: Reduction, dtype: torch.dtype
    ) -> None:
        result = aggregator(VALUES.to(dtype), unsorted_segments(), reduction=reduction)
        assert result.dtype == dtype
        if reduction in ("sum", "mean"):
            for weight in (WEIGHT.to(dtype), WEIGHT.double()):
                weighted = aggregator(
                    VALUES.to(dtype), unsorted_segments(), reduction=reduction, weight=weight
                )
                assert weighted.dtype == dtype

    def test_float64_is_not_rounded_on_the_way(self, aggregator: Aggregator) -> None:
        values = torch.tensor([1.0, 2.0**-40, 2.0**-41], dtype=torch.float64)
        segments = Segments.from_index(torch.tensor([0, 0, 0]), 1)
        assert aggregator(values, segments).item() == 1.0 + 2.0**-40 + 2.0**-41

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    def test_a_long_sum_of_halves_does_not_get_stuck(
        self, aggregator: Aggregator, dtype: torch.dtype, reduction: Reduction
    ) -> None:
        # 2048 ones fit both dtypes exactly; adding in the dtype itself stops at 256 or 2048.
        ones = torch.ones(2 * 4096, dtype=dtype)
        segments = Segments.from_offsets(torch.tensor([0, 4096, 8192]))
        expected = {"sum": 4096.0, "mean": 1.0}[reduction]
        assert aggregator(ones, segments, reduction=reduction).tolist() == [expected] * 2

    def test_no_items_give_neutral_values(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        neutral = {"sum": 0.0, "mean": 0.0, "min": INF, "max": -INF}[reduction]
        no_index = torch.zeros(0, dtype=torch.int64)
        for segments in (
            Segments.from_index(no_index, 3),
            Segments.from_offsets(torch.zeros(4, dtype=torch.int64)),
        ):
            result = aggregator(torch.zeros(0, 2), segments, reduction=reduction)
            torch.testing.assert_close(result, torch.full((3, 2), neutral))

    def test_no_segments_give_an_empty_result(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        segments = Segments.from_index(torch.zeros(0, dtype=torch.int64), 0)
        assert aggregator(torch.zeros(0, 2), segments, reduction=reduction).shape == (0, 2)

    def test_one_item_is_its_own_result(self, aggregator: Aggregator, reduction: Reduction) -> None:
        segments = Segments.from_index(torch.tensor([0]), 1)
        assert aggregator(torch.tensor([2.5]), segments, reduction=reduction).tolist() == [2.5]

    def test_memory_layout_does_not_matter(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values, index, weight = random_items(40, (6,), 7)
        index = index.sort().values
        weights = weight if reduction in ("sum", "mean") else None
        dense = Segments.from_index(index, 7)
        expected = aggregator(values, dense, reduction=reduction, weight=weights)
        strided = Segments.from_index(index.repeat_interleave(2)[::2], 7)
        result = aggregator(
            values.t().contiguous().t(),
            strided,
            reduction=reduction,
            weight=None if weights is None else weights.repeat_interleave(2)[::2],
        )
        torch.testing.assert_close(result, expected)
        same_row = values[:1].expand(40, 6)
        torch.testing.assert_close(
            aggregator(same_row, dense, reduction=reduction),
            aggregator(same_row.contiguous(), dense, reduction=reduction),
        )

    def test_nan_and_infinity_stay_in_their_segment(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values = torch.tensor([1.0, float("nan"), 2.0, INF, -INF])
        segments = Segments.from_offsets(torch.tensor([0, 1, 3, 4, 5]))
        result = aggregator(values, segments, reduction=reduction).tolist()
        assert result[0] == 1.0
        assert result[1] != result[1]
        assert result[2:] == [INF, -INF]


class _GradientTests(_AggregatorCase):
    """Gradients by values and weights."""

    @pytest.mark.parametrize("make_segments", [unsorted_segments, sorted_segments])
    @pytest.mark.parametrize("trailing", [(), (2,)])
    def test_the_gradient_is_that_of_the_result(
        self,
        aggregator: Aggregator,
        reduction: Reduction,
        make_segments: Callable[[], Segments],
        trailing: tuple[int, ...],
    ) -> None:
        segments = make_segments()
        values = random_items(6, trailing, 1)[0].double().requires_grad_()
        # Infinite neutral values have no difference quotient, so look at full segments only.
        full = segments.counts > 0

        def reduced(values: Tensor) -> Tensor:
            return aggregator(values, segments, reduction=reduction)[full]

        assert reduced(values).requires_grad, "the result is detached from the values"
        assert torch.autograd.gradcheck(reduced, (values,))

    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    @pytest.mark.parametrize("make_segments", [unsorted_segments, sorted_segments])
    def test_the_gradient_reaches_values_and_weights(
        self, aggregator: Aggregator, reduction: Reduction, make_segments: Callable[[], Segments]
    ) -> None:
        segments = make_segments()
        values, _, weight = random_items(6, (2,), 1)
        values, weight = values.double().requires_grad_(), weight.double().requires_grad_()

        def reduced(values: Tensor, weight: Tensor) -> Tensor:
            return aggregator(values, segments, reduction=reduction, weight=weight)

        assert torch.autograd.gradcheck(reduced, (values, weight))
        assert torch.autograd.gradgradcheck(reduced, (values, weight))

    def test_empty_and_weightless_segments_leave_no_nan_in_the_gradient(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values = VALUES.clone().requires_grad_()
        weight = WEIGHT.clone().requires_grad_()
        weights = weight if reduction in ("sum", "mean") else None
        result = aggregator(values, unsorted_segments(), reduction=reduction, weight=weights)
        leaves = [values] if weights is None else [values, weights]
        for gradient in torch.autograd.grad(result[result.isfinite()].sum(), leaves):
            assert bool(gradient.isfinite().all())


class AggregatorTests(_ReductionTests, _GradientTests):
    """Subclass this in your plugin's tests and override ``aggregator``."""

    def test_it_fits_the_protocol(self, aggregator: Aggregator) -> None:
        assert isinstance(aggregator, Aggregator)

    def test_inputs_are_left_alone(self, aggregator: Aggregator, reduction: Reduction) -> None:
        # Made anew for the comparison: what wrote here may have written everywhere.
        values, index, weight = random_items(6, (), 5)
        weights = weight if reduction in ("sum", "mean") else None
        segments = Segments.from_index(index, 5)
        first = aggregator(values, segments, reduction=reduction, weight=weights)
        kept = first.clone()
        for given, expected in zip((values, index, weight), random_items(6, (), 5), strict=True):
            assert torch.equal(given, expected)
        aggregator(values + 1, segments, reduction=reduction, weight=weights)
        assert torch.equal(first, kept), "a later call changed an earlier result"

    @pytest.mark.parametrize("reduction", ["min", "max"])
    def test_a_weighted_extreme_is_refused(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        with pytest.raises(REFUSAL):
            aggregator(VALUES, unsorted_segments(), reduction=reduction, weight=WEIGHT)

    @pytest.mark.parametrize("items", [1, 5, 7])
    def test_values_and_segments_of_different_length_are_refused(
        self, aggregator: Aggregator, reduction: Reduction, items: int
    ) -> None:
        with pytest.raises(REFUSAL):
            aggregator(torch.ones(items, 2), unsorted_segments(), reduction=reduction)

    @pytest.mark.parametrize("shape", [(5,), (1,), (6, 1), ()])
    def test_weights_of_another_shape_are_refused(
        self, aggregator: Aggregator, shape: tuple[int, ...]
    ) -> None:
        with pytest.raises(REFUSAL):
            aggregator(VALUES, unsorted_segments(), weight=torch.ones(shape))


def random_items(
    items: int, trailing: tuple[int, ...], segments: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Values without ties, the segment of each item in no order, and positive weights."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((items, *trailing), generator=generator)
    index = torch.randint(segments, (items,), generator=generator)
    weight = 0.1 + torch.rand(items, generator=generator)
    return values, index, weight


def one_by_one(
    values: Tensor, index: Tensor, number: int, reduction: Reduction, weight: Tensor | None
) -> Tensor:
    """Plain aggregation, one segment after another, in float64."""
    rows = []
    for segment in range(number):
        mine = values[index == segment].double()
        if reduction in ("min", "max"):
            edge = torch.full_like(values[:1], INF if reduction == "min" else -INF).double()
            padded = torch.cat([mine, edge])
            rows.append(padded.amin(0) if reduction == "min" else padded.amax(0))
            continue
        share = torch.ones(len(mine)) if weight is None else weight[index == segment]
        share = share.double()
        total = torch.tensordot(share, mine, dims=1)
        if reduction == "mean" and len(mine):
            total = total / share.sum()
        rows.append(total)
    return torch.stack(rows).to(values.dtype)
