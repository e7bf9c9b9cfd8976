"""The replay against lists and dictionaries, in random orders of operations."""

import copy
import random
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from empo_phase2 import replay as replay_module
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.replay import FEW_STATES, PIECE_BYTES, Replay, ReplayShape, StorageKind

SLOTS, ROBOT_ACTIONS, HUMANS, HUMAN_ACTIONS, PROFILES, WORDS = 3, 2, 2, 2, 2, 3
PAIRS = PROFILES * ROBOT_ACTIONS

State = tuple[int, tuple[int, ...]]
"""Layout and row."""


def flags_of(state: State) -> tuple[bool, list[bool], list[bool]]:
    """Terminal, achieved and available, as some function of the state."""
    chance = random.Random(repr(state))
    bits = [chance.random() < 0.5 for _ in range(1 + SLOTS + ROBOT_ACTIONS)]
    return bits[0], bits[1 : 1 + SLOTS], bits[1 + SLOTS :]


@dataclass
class Step:
    """A transition as one would write it down."""

    state: State
    steps_left: int
    action: int
    acts_for: list[bool]
    behaviour: list[float]
    policy: list[list[float]]
    successors: list[list[tuple[State, float]]]
    training_step: int

    @property
    def items(self) -> int:
        return sum(map(len, self.successors))

    @property
    def states(self) -> set[State]:
        return {self.state} | {s for pair in self.successors for s, _ in pair}


def block_of(steps: list[Step], dtype: torch.dtype) -> Block:
    states = sorted(set().union(*(step.states for step in steps)))
    place = {state: index for index, state in enumerate(states)}
    flags = [flags_of(state) for state in states]
    pairs = [pair for step in steps for pair in step.successors]
    ends = torch.tensor([0] + [len(pair) for pair in pairs]).cumsum(0)
    return Block(
        States(
            torch.tensor([row for _, row in states], dtype=dtype),
            torch.tensor([layout for layout, _ in states]),
            torch.tensor([terminal for terminal, _, _ in flags]),
            torch.tensor([achieved for _, achieved, _ in flags]),
            torch.tensor([available for _, _, available in flags]),
        ),
        Transitions(
            torch.tensor([place[step.state] for step in steps]),
            torch.tensor([step.steps_left for step in steps]),
            torch.tensor([step.policy for step in steps]),
            torch.tensor([step.acts_for for step in steps]),
            torch.tensor([step.behaviour for step in steps]),
            torch.tensor([step.action for step in steps]),
            ends,
            torch.tensor([place[s] for pair in pairs for s, _ in pair], dtype=torch.int64),
            torch.tensor([p for pair in pairs for _, p in pair], dtype=torch.float32),
        ),
        torch.zeros(len(steps), dtype=torch.bool),
        torch.zeros(len(steps), HUMANS, dtype=torch.int64),
        torch.zeros(len(steps), HUMANS, dtype=torch.int64),
        torch.tensor([place[step.state] for step in steps]),
    )


