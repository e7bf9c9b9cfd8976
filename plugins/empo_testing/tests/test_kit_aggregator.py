"""The aggregator kit passes a right aggregator and fails each one broken on purpose."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.protocols import Aggregator
from empo_core.types import Segments
from empo_testing.aggregator import AggregatorTests

Runner = Callable[..., set[str]]


def right(
    values: Tensor,
    segments: Segments,
    *,
    reduction: str = "sum",
    weight: Tensor | None = None,
) -> Tensor:
    """Follows the protocol."""
    if len(values) != len(segments.index):
        raise ValueError("values and segments differ in length")
    if weight is not None and weight.shape != values.shape[:1]:
        raise ValueError("weight and values differ in length")
    shape = (segments.num_segments, *values.shape[1:])
    wide = values.double()
    share = torch.ones(len(values)).double() if weight is None else weight.double()
    index = segments.index
    total = wide.new_zeros(shape).index_add(0, index, wide * column(share, wide))
    if reduction == "mean":
        count = wide.new_zeros(len(total)).index_add(0, index, share)
        safe = count.masked_fill(count == 0, 1)
        total = (total / column(safe, total)).masked_fill(column(count, total) == 0, 0)
    return total.to(values.dtype)


def column(vector: Tensor, like: Tensor) -> Tensor:
    return vector.reshape(-1, *[1] * (like.ndim - 1))


def detached(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values.detach(), segments, **options)


def weight_detached(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    if options.get("weight") is not None:
        options["weight"] = options["weight"].detach()
    return right(values, segments, **options)


def wrong_dtype(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values, segments, **options).double()


def through_float32(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values.float(), segments, **options).to(values.dtype)


def adds_in_the_dtype_itself(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    total = right(values, segments, **options)
    if options.get("weight") is not None:
        return total
    for number in range(segments.num_segments):
        running = values.new_zeros(values.shape[1:])
        for item in values[segments.index == number] if len(values) > 1000 else []:
            running = running + item
            total[number] = running
    return total


def flattens_trailing_axes(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return (
        right(values, segments, **options).flatten(1)
        if values.ndim > 1
        else right(values, segments, **options)
    )


def drops_empty_segments(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values, segments, **options)[segments.counts > 0]


def empty_mean_is_nan(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    result = right(values, segments, **options)
    empty = column(segments.counts == 0, result)
    return result.masked_fill(empty, torch.nan) if options.get("reduction") == "mean" else result


def mean_divides_by_the_count(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    if options.get("reduction") != "mean" or options.get("weight") is None:
        return right(values, segments, **options)
    total = right(values, segments, weight=options["weight"])
    return total / column(segments.counts.clamp(min=1), total)


def nan_gradient(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    result = right(values, segments, **options)
    if options.get("reduction") != "mean":
        return result
    weight = options.get("weight")
    share = torch.ones(len(values)).to(values) if weight is None else weight
    count = values.new_zeros(len(result)).index_add(0, segments.index, share)
    total = right(values, segments, weight=weight)
    return (total / column(count, total)).where(column(count, total) != 0, 0)


def mean_by_default(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values, segments, **{"reduction": "mean"} | options)


def needs_wide_indices(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    if segments.offsets.dtype != torch.int64:
        raise RuntimeError("expected int64")
    return right(values, segments, **options)


def needs_items(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    if len(values) == 0:
        raise RuntimeError("nothing to reduce")
    return right(values, segments, **options)


def needs_two_items(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    return right(values, segments, **options) * (len(values) > 1)


def reads_raw_memory(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    flat = torch.as_strided(values, values.shape, torch.empty(values.shape).stride())
    return right(flat, segments, **options)


def spreads_nan(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    result = right(values, segments, **options)
    return result + 0 * values.sum(0) if values.isnan().any() else result


def writes_into_its_input(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    result = right(values, segments, **options)
    if not values.requires_grad:
        values.zero_()
    return result


def takes_any_length(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    number = min(len(values), len(segments.index))
    if number == len(values) == len(segments.index):
        return right(values, segments, **options)
    return right(values[:number], Segments(segments.offsets, segments.index[:number]), **options)


def broadcasts_weights(values: Tensor, segments: Segments, **options: Any) -> Tensor:
    weight = options.get("weight")
    if weight is not None:
        options["weight"] = (
            weight.flatten()[:1].expand(len(values))
            if (weight.shape != values.shape[:1])
            else weight
        )
    return right(values, segments, **options)


def not_a_function() -> object:
    return "sum"


FLAWS: list[tuple[Callable[..., Any], list[str]]] = [
    (detached, ["test_the_gradient_reaches_values_and_weights"]),
    (weight_detached, ["test_the_gradient_reaches_values_and_weights"]),
    (wrong_dtype, ["test_the_result_has_the_dtype_of_the_values"]),
    (through_float32, ["test_float64_is_not_rounded_on_the_way"]),
    (adds_in_the_dtype_itself, ["test_a_long_sum_of_halves_does_not_get_stuck"]),
    (flattens_trailing_axes, ["test_it_agrees_with_reducing_each_segment_alone"]),
    (
        drops_empty_segments,
        ["test_each_segment_is_reduced_and_an_empty_one_is_0"],
    ),
    (empty_mean_is_nan, ["test_no_items_give_zeros"]),
    (mean_divides_by_the_count, ["test_weights_count"]),
    (nan_gradient, ["test_empty_and_weightless_segments_leave_no_nan_in_the_gradient"]),
    (mean_by_default, ["test_the_default_is_the_sum"]),
    (needs_wide_indices, ["test_both_widths_of_offsets_give_the_same"]),
    (needs_items, ["test_no_items_give_zeros", "test_no_segments_give_an_empty_result"]),
    (needs_two_items, ["test_one_item_is_its_own_result"]),
    (reads_raw_memory, ["test_memory_layout_does_not_matter"]),
    (spreads_nan, ["test_nan_and_infinity_stay_in_their_segment"]),
    (writes_into_its_input, ["test_inputs_are_left_alone"]),
    (takes_any_length, ["test_values_and_segments_of_different_length_are_refused"]),
    (broadcasts_weights, ["test_weights_of_another_shape_are_refused"]),
    (not_a_function, ["test_it_fits_the_protocol"]),
]


def subclass(made: object) -> type:
    class TestIt(AggregatorTests):
        @pytest.fixture
        def aggregator(self) -> Aggregator:
            return made  # type: ignore[return-value]

    return TestIt


def test_a_right_aggregator_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(right)) == set()


@pytest.mark.parametrize(("flaw", "caught_by"), FLAWS)
def test_a_broken_aggregator_fails(
    kit_failures: Runner, flaw: Callable[..., Any], caught_by: list[str]
) -> None:
    made = flaw() if flaw is not_a_function else flaw
    assert set(caught_by) <= kit_failures(subclass(made), only=caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in dir(AggregatorTests) if name.startswith("test_")}
