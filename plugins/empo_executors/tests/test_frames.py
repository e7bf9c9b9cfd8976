"""Arrays and frames: what is taken out is what was put in, or nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from empo_core.errors import WorkerError
from empo_executors.frames import (
    Disconnected,
    Kind,
    Receiver,
    Sender,
    decode_arrays,
    encode_arrays,
)

Pipes = tuple["Connection[Any, Any]", "Connection[Any, Any]"]
DTYPES = st.sampled_from(["?", "u1", "<i4", ">i8", "<f4", "<f8", "<c16"])
ARRAYS = st.dictionaries(
    st.text(max_size=8),
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
    max_size=5,
)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


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
    with pytest.raises(WorkerError, match="array 'names'"):
        encode_arrays({"names": array})


def test_frames_arrive_in_order_with_what_they_say(pipes: Pipes) -> None:
    sender, receiver = Sender(pipes[0], 3, 1), Receiver(3, 1)
    sender.send(Kind.READY, [], version=0)
    sender.send(Kind.PART, [b"ab", memoryview(b"c")], version=7, call=16)
    assert receiver.receive(pipes[1]).kind is Kind.READY
    frame = receiver.receive(pipes[1])
    assert (frame.kind, frame.number, frame.version, frame.call) == (Kind.PART, 1, 7, 16)
    assert frame.payload == b"abc"
    assert receiver.accepted == 2


def test_no_bit_can_change_unnoticed(pipes: Pipes) -> None:
    Sender(pipes[0], 0, 0).send(Kind.PART, [b"payload"], version=1, call=1)
    message = pipes[1].recv_bytes()
    for bit in range(8 * len(message)):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        pipes[0].send_bytes(damaged)
        receiver = Receiver(0, 0)
        with pytest.raises(WorkerError, match=r"nothing of it was used"):
            receiver.receive(pipes[1])
        assert receiver.accepted == 0


@pytest.mark.parametrize("length", [0, 3, 63, 64, 70])
def test_a_message_cut_short_is_refused(pipes: Pipes, length: int) -> None:
    Sender(pipes[0], 0, 0).send(Kind.PART, [b"payload"], version=1, call=1)
    pipes[0].send_bytes(pipes[1].recv_bytes()[:length])
    with pytest.raises(WorkerError, match=r"not a frame|damaged"):
        Receiver(0, 0).receive(pipes[1])


@pytest.mark.parametrize(
    ("worker", "incarnation", "skipped"), [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 2)]
)
def test_only_the_next_frame_of_the_same_incarnation_is_taken(
    pipes: Pipes, worker: int, incarnation: int, skipped: int
) -> None:
    sender = Sender(pipes[0], worker, incarnation)
    sender.number = skipped
    sender.send(Kind.PART, [b"x"], version=0, call=1)
    with pytest.raises(WorkerError, match=r"where frame 0 was due"):
        Receiver(0, 0).receive(pipes[1])


def test_a_frame_that_comes_twice_is_refused(pipes: Pipes) -> None:
    Sender(pipes[0], 0, 0).send(Kind.PART, [b"x"], version=0, call=1)
    message = pipes[1].recv_bytes()
    receiver = Receiver(0, 0)
    for _ in range(2):
        pipes[0].send_bytes(message)
    receiver.receive(pipes[1])
    with pytest.raises(WorkerError, match=r"is frame 0 .* where frame 1 was due"):
        receiver.receive(pipes[1])


def test_a_sender_that_is_gone_is_no_error_in_the_data(pipes: Pipes) -> None:
    pipes[0].close()
    with pytest.raises(Disconnected):
        Receiver(0, 0).receive(pipes[1])
    with pytest.raises(Disconnected):
        Sender(pipes[1], 0, 0).send(Kind.READY, [], version=0)
