"""Arrays as bytes: what is taken out is what was put in."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from empo_core.errors import WorkerError
from empo_exact.parts.array_bytes import decode_arrays, encode_arrays

DTYPES = st.sampled_from(["?", "u1", "<i4", ">i8", "<f4", "<f8", "<c16"])
ARRAYS = st.dictionaries(
    st.text(max_size=8),
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
    max_size=5,
)


@given(ARRAYS)
@settings(max_examples=100)
def test_arrays_come_out_as_they_went_in(arrays: dict[str, np.ndarray]) -> None:
    found = decode_arrays(bytearray(b"".join(encode_arrays(arrays))))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_arrays_that_are_not_contiguous_come_out_right() -> None:
    array = np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    found = decode_arrays(bytearray(b"".join(encode_arrays({"a": array}))))["a"]
    assert found.tolist() == array.tolist()


def test_tensors_can_be_made_of_what_arrives_without_copying() -> None:
    payload = bytearray(b"".join(encode_arrays({"a": np.zeros(3)})))
    tensor = torch.from_numpy(decode_arrays(payload)["a"])  # Warns where it is read-only.
    tensor[1] = 5.0
    assert decode_arrays(payload)["a"].tolist() == [0.0, 5.0, 0.0]


@pytest.mark.parametrize("array", [np.array([None]), np.array(["a"]), np.array([b"a"])])
def test_only_numbers_and_booleans_are_sent(array: np.ndarray) -> None:
    with pytest.raises(WorkerError, match=r"array 'names'"):
        encode_arrays({"names": array})
