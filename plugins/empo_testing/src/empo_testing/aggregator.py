"""Conformance kit of aggregators, whatever kernels they use."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Reduction, Segments

REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean")
# Where shapes are checked at run time, that check may speak first.
REFUSAL = (ValueError, TypeCheckError)

OFFSETS = torch.tensor([0, 2, 2, 5, 5, 6])
"""Six items in segments of 2, 0, 3, 0 and 1."""
VALUES = torch.tensor([1.0, 5.0, 2.0, 4.0, -6.0, -3.0])
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.25, 1.0, 0.0])
INF = float("inf")


def example() -> Segments:
    """The example's segments."""
    return Segments.from_offsets(OFFSETS)


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
    """Values: empty segments, weights, dtypes, layouts and sizes."""

    @pytest.mark.parametrize(
        ("reduction", "expected"),
        [("sum", [6.0, 0.0, 0.0, 0.0, -3.0]), ("mean", [3.0, 0.0, 0.0, 0.0, -3.0])],
    )
    def test_each_segment_is_reduced_and_an_empty_one_is_0(
        self, aggregator: Aggregator, reduction: Reduction, expected: list[float]
    ) -> None:
        result = aggregator(VALUES, example(), reduction=reduction)
        torch.testing.assert_close(result, torch.tensor(expected))

    @pytest.mark.parametrize(
        ("reduction", "expected"),
        [
            ("sum", [10.5, 0.0, -3.0, 0.0, 0.0]),
            # The last segment has an item, but no weight.
            ("mean", [4.2, 0.0, -3.0 / 2.25, 0.0, 0.0]),
        ],
    )
    def test_weights_count(
        self, aggregator: Aggregator, reduction: Reduction, expected: list[float]
    ) -> None:
        result = aggregator(VALUES, example(), reduction=reduction, weight=WEIGHT)
        torch.testing.assert_close(result, torch.tensor(expected))

    def test_the_default_is_the_sum(self, aggregator: Aggregator) -> None:
        explicit = aggregator(VALUES, example(), reduction="sum", weight=None)
        torch.testing.assert_close(aggregator(VALUES, example()), explicit)

    @pytest.mark.parametrize("trailing", [(), (1,), (3,), (17,), (2, 3)])
    @pytest.mark.parametrize("number", [60, 12, 2])
    def test_it_agrees_with_reducing_each_segment_alone(
        self,
        aggregator: Aggregator,
        reduction: Reduction,
        trailing: tuple[int, ...],
        number: int,
    ) -> None:
        values, segments, weight = random_items(90, trailing, number)
        for weights in (None, weight):
            expected = one_by_one(values, segments, reduction, weights)
            result = aggregator(values, segments, reduction=reduction, weight=weights)
            torch.testing.assert_close(result, expected)

    def test_both_widths_of_offsets_give_the_same(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        expected = aggregator(VALUES, example(), reduction=reduction)
        narrow = Segments.from_offsets(OFFSETS.to(torch.int32))
        assert torch.equal(aggregator(VALUES, narrow, reduction=reduction), expected)

    @pytest.mark.parametrize(
        "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
    )
    def test_the_result_has_the_dtype_of_the_values(
        self, aggregator: Aggregator, reduction: Reduction, dtype: torch.dtype
    ) -> None:
        for weight in (None, WEIGHT.to(dtype), WEIGHT.double()):
            result = aggregator(VALUES.to(dtype), example(), reduction=reduction, weight=weight)
            assert result.dtype == dtype, "the result has the dtype of the values, not the weight's"

    def test_float64_is_not_rounded_on_the_way(self, aggregator: Aggregator) -> None:
        values = torch.tensor([1.0, 2.0**-40, 2.0**-41], dtype=torch.float64)
        segments = Segments.from_offsets(torch.tensor([0, 3]))
        assert aggregator(values, segments).item() == 1.0 + 2.0**-40 + 2.0**-41

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_a_long_sum_of_halves_does_not_get_stuck(
        self, aggregator: Aggregator, dtype: torch.dtype, reduction: Reduction
    ) -> None:
        # 2048 ones fit both dtypes exactly; adding in the dtype itself stops at 256 or 2048.
        ones = torch.ones(2 * 4096, dtype=dtype)
        segments = Segments.from_offsets(torch.tensor([0, 4096, 8192]))
        expected = {"sum": 4096.0, "mean": 1.0}[reduction]
        assert aggregator(ones, segments, reduction=reduction).tolist() == [expected] * 2

    def test_no_items_give_zeros(self, aggregator: Aggregator, reduction: Reduction) -> None:
        segments = Segments.from_offsets(torch.zeros(4, dtype=torch.int64))
        result = aggregator(torch.zeros(0, 2), segments, reduction=reduction)
        assert torch.equal(result, torch.zeros(3, 2))

    def test_no_segments_give_an_empty_result(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        segments = Segments.from_offsets(torch.zeros(1, dtype=torch.int64))
        assert aggregator(torch.zeros(0, 2), segments, reduction=reduction).shape == (0, 2)

    def test_one_item_is_its_own_result(self, aggregator: Aggregator, reduction: Reduction) -> None:
        segments = Segments.from_offsets(torch.tensor([0, 1]))
        assert aggregator(torch.tensor([2.5]), segments, reduction=reduction).tolist() == [2.5]

    def test_memory_layout_does_not_matter(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values, segments, weight = random_items(40, (6,), 7)
        expected = aggregator(values, segments, reduction=reduction, weight=weight)
        strided = weight.repeat_interleave(2)[::2]
        result = aggregator(
            values.t().contiguous().t(), segments, reduction=reduction, weight=strided
        )
        torch.testing.assert_close(result, expected)
        same_row = values[:1].expand(40, 6)
        torch.testing.assert_close(
            aggregator(same_row, segments, reduction=reduction),
            aggregator(same_row.contiguous(), segments, reduction=reduction),
        )

    def test_nan_and_infinity_stay_in_their_segment(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values = torch.tensor([1.0, float("nan"), 2.0, INF, -INF])
        segments = Segments.from_offsets(torch.tensor([0, 1, 3, 4, 5]))
        result = aggregator(values, segments, reduction=reduction).tolist()
        assert result[1] != result[1], "a segment with NaN has no other value"
        others = result[:1] + result[2:]
        assert others == [1.0, INF, -INF], "NaN or infinity reaches other segments"


class _GradientTests(_AggregatorCase):
    """Gradients by values and weights."""

    def test_the_gradient_reaches_values_and_weights(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values, segments, weight = random_items(6, (2,), 5)
        values, weight = values.double().requires_grad_(), weight.double().requires_grad_()

        def reduced(values: Tensor, weight: Tensor) -> Tensor:
            return aggregator(values, segments, reduction=reduction, weight=weight)

        assert reduced(values, weight).requires_grad, "the result is detached"
        assert torch.autograd.gradcheck(reduced, (values, weight))

    def test_empty_and_weightless_segments_leave_no_nan_in_the_gradient(
        self, aggregator: Aggregator, reduction: Reduction
    ) -> None:
        values, weight = VALUES.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
        result = aggregator(values, example(), reduction=reduction, weight=weight)
        for gradient in torch.autograd.grad(result.sum(), (values, weight)):
            assert bool(gradient.isfinite().all())


class AggregatorTests(_ReductionTests, _GradientTests):
    """Subclass this in your plugin's tests and override ``aggregator``."""

    def test_it_fits_the_protocol(self, aggregator: Aggregator) -> None:
        assert isinstance(aggregator, Aggregator)

    def test_inputs_are_left_alone(self, aggregator: Aggregator, reduction: Reduction) -> None:
        # Made anew for the comparison: what wrote here may have written everywhere.
        values, segments, weight = random_items(6, (), 5)
        first = aggregator(values, segments, reduction=reduction, weight=weight)
        copy = first.clone()
        fresh_values, fresh_segments, fresh_weight = random_items(6, (), 5)
        assert torch.equal(values, fresh_values)
        assert torch.equal(segments.index, fresh_segments.index)
        assert torch.equal(weight, fresh_weight)
        aggregator(values + 1, segments, reduction=reduction, weight=weight)
        assert torch.equal(first, copy), "a later call changed an earlier result"

    @pytest.mark.parametrize("items", [1, 5, 7])
    def test_values_and_segments_of_different_length_are_refused(
        self, aggregator: Aggregator, reduction: Reduction, items: int
    ) -> None:
        with pytest.raises(REFUSAL):
            aggregator(torch.ones(items, 2), example(), reduction=reduction)

    @pytest.mark.parametrize("shape", [(5,), (1,), (6, 1), ()])
    def test_weights_of_another_shape_are_refused(
        self, aggregator: Aggregator, shape: tuple[int, ...]
    ) -> None:
        with pytest.raises(REFUSAL):
            aggregator(VALUES, example(), weight=torch.ones(shape))


def random_items(
    items: int, trailing: tuple[int, ...], segments: int
) -> tuple[Tensor, Segments, Tensor]:
    """Values, segments of random lengths, and positive weights."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((items, *trailing), generator=generator)
    ends = torch.randint(items + 1, (segments - 1,), generator=generator).sort().values
    offsets = torch.cat([torch.tensor([0]), ends, torch.tensor([items])])
    return values, Segments.from_offsets(offsets), 0.1 + torch.rand(items, generator=generator)


def one_by_one(
    values: Tensor, segments: Segments, reduction: Reduction, weight: Tensor | None
) -> Tensor:
    """Plain aggregation, one segment after another, in float64."""
    share = torch.ones(len(values)) if weight is None else weight
    rows = []
    for segment in range(segments.num_segments):
        members = segments.index == segment
        total = torch.tensordot(share[members].double(), values[members].double(), dims=1)
        is_mean = reduction == "mean" and bool(members.any())
        rows.append(total / share[members].double().sum() if is_mean else total)
    return torch.stack(rows).to(values.dtype)
