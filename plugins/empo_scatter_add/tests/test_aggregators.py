"""Sums and means of segments equal those of a plain loop, and their gradients do."""

from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from empo_core.protocols import Aggregator
from empo_core.types import Reduction, Segments
from empo_scatter_add.aggregator import ScatterAdd
from empo_scatter_add.plugin import ScatterAddParams, empo_components
from empo_testing.aggregator import AggregatorTests

CHOICES = [ScatterAddParams(), ScatterAddParams(deterministic=True)]


@pytest.mark.parametrize("params", CHOICES, ids=str)
class TestScatterAdd(AggregatorTests):
    @pytest.fixture
    def aggregator(self, params: ScatterAddParams) -> Aggregator:
        return ScatterAdd(params)


def looped(
    values: torch.Tensor, segments: Segments, *, reduction: Reduction, weight: torch.Tensor | None
) -> torch.Tensor:
    """One segment after another, in sums of at least 32 bits."""
    wide = torch.float32 if values.dtype.itemsize < 4 else values.dtype
    rows = []
    for start, end in pairwise(segments.offsets.tolist()):
        share = (torch.ones(end - start) if weight is None else weight[start:end]).to(wide)
        column = share.reshape(-1, *[1] * (values.ndim - 1))
        row = (column * values[start:end].to(wide)).sum(0)
        if reduction == "mean":
            row = torch.zeros_like(row) if share.sum() == 0 else row / share.sum()
        rows.append(row.to(values.dtype))
    return torch.stack(rows)


@st.composite
def problems(
    draw: st.DrawFn,
) -> tuple[torch.Tensor, Segments, Reduction, torch.Tensor | None]:
    counts = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    trailing = draw(st.sampled_from([(), (1,), (3,), (16,), (2, 2)]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    reduction: Reduction = draw(st.sampled_from(["sum", "mean"]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    # Few distinct values, so that cancellation happens.
    values = torch.randint(-3, 4, (sum(counts), *trailing), generator=generator).to(dtype) / 2
    weight = None
    if draw(st.booleans()):
        weight = torch.randint(0, 3, (sum(counts),), generator=generator).to(dtype) / 2
    width = draw(st.sampled_from([torch.int32, torch.int64]))
    offsets = torch.tensor([0, *accumulate(counts)], dtype=width)
    return values, Segments.from_offsets(offsets), reduction, weight


@settings(max_examples=200)
@given(problem=problems(), params=st.sampled_from(CHOICES))
def test_scatter_add_equals_a_loop_in_value_and_gradient(
    problem: tuple[torch.Tensor, Segments, Reduction, torch.Tensor | None],
    params: ScatterAddParams,
) -> None:
    values, segments, reduction, weight = problem
    outcomes = []
    for aggregator in (ScatterAdd(params), looped):
        leaf = values.clone().requires_grad_()
        factor = None if weight is None else weight.clone().requires_grad_()
        result = aggregator(leaf, segments, reduction=reduction, weight=factor)
        scale = torch.arange(1, result.numel() + 1, dtype=result.dtype).reshape(result.shape)
        if result.requires_grad:
            (result.where(result.isfinite(), 0) * scale).sum().backward()
        zeros = torch.zeros_like(values)
        outcomes.append((result.detach(), zeros if leaf.grad is None else leaf.grad))
        if factor is not None:
            outcomes[-1] += (torch.zeros_like(weight) if factor.grad is None else factor.grad,)
    for mine, reference in zip(*outcomes, strict=True):
        torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("offsets", [[1, 2], [0, 3, 2]])
def test_offsets_that_make_no_sense_are_refused(offsets: list[int]) -> None:
    with pytest.raises(IndexError, match="decrease"):
        Segments.from_offsets(torch.tensor(offsets))


def test_an_error_names_both_shapes() -> None:
    segments = Segments.from_offsets(torch.tensor([0, 2, 3]))
    with pytest.raises(ValueError, match=r"shape \[4, 2\] .*3 items"):
        ScatterAdd(ScatterAddParams())(torch.ones(4, 2), segments)


def test_integers_are_refused() -> None:
    segments = Segments.from_offsets(torch.tensor([0, 1]))
    with pytest.raises((ValueError, TypeCheckError)):
        ScatterAdd(ScatterAddParams())(torch.ones(1, dtype=torch.int64), segments)


def test_an_unknown_reduction_is_refused() -> None:
    segments = Segments.from_offsets(torch.tensor([0, 1]))
    with pytest.raises((ValueError, TypeCheckError)):
        ScatterAdd(ScatterAddParams())(torch.ones(1), segments, reduction="median")  # type: ignore[arg-type]


def test_values_and_segments_on_different_devices_are_refused() -> None:
    segments = Segments.from_offsets(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"meta .*cpu"):
        ScatterAdd(ScatterAddParams())(torch.ones(1, device="meta"), segments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("params", CHOICES, ids=str)
def test_cuda_agrees_with_the_cpu(params: ScatterAddParams) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(10_000, 3, generator=generator)
    weight = torch.rand(10_000, generator=generator)
    ends = torch.randint(10_001, (99,), generator=generator).sort().values
    offsets = torch.cat([torch.tensor([0]), ends, torch.tensor([10_000])])
    aggregator = ScatterAdd(params)
    on_cpu, on_cuda = Segments.from_offsets(offsets), Segments.from_offsets(offsets.cuda())
    for reduction in ("sum", "mean"):
        expected = aggregator(values, on_cpu, reduction=reduction, weight=weight)
        runs = [
            aggregator(values.cuda(), on_cuda, reduction=reduction, weight=weight.cuda()).cpu()
            for _ in range(10)
        ]
        torch.testing.assert_close(runs[0], expected, rtol=1e-4, atol=1e-4)
        if params.deterministic:
            assert all(torch.equal(run, runs[0]) for run in runs)


def test_it_is_offered_under_its_name() -> None:
    (component,) = empo_components()
    assert component.name == "scatter-add"
    built = component.load()(component.params_model()())
    segments = Segments.from_offsets(torch.tensor([0, 0, 2]))
    assert built(torch.ones(2), segments).tolist() == [0.0, 2.0]
