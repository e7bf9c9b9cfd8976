"""Fields of single steps in a rollout, and calls that the buffer refuses."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

import numpy as np
import pytest
import torch

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_rollout.buffer import Rollout, SegmentBuffer
from empo_rollout.plan import VecPlan


class Line:
    """One agent on a line, told step by step what happens to it; observations count its steps.

    The critic says 10 times the observation, and 1000 more of final ones.
    """

    def __init__(self, tail: Literal["bootstrap", "drop"], segments: int = 1) -> None:
        env_spec = EnvSpec(ObservationSpec(3), ActionSpec(choices=(2, 3)), ("walker",), num_envs=1)
        plan = VecPlan(1, 1, 1, 1, horizon=3, segments=segments, minibatch_size=3)
        self.buffer = SegmentBuffer(env_spec, plan, memory_size=1, tail=tail)
        self.count, self.waits = 0, False

    def arrival(self, flags: str) -> TimeStep:
        """``t`` for terminated, ``u`` for truncated, ``f`` if the final observation is known,
        ``s`` for the start of an episode, ``d`` for an agent that is dead."""
        self.count += 1
        has = {flag: np.array([flag in flags]) for flag in "tufsd"}
        final = np.flatnonzero(has["f"])
        return TimeStep(
            0, np.full((1, 3), self.count, np.float32), np.ones(1, np.float32), has["t"],
            has["u"], has["s"], ~has["d"], final, np.zeros((len(final), 3), np.float32),
        )  # fmt: skip

    def store(self, arrival: TimeStep) -> None:
        value = torch.tensor([10.0 * self.count])
        action, memory = torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[0.5 * self.count]])
        self.buffer.store(arrival, action, -value, value, memory, 0)

    def receive(self, arrival: TimeStep) -> None:
        final = torch.full((len(arrival.final_row),), 1000.0 + 10 * self.count)
        self.buffer.receive(arrival, torch.tensor([10.0 * self.count]), final)

    def play(self, *happens: str) -> Rollout:
        """A rollout in which this happens; what is left waits for the next."""
        self.buffer.begin_rollout()
        if self.waits:
            self.store(self.waiting)
        for flags in happens:
            self.waiting = self.arrival(flags)
            self.receive(self.waiting)
            self.waits = not self.buffer.has_room(0)
            if not self.waits:
                self.store(self.waiting)
        return self.buffer.rollout()


def test_a_segment_that_ends_within_an_episode_goes_on_with_the_value_of_what_follows() -> None:
    rollout = Line("bootstrap").play("s", "", "", "")
    assert rollout.value[:, 0].tolist() == [10, 20, 30]
    assert rollout.next_value[:, 0].tolist() == [20, 30, 40]
    assert rollout.reward[:, 0].tolist() == [1, 1, 1]
    assert rollout.learnable.all()


def test_a_dropped_tail_is_unknown_and_says_nothing() -> None:
    line = Line("drop")
    for happens in (("s", "t", "tus"), ("us", "", "uf")):
        rollout = line.play(*happens)
        assert rollout.is_known[:, 0].tolist() == [True, True, False]
        assert rollout.reward[:, 0].tolist() == [1, 1, 0]
        assert rollout.next_value[2, 0] == 0
        assert not rollout.terminated[2].any()
        assert not rollout.truncated[2].any()
        assert not rollout.learnable[2].any()


def test_what_ends_an_episode_decides_what_it_goes_on_to_be_worth() -> None:
    rollout = Line("bootstrap", 2).play("s", "ts", "ufs", "us", "tufs", "tus", "")
    assert rollout.terminated.T.flatten().tolist() == [1, 0, 0, 1, 1, 0]
    assert rollout.truncated.T.flatten().tolist() == [0, 1, 1, 1, 1, 0]
    assert rollout.unseen.T.flatten().tolist() == [0, 0, 1, 0, 0, 0]
    assert rollout.next_value.T.flatten().tolist() == [0, 1030, 0, 0, 0, 70]
    assert rollout.starts.all()


def test_what_follows_a_step_that_was_none_counts_for_nothing() -> None:
    rollout = Line("bootstrap").play("s", "td", "tufs", "")
    assert rollout.valid[:, 0].tolist() == [True, False, True]
    assert rollout.reward[:, 0].tolist() == [1, 0, 1]
    assert rollout.terminated[:, 0].tolist() == [True, False, False]
    assert not rollout.truncated.any()
    assert rollout.next_value[:, 0].tolist() == [0, 0, 40]


def test_a_block_that_waits_begins_the_next_rollout_where_it_stood() -> None:
    line = Line("bootstrap")
    first = line.play("s", "", "", "").segments(torch.tensor([0]))
    second = line.play("", "", "t")
    assert first.observation[:, 0, 0].tolist() == [1, 2, 3]
    assert second.observation[:, 0, 0].tolist() == [4, 5, 6]
    assert first.next_value[2] == second.value[0] == 40
    assert second.next_value[:, 0].tolist() == [50, 60, 0]


def test_memory_is_that_before_a_segment_and_void_where_an_episode_starts_with_it() -> None:
    line = Line("bootstrap", 3)
    rollout = line.play("s", "", "", "", "s", "", "ts", "", "", "")
    assert rollout.memory.tolist() == [[0], [2], [0]]


def test_segments_remember_nothing_of_the_networks_that_computed_them() -> None:
    line = Line("bootstrap")
    weight, action = torch.ones(1, requires_grad=True), torch.zeros(1, 2, dtype=torch.int64)
    line.buffer.begin_rollout()
    for _ in range(4):
        arrival = line.arrival("suf")
        line.buffer.receive(arrival, 2 * weight, 3 * weight)
        if line.buffer.has_room(0):
            line.buffer.store(arrival, action, weight, weight, weight[None], 0)
    rollout = line.buffer.rollout()
    assert rollout.next_value[:, 0].tolist() == [3, 3, 3]
    for each in fields(Rollout):
        tensor = getattr(rollout, each.name)
        assert tensor is None or not tensor.requires_grad


def test_a_rollout_that_is_not_ready_is_neither_given_out_nor_forgotten() -> None:
    line = Line("bootstrap")
    with pytest.raises(RuntimeError, match=r"0 of 1 segments.* 1 of 1 blocks"):
        line.play("s", "")
    with pytest.raises(RuntimeError, match="lose"):
        line.buffer.begin_rollout()
    for _ in range(2):
        line.waiting = line.arrival("")
        line.receive(line.waiting)
        if line.buffer.has_room(0):
            line.store(line.waiting)
    assert line.buffer.rollout().observation[:, 0, 0].tolist() == [1, 2, 3]


def test_steps_out_of_turn_are_refused() -> None:
    line = Line("bootstrap")
    line.buffer.begin_rollout()
    arrival = line.arrival("s")
    line.receive(arrival)
    with pytest.raises(RuntimeError, match="block 0 arrives twice"):
        line.receive(arrival)
    line.store(arrival)
    with pytest.raises(RuntimeError, match="received"):
        line.store(arrival)
    for _ in range(2):
        assert line.buffer.has_room(0)
        line.receive(line.arrival(""))
        line.store(arrival)
    line.receive(line.arrival(""))
    assert not line.buffer.has_room(0)
    with pytest.raises(RuntimeError, match="others"):
        line.store(arrival)
