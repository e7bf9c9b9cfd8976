"""Which segments hold one agent's consecutive steps, by arrival order; and how it can go wrong.

Every observation says which agent made it and how many steps that agent has made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import torch

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_rollout.buffer import SegmentBuffer
from empo_rollout.plan import VecPlan

Tail = Literal["bootstrap", "drop"]
Pick = Callable[[list[int]], int]
"""Which of the blocks on their way arrives next; the first of them was sent first."""


def rotation(on_way: list[int]) -> int:
    return on_way[0]


def favouring_the_last(on_way: list[int]) -> int:
    return max(on_way)


def at_random(seed: int) -> Pick:
    return random.Random(seed).choice


@dataclass
class Outcome:
    """Contents of a rollout: agent and number of each step, and how many steps were made for it."""

    agent: np.ndarray
    step: np.ndarray
    made: int
    arrivals: int

    @classmethod
    def of(cls, observation: np.ndarray, made: int, arrivals: int) -> Outcome:
        """From observations ``[time segment word]``."""
        return cls(observation[..., 0], observation[..., 1], made, arrivals)

    @property
    def sound(self) -> float:
        """Share of the segments that hold one agent's consecutive steps."""
        one = (self.agent == self.agent[0]).all(0)
        return (one & (np.diff(self.step, axis=0) == 1).all(0)).mean().item()

    @property
    def distinct(self) -> int:
        return len(np.unique(self.agent.astype(int) * 1_000_000 + self.step.astype(int)))

    @property
    def wasted(self) -> float:
        """Share of the steps that were made and are not there to learn from."""
        return 1 - self.step.size / self.made


def seen(block: slice, step: int) -> np.ndarray:
    agents = np.arange(block.start, block.stop, dtype=np.float32)
    return np.stack([agents, np.full_like(agents, step)], 1)


def originals(agents: int, blocks: int, segments: int, horizon: int, pick: Pick) -> Outcome:
    """A rollout by the rule of seed 004: the first agent's cursor counts, rows modulo segments."""
    size = agents // blocks
    buffer = np.zeros((horizon, segments, 2), np.float32)
    row, cursor = np.arange(agents) % segments, np.zeros(agents, int)
    free, full, steps, on_way = agents % segments, 0, [0] * blocks, list(range(blocks))
    while full < segments:
        block = pick(on_way)
        on_way.remove(block)
        on_way.append(block)
        mine = slice(block * size, (block + 1) * size)
        time = cursor[mine.start]
        buffer[time, row[mine]] = seen(mine, steps[block])
        cursor[mine] += 1
        steps[block] += 1
        if time + 1 >= horizon:
            row[mine] = (free + np.arange(size)) % segments
            cursor[mine] = 0
            free, full = (free + size) % segments, full + size
    return Outcome.of(buffer, sum(steps) * size, sum(steps))


class Simulation:
    """Our buffer and blocks that arrive in some order, rollout after rollout."""

    def __init__(
        self, agents: int, blocks: int, segments: int, horizon: int, tail: Tail, pick: Pick
    ) -> None:
        self.spec = EnvSpec(
            ObservationSpec(2),
            ActionSpec(choices=(2,)),
            ("walker",),
            num_envs=agents,
            num_blocks=blocks,
        )
        plan = VecPlan(1, 1, blocks, agents, horizon, segments, minibatch_size=horizon)
        self.buffer = SegmentBuffer(self.spec, plan, memory_size=0, tail=tail)
        self.pick, self.steps = pick, [0] * blocks
        self.on_way = list(range(blocks))
        self.parked: list[int] = []

    def arrival(self, block: int) -> TimeStep:
        size = self.spec.block_agents
        nothing, never = np.zeros(size, np.float32), np.zeros(size, bool)
        return TimeStep(
            block, seen(self.spec.agents_of(block), self.steps[block]), nothing, never, never,
            never, ~never, np.zeros(0, int), np.zeros((0, 2), np.float32),
        )  # fmt: skip

    def store(self, block: int) -> None:
        size = self.spec.block_agents
        self.buffer.store(
            self.arrival(block), torch.zeros(size, 1, dtype=torch.int64), torch.zeros(size),
            torch.zeros(size), torch.zeros(size, 0), version=0,
        )  # fmt: skip
        self.steps[block] += 1

    def rollout(self) -> Outcome:
        self.buffer.begin_rollout()
        before, arrivals = sum(self.steps), 0
        for block in self.parked:
            self.store(block)
        self.on_way, self.parked = self.on_way + self.parked, []
        while not self.buffer.ready:
            block = self.pick(self.on_way)
            self.on_way.remove(block)
            arrivals += 1
            size = self.spec.block_agents
            self.buffer.receive(self.arrival(block), torch.zeros(size), torch.zeros(0))
            if self.buffer.has_room(block):
                self.store(block)
                self.on_way.append(block)
            else:
                self.parked.append(block)
        made = (sum(self.steps) - before) * size
        return Outcome.of(self.buffer.rollout().observation.numpy(), made, arrivals)


