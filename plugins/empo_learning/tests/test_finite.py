"""Numbers that are not finite are noticed and named; finite ones never raise a false alarm."""

from __future__ import annotations

import math

import pytest
import torch

from empo_core.errors import NonFiniteError
from empo_learning.finite import check_finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_first_bad_tensor_is_named(bad: float, dtype: torch.dtype) -> None:
    good, worse = torch.ones(3, dtype=dtype), torch.ones(2, 2, dtype=dtype)
    worse[1, 0] = worse[1, 1] = bad
    with pytest.raises(NonFiniteError, match=rf"published .*q_r\.0 .*2 of 4 .*{bad}$"):
        check_finite({"a": good, "q_r.0": worse, "z": worse}, "a weight to be published")


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    large = torch.full((1000,), torch.finfo(torch.float32).max)
    check_finite({"large": large, "half": torch.full((9,), 65504.0, dtype=torch.float16)}, "x")


def test_all_sorts_of_tensors_may_stand_side_by_side() -> None:
    tensors = {
        "integers": torch.tensor([2**62]),
        "flags": torch.tensor([True]),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(1.0),
        "double": torch.tensor([1e300], dtype=torch.float64),
        "half": torch.tensor([1.0], dtype=torch.bfloat16),
        "trained": torch.nn.Parameter(torch.ones(2)),
    }
    check_finite(tensors, "a weight")
    check_finite({}, "nothing")
    tensors["scalar"] = torch.tensor(math.nan)
    with pytest.raises(NonFiniteError, match="scalar has 1 of 1 numbers"):
        check_finite(tensors, "a weight")
    with pytest.raises(NonFiniteError, match="trained has 1 of 2 numbers"):
        check_finite({"trained": torch.nn.Parameter(torch.tensor([1.0, math.inf]))}, "a weight")
