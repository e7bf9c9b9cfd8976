"""Policies as bytes: whole, of their own memory, and finite."""

from __future__ import annotations

import pytest
import torch

from empo_async_actors.policy import decode_policy, encode_policy
from empo_core.errors import NonFiniteError

WEIGHTS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(5),
    "empty": torch.zeros(0, 2),
}


def test_what_is_read_is_what_was_published() -> None:
    found = decode_policy(memoryview(encode_policy(WEIGHTS, 3)))
    assert set(found) == set(WEIGHTS)
    for name, tensor in WEIGHTS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_tensors_may_share_memory_and_need_gradients() -> None:
    one = torch.zeros(3, requires_grad=True)
    blob = encode_policy({"one": one, "same": one, "part": one[1:]}, 1)
    assert {name: len(tensor) for name, tensor in decode_policy(memoryview(blob)).items()} == {
        "one": 3, "same": 3, "part": 2,
    }  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_never_published(value: float) -> None:
    bad = torch.zeros(4)
    bad[2] = value
    with pytest.raises(NonFiniteError, match=r"policy 1, .* is not finite: layer\.weight"):
        encode_policy(WEIGHTS | {"layer.weight": bad}, 1)
