"""Sequences of what happened: which there are, how often each is drawn, and what they hold."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_latent_replay import PlainReplay

from empo_core.errors import StorageError
from empo_latent.replay import Replay
from empo_latent.types import MultiTaskSpec, SequenceBatch
from empo_learning.state_tree import flatten, unflatten

ACTIONS = 2


def spec(*, tasks: int = 1, pictures: bool = False) -> MultiTaskSpec:
    return MultiTaskSpec(
        words=4 if pictures else 1,
        pictures=pictures,
        shape=(1, 2, 2) if pictures else (1,),
        actions=ACTIONS,
        active=((True,) * ACTIONS,) * tasks,
        tasks=tuple(f"task{i}" for i in range(tasks)),
        action_repeats=(1,) * tasks,
        episode_lengths=(100,) * tasks,
    )


class Life:
    """Lets environments live in a replay and in the plain one; every moment has its own number."""

    def __init__(self, envs: int, capacity: int, horizon: int) -> None:
        self.envs = envs
        self.fast = Replay(spec(), envs=envs, capacity=capacity, horizon=horizon)
        self.all = [self.fast]
        self.plain = PlainReplay(most=capacity // envs, horizon=horizon)
        self.moment = 0
        self.begin(range(envs))

    def begin(self, envs: range | list[int]) -> None:
        rows = np.isin(np.arange(self.envs), list(envs))
        seen = self._seen()
        for replay in self.all:
            replay.begin(seen, rows)
        for env in np.flatnonzero(rows).tolist():
            self.plain.begin(env, torch.from_numpy(seen[env]))

    def step(self, ended: list[int] | None = None, cut: list[int] | None = None) -> None:
        """All act; some episodes terminate, others are cut off, and new ones begin."""
        seen, reward = self._seen(), np.arange(self.envs, dtype=np.float32) + self.moment / 1000
        action = torch.rand(
            self.envs, ACTIONS, generator=torch.Generator().manual_seed(self.moment)
        )
        terminated = np.isin(np.arange(self.envs), ended or [])
        for replay in self.all:
            replay.add(action, reward, terminated, seen)
        step = torch.from_numpy(np.stack([reward, terminated], 1, dtype=np.float32))
        for env, line in enumerate(torch.cat([action, step], 1)):
            self.plain.add(env, torch.from_numpy(seen[env]), line)
        if ended or cut:
            self.begin([*(ended or []), *(cut or [])])

    def _seen(self) -> np.ndarray:
        self.moment += self.envs
        return np.arange(self.moment, self.moment + self.envs, dtype=np.float32)[:, None]


def all_slices(replay: Replay) -> SequenceBatch:
    return replay.gather(*replay.places())


def rows_of(sequences: SequenceBatch) -> list[tuple[float, ...]]:
    """Each sequence as the numbers in it; padding terminates by -1."""
    assert sequences.valid is not None
    terminated = torch.where(sequences.valid > 0, sequences.terminated, -1.0)
    steps = torch.cat([sequences.action, sequences.reward, terminated], -1)
    seen, step = sequences.observation.transpose(0, 1).flatten(1), steps.transpose(0, 1).flatten(1)
    return [tuple(row) for row in torch.cat([seen, step], 1).tolist()]


def plain_rows(replay: PlainReplay) -> list[tuple[float, ...]]:
    found = []
    for rows in replay.sequences():
        steps = [row.step for row in rows[1:]]
        assert all(step is not None for step in steps)
        found.append(tuple(torch.cat([*(row.seen for row in rows), *steps]).tolist()))
    return found


def lived(*, envs: int = 3, capacity: int = 60, horizon: int = 2, steps: int = 50) -> Life:
    """Episodes of many lengths, and rings that were overwritten."""
    life = Life(envs, capacity, horizon)
    for t in range(steps):
        life.step(
            ended=[env for env in range(envs) if t % (3 + 4 * env) == 2],
            cut=[env for env in range(envs) if t % (5 + env) == 4 and t % (3 + 4 * env) != 2],
        )
    return life


@settings(max_examples=60)
@given(
    envs=st.integers(1, 3),
    rows=st.integers(3, 12),
    horizon=st.integers(1, 4),
    ends=st.lists(st.tuples(st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2))), max_size=40),
)
def test_it_has_the_sequences_of_lists_of_episodes_after_anything_that_may_happen(
    envs: int, rows: int, horizon: int, ends: list[tuple[set[int], set[int]]]
) -> None:
    rows = max(rows, horizon + 1)
    life = Life(envs, rows * envs, horizon)
    for ended, cut in ends:
        life.step([e for e in ended if e < envs], [e for e in cut - ended if e < envs])
        plain = plain_rows(life.plain)
        assert life.fast.num_sequences == len(plain)
        assert life.fast.ready == bool(plain)
        assert Counter(rows_of(all_slices(life.fast))) == Counter(plain)


def test_memory_that_grows_keeps_what_was_remembered() -> None:
    life = Life(2, 2 * 5000, 3)
    for t in range(1500):  # More than there is memory for at first.
        life.step(cut=[0] if t % 400 == 399 else [])
    assert Counter(rows_of(all_slices(life.fast))) == Counter(plain_rows(life.plain))


def test_every_slice_is_drawn_as_often_as_any_other() -> None:
    life = lived()
    possible = plain_rows(life.plain)
    generator = torch.Generator().manual_seed(1)
    draws = 400 * len(possible)
    drawn = Counter(rows_of(life.fast.sample(draws, generator)))
    assert set(drawn) == set(possible)
    square = sum((drawn[each] - 400) ** 2 / 400 for each in possible)
    free = len(possible) - 1
    # Wilson and Hilferty's quantiles of chi-square, 1 of 1000 on either side.
    low, high = (
        free * (1 - 2 / (9 * free) + z * math.sqrt(2 / (9 * free))) ** 3 for z in (-3.09, 3.09)
    )
    assert low < square < high


def test_short_episodes_are_not_drawn_more_often_than_their_share() -> None:
    life = Life(2, 400, 3)
    for t in range(100):  # One environment has episodes of 4 steps, the other one of 100.
        life.step(cut=[0] if t % 4 == 3 else [])
    seen = life.fast.sample(20_000, torch.Generator().manual_seed(0)).observation[0, :, 0]
    share = (seen % 2 == 0).float().mean()
    # 25 episodes with 2 places each beside one with 98.
    assert share == pytest.approx(50 / 148, abs=0.01)


def test_no_slice_has_a_step_into_the_first_moment_of_an_episode() -> None:
    sequences = all_slices(lived().fast)
    for part in (sequences.action, sequences.reward, sequences.terminated):
        assert part.isfinite().all()


def test_a_step_that_ends_an_episode_is_drawn_at_every_place_of_a_sequence() -> None:
    life = Life(1, 100, 3)
    for t in range(5):
        life.step(ended=[0] if t == 4 else [])
    terminated = all_slices(life.fast).terminated[..., 0]
    assert terminated.T.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_nothing_happens_after_an_end() -> None:
    sequences = all_slices(lived(horizon=4).fast)
    ended = sequences.terminated[:-1, :, 0] == 1
    assert ended.any()
    assert (sequences.terminated[1:][ended] == 1).all()
    for part in (sequences.action, sequences.reward):
        assert not part[1:][ended].any()
    assert torch.equal(sequences.observation[2:][ended], sequences.observation[1:-1][ended])


def test_an_episode_that_ends_sooner_than_a_sequence_is_learned_from() -> None:
    life = Life(1, 100, 4)
    life.step(ended=[0])
    assert life.fast.num_sequences == 1
    assert all_slices(life.fast).terminated.flatten().tolist() == [1] * 4


def test_an_episode_that_is_cut_off_sooner_than_a_sequence_is_padded() -> None:
    life = Life(1, 100, 4)
    life.step()
    life.step(cut=[0])
    assert life.fast.num_sequences == 1
    found = all_slices(life.fast)
    assert found.valid is not None
    assert found.valid.flatten().tolist() == [1, 1, 0, 0]
    assert found.terminated.flatten().tolist() == [0] * 4
    assert found.observation.flatten().tolist() == [1, 2, 3, 3, 3]
    assert found.reward.flatten()[2:].tolist() == [0, 0]
    life.begin([0])  # An episode without a step is none.
    assert life.fast.num_sequences == 1
    for t in range(5):
        life.step(cut=[0] if t == 4 else [])
    found = all_slices(life.fast)
    assert found.valid is not None
    assert found.valid[..., 0].sum(0).tolist() == [2, 4, 4]


def test_a_padded_episode_is_in_a_checkpoint() -> None:
    life = Life(2, 40, 3)
    for t in range(9):
        life.step(cut=[0] if t % 2 else [], ended=[1] if t % 4 == 3 else [])
    other = Replay(spec(), envs=2, capacity=40, horizon=3)
    other.load_state_dict(life.fast.state_dict())
    assert rows_of(all_slices(other)) == rows_of(all_slices(life.fast))
    assert -1.0 in {row[-1] for row in rows_of(all_slices(other))}


def test_what_is_seen_first_is_remembered_and_learned_from_before_the_episode_ends() -> None:
    life = Life(1, 100, 2)
    life.step()
    assert not life.fast.ready
    life.step()
    assert rows_of(all_slices(life.fast)) == plain_rows(life.plain)
    assert all_slices(life.fast).observation[:, 0, 0].tolist() == [1, 2, 3]


def test_what_is_remembered_does_not_change_with_the_arrays_that_it_came_in() -> None:
    replay = Replay(spec(), envs=1, capacity=10, horizon=1)
    seen, action = np.ones((1, 1), np.float32), torch.ones(1, ACTIONS)
    replay.begin(seen, np.array([True]))
    replay.add(action, np.ones(1, np.float32), np.array([False]), seen)
    before = rows_of(all_slices(replay))
    drawn = all_slices(replay)
    seen[:], action[:] = 5, 5
    assert rows_of(all_slices(replay)) == before
    drawn.observation.fill_(7)
    assert rows_of(all_slices(replay)) == before


def test_pictures_stay_bytes() -> None:
    replay = Replay(spec(pictures=True), envs=1, capacity=10, horizon=1)
    replay.begin(np.full((1, 4), 200, np.uint8), np.array([True]))
    replay.add(
        torch.zeros(1, ACTIONS), np.zeros(1), np.array([False]), np.full((1, 4), 255, np.uint8)
    )
    seen = all_slices(replay).observation
    assert seen.dtype == torch.uint8
    assert seen[:, 0].tolist() == [[200] * 4, [255] * 4]
    assert replay.state_dict()["rows"][0]["observations"].dtype == torch.uint8


def test_slices_say_of_which_task_they_are() -> None:
    replay = Replay(spec(tasks=2), envs=4, capacity=40, horizon=1)
    replay.begin(np.arange(4, dtype=np.float32)[:, None], np.ones(4, bool))
    seen = np.arange(4, dtype=np.float32)[:, None]
    replay.add(torch.zeros(4, ACTIONS), np.zeros(4), np.zeros(4, bool), seen)
    sequences = all_slices(replay)
    assert sequences.task is not None
    assert sequences.task.tolist() == (sequences.observation[0, :, 0] % 2).long().tolist()
    assert all_slices(lived().fast).task is None


def test_the_planners_actions_are_remembered_where_they_are_asked_for() -> None:
    replay = Replay(spec(), envs=2, capacity=40, horizon=2, expert=True)
    seen, never = np.zeros((2, 1), np.float32), np.zeros(2, bool)
    replay.begin(seen, ~never)
    expert = torch.rand(2, 2, ACTIONS)
    replay.add(torch.ones(2, ACTIONS), np.zeros(2), never, seen)
    replay.add(torch.ones(2, ACTIONS), np.zeros(2), never, seen, expert=expert)
    sequences = all_slices(replay)
    assert sequences.expert is not None
    assert sequences.expert[0].isnan().all()  # Nobody planned.
    assert torch.equal(sequences.expert[1], expert)
    assert sequences.action.eq(1).all()


def test_the_planners_actions_are_refused_where_nobody_asked() -> None:
    life = Life(1, 10, 1)
    expert = torch.zeros(1, 2, ACTIONS)
    with pytest.raises(ValueError, match="set expert"):
        life.fast.add(
            torch.zeros(1, ACTIONS), np.zeros(1), np.zeros(1, bool), np.zeros((1, 1)), expert=expert
        )


@pytest.mark.parametrize("steps", [18, 37])
def test_a_checkpoint_gives_the_same_slices_for_the_same_draws_then_and_later(steps: int) -> None:
    life = lived(steps=steps)
    other = Replay(spec(), envs=3, capacity=60, horizon=2)
    data, tensors = flatten(life.fast.state_dict())
    other.load_state_dict(unflatten(data, {name: each.clone() for name, each in tensors.items()}))
    assert other.num_sequences == life.fast.num_sequences
    life.all.append(other)
    for turn in range(40):
        first, second = (each.sample(64, torch.Generator().manual_seed(turn)) for each in life.all)
        assert torch.equal(first.observation, second.observation)
        assert torch.equal(first.action, second.action)
        assert torch.equal(first.reward, second.reward)
        assert torch.equal(first.terminated, second.terminated)
        life.step(cut=[turn % 3], ended=[(turn + 1) % 3] if turn % 4 == 0 else [])


def test_a_checkpoint_has_no_more_than_what_is_remembered() -> None:
    life = Life(2, 2_000_000, 3)
    for _ in range(5):
        life.step()
    life.begin([1])
    rows = life.fast.state_dict()["rows"]
    assert [len(row["observations"]) for row in rows] == [6, 7]
    assert [row["steps"].shape for row in rows] == [(6, ACTIONS + 2), (7, ACTIONS + 2)]
    assert [row["is_end"].tolist() for row in rows] == [
        [False] * 3 + [True] * 3,
        [False] * 3 + [True] * 3 + [False],
    ]


@pytest.mark.parametrize(
    ("envs", "capacity", "horizon", "expert"),
    [(2, 60, 2, False), (3, 66, 2, False), (3, 60, 3, False), (3, 60, 2, True)],
)
def test_a_checkpoint_of_something_else_is_refused(
    envs: int, capacity: int, horizon: int, expert: bool
) -> None:
    other = Replay(spec(), envs=envs, capacity=capacity, horizon=horizon, expert=expert)
    with pytest.raises(StorageError, match="remembers"):
        other.load_state_dict(lived().fast.state_dict())


def bytes_of(replay: Replay) -> int:
    return sum(array.nbytes for array in (replay.observations, replay.steps, replay.is_end))


def test_a_great_capacity_takes_no_memory_before_it_is_needed() -> None:
    life = Life(1, 1_000_000, 3)
    bytes_per_row = 4 * (1 + ACTIONS + 2) + 1
    assert bytes_of(life.fast) < 2000 * bytes_per_row
    for _ in range(1500):
        life.step()
    assert 1501 * bytes_per_row <= bytes_of(life.fast) < 4000 * bytes_per_row


def test_drawing_before_there_is_a_slice_is_refused() -> None:
    replay = Replay(spec(), envs=1, capacity=10, horizon=3)
    for _ in range(2):
        with pytest.raises(ValueError, match="3 steps"):
            replay.sample(1, torch.Generator())
        replay.begin(np.zeros((1, 1), np.float32), np.array([True]))


def test_a_step_without_an_episode_is_refused() -> None:
    replay = Replay(spec(), envs=2, capacity=20, horizon=1)
    step = (torch.zeros(2, ACTIONS), np.zeros(2), np.array([False, True]), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="environment 0"):
        replay.add(*step)
    replay.begin(np.zeros((2, 1)), np.ones(2, bool))
    replay.add(*step)
    with pytest.raises(ValueError, match="environment 1"):
        replay.add(*step)


@pytest.mark.gpu
def test_slices_come_to_the_gpu_as_they_are_on_the_cpu() -> None:
    life = lived()
    there = Replay(spec(), envs=3, capacity=60, horizon=2, device="cuda")
    there.load_state_dict(life.fast.state_dict())
    for turn in range(20):
        first, second = (
            each.sample(32, torch.Generator().manual_seed(turn)) for each in (life.fast, there)
        )
        assert second.observation.device.type == second.action.device.type == "cuda"
        assert rows_of(first) == rows_of(second)
