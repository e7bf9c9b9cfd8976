"""Requests and experience come out as they went in."""

from __future__ import annotations

import numpy as np
import pytest

from empo_async_actors.messages import (
    Message,
    Request,
    decode_experience,
    encode_experience,
    env_steps_of,
)
from empo_core.types import Experience


@pytest.mark.parametrize(
    "message",
    [
        Message(Request.BUILD, 7),
        Message(Request.LOAD_STATE, body=b"state"),
        Message(Request.SEND_STATE),
        Message(Request.ACT, 2**40, 12),
    ],
)
def test_requests_come_out_as_they_went_in(message: Message) -> None:
    assert Message.decode(message.encode()) == message


def test_experience_comes_out_as_it_went_in_and_is_not_copied() -> None:
    arrays = {"a": np.arange(5.0), "b": np.ones((2, 0, 3), np.int16), "c": np.array(True)}
    payload = bytearray(b"".join(encode_experience(Experience(arrays, 12, 0, 5))))
    assert env_steps_of(payload) == 12
    found = decode_experience(payload, 3)
    assert (found.env_steps, found.actor, found.version) == (12, 3, 5)
    for name, array in arrays.items():
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        assert found.arrays[name].tobytes() == array.tobytes()
    found.arrays["a"][0] = 9.0
    assert decode_experience(payload, 3).arrays["a"][0] == 9.0