class ReplayMachine(RuleBasedStateMachine):
    """Adds, evicts, samples, saves, restores and clears."""

    @initialize(
        capacity=st.integers(1, 12),
        dtype=st.sampled_from([torch.int8, torch.int16, torch.int32, torch.int64]),
        kind=st.sampled_from(["ram", "mapped"]),
        generous=st.booleans(),
        few_states=st.sampled_from([1, 5, 1024]),
        piece_bytes=st.sampled_from([4, PIECE_BYTES]),  # In pieces, or whole.
    )
    def build(
        self,
        capacity: int,
        dtype: torch.dtype,
        kind: StorageKind,
        generous: bool,
        few_states: int,
        piece_bytes: int,
    ) -> None:
        replay_module.FEW_STATES, replay_module.PIECE_BYTES = few_states, piece_bytes
        self.folder = tempfile.TemporaryDirectory()
        # Every transition of this test fits alone: at most three successors per pair.
        self.limit = capacity * PAIRS * 4 if generous else PAIRS * (3 + capacity)
        self.max_items = None if generous else self.limit
        self.capacity, self.dtype, self.training_step = capacity, dtype, 0
        self.shape = ReplayShape(
            words=WORDS,
            dtype=dtype,
            slots=SLOTS,
            robot_actions=ROBOT_ACTIONS,
            human_slots=SLOTS,
            human_actions=HUMAN_ACTIONS,
            profiles=PROFILES,
            behaviour_actions=ROBOT_ACTIONS,
        )
        self.replay = self.empty(kind)
        self.kept: list[Step] = []

    def empty(self, storage: StorageKind) -> Replay:
        return Replay(
            self.capacity,
            self.shape,
            storage=storage,
            directory=Path(self.folder.name),
            max_items=self.max_items,
        )

    def teardown(self) -> None:
        replay_module.FEW_STATES, replay_module.PIECE_BYTES = FEW_STATES, PIECE_BYTES
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(
        seed=st.integers(0, 2**20), count=st.integers(1, 4), later=st.integers(0, 2),
    )  # fmt: skip
    def add(self, seed: int, count: int, later: int) -> None:
        chance = random.Random(seed)
        self.training_step += later
        steps = [self.play(chance) for _ in range(min(count, self.capacity))]
        if sum(step.items for step in steps) > self.limit:
            return
        self.replay.add(block_of(steps, self.dtype), training_step=self.training_step)
        while (
            len(self.kept) + len(steps) > self.capacity
            or sum(step.items for step in [*self.kept, *steps]) > self.limit
        ):
            del self.kept[0]
        self.kept += steps

    def play(self, chance: random.Random) -> Step:
        return Step(
            self.state(chance), chance.randint(1, 9),
            chance.randrange(ROBOT_ACTIONS),
            [chance.random() < 0.5 for _ in range(SLOTS)],
            [chance.random() for _ in range(ROBOT_ACTIONS)],
            [[chance.random() for _ in range(HUMAN_ACTIONS)] for _ in range(SLOTS)],
            [
                [(self.state(chance), chance.random()) for _ in range(chance.randint(0, 3))]
                for _ in range(PAIRS)
            ],
            self.training_step,
        )  # fmt: skip

    def state(self, chance: random.Random) -> State:
        # Few enough to meet again, and many enough to be forgotten in between.
        return chance.randrange(2), (chance.randrange(12), 7, chance.randrange(3))

    @precondition(lambda self: self.kept)
    @rule(seed=st.integers(0, 99), count=st.integers(1, 8), age=st.integers(0, 4))
    def sample(self, seed: int, count: int, age: int) -> None:
        oldest = self.training_step - age
        generator = torch.Generator().manual_seed(seed)
        positions = self.replay.sample_indices(count, generator, oldest=oldest)
        eligible = [step for step in self.kept if step.training_step >= oldest]
        allowed = eligible if len(eligible) >= count else self.kept
        for position, step in zip(positions.tolist(), self.read(positions), strict=True):
            assert any(self.at(position) is other for other in allowed)
            assert step == self.expected(self.at(position))
        drawn = self.replay.sample_indices(99, generator, by_state=True)
        newest = {(s.state, s.steps_left): s for s in self.kept}
        assert all(any(self.at(p) is s for s in newest.values()) for p in drawn.tolist())

    @rule(storage=st.sampled_from(["ram", "mapped"]))
    def save_and_restore(self, storage: StorageKind) -> None:
        tree = copy.deepcopy(self.replay.state_dict())
        restored = self.empty(storage)
        restored.load_state_dict(tree)
        if self.kept:
            drawn = [
                replay.transitions(replay.sample_indices(8, torch.Generator().manual_seed(1)))
                for replay in (self.replay, restored)
            ]
            for name in Transitions.__dataclass_fields__:
                assert torch.equal(getattr(drawn[0], name), getattr(drawn[1], name)), name
        self.replay = restored

    @rule(chance=st.integers(0, 3))
    def clear(self, chance: int) -> None:
        if chance == 0:
            self.replay.clear()
            self.training_step = 0
            self.kept = []

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.replay) == len(self.kept)
        assert self.replay.items == sum(step.items for step in self.kept)
        everything = set().union(*(step.states for step in self.kept))
        assert self.replay.distinct_states >= len(everything)

    @invariant()
    def everything_can_be_read(self) -> None:
        positions = self.positions()
        assert self.read(positions) == [self.expected(step) for step in self.kept]

    @invariant()
    def equal_states_have_equal_ids(self) -> None:
        batch = self.replay.transitions(self.positions())
        ids = torch.cat([batch.state, batch.successor]).unique()
        assert len(ids) <= self.replay.distinct_states
        states = self.replay.states(ids)
        seen = {
            (layout, tuple(row))
            for layout, row in zip(states.layout.tolist(), states.rows.tolist(), strict=True)
        }
        assert len(seen) == len(ids)

    def positions(self) -> torch.Tensor:
        """Positions of the kept transitions, oldest first."""
        number = self.replay.state_dict()["number"]
        return torch.arange(number - len(self.kept), number) % self.capacity

    def at(self, position: int) -> Step:
        return self.kept[self.positions().tolist().index(position)]

    def expected(self, step: Step) -> list[Any]:
        def rounded(numbers: Any) -> Any:
            return torch.tensor(numbers, dtype=torch.float32).tolist()

        pairs = [[(s, rounded(p)) for s, p in pair] for pair in step.successors]
        return [
            step.state, step.steps_left, step.action, step.acts_for,
            rounded(step.behaviour), rounded(step.policy), pairs,
        ]  # fmt: skip

    def read(self, positions: torch.Tensor) -> list[list[Any]]:
        """Contents of transitions in the replay, in the form of ``expected``."""
        batch = self.replay.transitions(positions)
        ids = torch.cat([batch.state, batch.successor]).unique()
        states = self.replay.states(ids)
        known: dict[int, State] = {}
        for index, key in enumerate(ids.tolist()):
            known[key] = (int(states.layout[index]), tuple(states.rows[index].tolist()))
            flags = (states.terminal, states.achieved, states.available)
            assert tuple(part[index].tolist() for part in flags) == flags_of(known[key])
        ends = batch.offsets.tolist()
        items = [
            (known[s], p)
            for s, p in zip(batch.successor.tolist(), batch.prob.tolist(), strict=True)
        ]
        pairs = [items[begin:end] for begin, end in pairwise(ends)]
        return [
            [
                known[int(batch.state[i])], int(batch.steps_left[i]),
                int(batch.action[i]), batch.acts_for[i].tolist(),
                batch.behaviour[i].tolist(),
                batch.human_policy[i].tolist(), pairs[i * PAIRS : (i + 1) * PAIRS],
            ]
            for i in range(len(batch))
        ]  # fmt: skip


checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
quick = settings(
    max_examples=8, stateful_step_count=25, suppress_health_check=checks,
)  # fmt: skip
TestReplayMachine = ReplayMachine.TestCase
TestReplayMachine.settings = quick


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestReplayMachineAtLength(ReplayMachine.TestCase):
    settings = settings(quick, max_examples=500, stateful_step_count=50)