def check(simulation: Simulation, rollouts: int) -> None:
    """Every rollout is sound and wastes nothing, and no step is in two of them or in none."""
    agents, steps = [], []
    for _ in range(rollouts):
        waiting = len(simulation.parked)
        ours = simulation.rollout()
        assert (ours.sound, ours.wasted) == (1, 0)
        blocks = ours.step.size // simulation.spec.block_agents
        assert ours.arrivals == blocks + len(simulation.parked) - waiting
        agents.append(ours.agent.copy())
        steps.append(ours.step.copy())
    together = Outcome(np.concatenate(agents, 1), np.concatenate(steps, 1), 0, 0)
    assert together.distinct == together.step.size
    played = sum(simulation.steps) * simulation.spec.block_agents
    assert together.step.size == played


# Slots, blocks, segments; percentages that the original leaves sound and wastes, and its arrivals.
ROTATING = {
    "the seed's example": (8192, 2, 8192, 100, 0, 128),
    "24 agents per environment": (8064, 2, 8192, 51, 49, 255),
    "24 agents, serially": (4080, 1, 8192, 100, 33, 192),
    "one and a half segments each": (8, 2, 12, 67, 25, 255),
    "two and a half segments each": (8, 2, 20, 80, 16, 383),
}
# Slots, blocks, segments; percentage that the original leaves sound, which varies with chance.
UNORDERED = {
    "a segment each": (8, 2, 8, 57),
    "four segments each": (8, 2, 32, 88),
    "four segments each, four blocks": (8, 4, 32, 83),
}


@pytest.mark.parametrize("case", ROTATING)
def test_the_original_rule_breaks_segments_and_wastes_steps_where_sizes_do_not_fit(
    case: str,
) -> None:
    agents, blocks, segments, sound, wasted, arrivals = ROTATING[case]
    theirs = originals(agents, blocks, segments, 64, rotation)
    assert (round(100 * theirs.sound), round(100 * theirs.wasted)) == (sound, wasted)
    assert theirs.arrivals == arrivals


@pytest.mark.parametrize("case", UNORDERED)
def test_the_original_rule_breaks_segments_where_blocks_come_in_any_order(case: str) -> None:
    agents, blocks, segments, sound = UNORDERED[case]
    pick = at_random(1)
    shares = [originals(agents, blocks, segments, 8, pick).sound for _ in range(200)]
    assert 100 * np.mean(shares) == pytest.approx(sound, abs=4)


@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
@pytest.mark.parametrize("case", ROTATING)
def test_in_rotation_every_segment_is_sound_and_nothing_is_wasted(case: str, tail: Tail) -> None:
    agents, blocks, segments, *_ = ROTATING[case]
    segments -= segments % (agents // blocks)  # A plan has no others.
    horizon, rollouts = (16, 1) if agents > 8 else (8, 3)
    check(Simulation(agents, blocks, segments, horizon, tail, rotation), rollouts)


@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
@pytest.mark.parametrize("case", UNORDERED)
def test_in_any_order_every_segment_is_sound_and_nothing_is_wasted(case: str, tail: Tail) -> None:
    agents, blocks, segments, _ = UNORDERED[case]
    for pick in (at_random(0), at_random(1), favouring_the_last):
        check(Simulation(agents, blocks, segments, 8, tail, pick), 3)


def test_blocks_that_are_ahead_take_what_is_free_and_the_others_still_finish() -> None:
    simulation = Simulation(6, 3, 12, 4, "bootstrap", favouring_the_last)
    ours = simulation.rollout()
    owners, counts = np.unique(ours.agent[0], return_counts=True)
    assert dict(zip(owners.tolist(), counts.tolist(), strict=True)) == {
        0: 1, 1: 1, 2: 1, 3: 1, 4: 4, 5: 4
    }  # fmt: skip


@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
def test_with_equal_shares_a_rollout_takes_as_many_arrivals_as_it_has_steps_per_agent(
    tail: Tail,
) -> None:
    simulation = Simulation(8, 2, 16, 5, tail, rotation)
    arrivals = [simulation.rollout().arrivals for _ in range(3)]
    # The outcome of the last steps is waited for once: those blocks then act without arriving.
    assert arrivals == ([22, 20, 20] if tail == "bootstrap" else [20, 20, 20])
