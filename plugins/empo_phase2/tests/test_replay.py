"""Sampling, storage limits and refused inputs of the replay."""

import random
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from empo_core.errors import ConfigError, NonFiniteError, StorageError
from empo_learning.allocator import keep_freed_memory
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.replay import FEW_STATES, Replay, ReplayShape

SHAPE = ReplayShape(
    words=2,
    dtype=torch.int32,
    slots=1,
    robot_actions=2,
    human_slots=0,
    human_actions=3,
    profiles=1,
)


def states_of(rows: list[list[int]], layout: int = 0) -> States:
    count = len(rows)
    return States(
        torch.tensor(rows, dtype=torch.int32).reshape(count, 2),
        torch.full((count,), layout),
        torch.zeros(count, dtype=torch.bool),
        torch.zeros((count, 1), dtype=torch.bool),
        torch.ones((count, 2), dtype=torch.bool),
    )


def walk(
    begin: int,
    count: int = 1,
    *,
    first: bool = False,
    layout: int = 0,
    num_successors: int = 1,
    left: int = 1,
) -> Block:
    """Environments 0, 1, ... that walk from cell ``begin`` to the next one."""
    zero = torch.zeros(count, dtype=torch.int64)
    items = count * 2 * num_successors
    return Block(
        states_of([[begin + side, env] for env in range(count) for side in (0, 1)], layout),
        Transitions(
            state=2 * torch.arange(count),
            steps_left=zero + left,
            human_policy=torch.zeros((count, 0, 3)),
            acts_for=torch.ones(count, 1, dtype=torch.bool),
            behaviour=torch.zeros(count, 0),
            action=zero,
            offsets=torch.arange(0, items + 1, num_successors),
            successor=torch.arange(items) % (2 * count),
            prob=torch.full((items,), 1 / num_successors),
        ),
        torch.full((count,), first),
        zero[:, None],
        zero[:, None],
        2 * torch.arange(count) + 1,
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(
    replay: Replay, count: int, chance: torch.Generator, oldest: int | None = None
) -> Transitions:
    return replay.transitions(replay.sample_indices(count, chance, oldest=oldest))


def cells(replay: Replay, batch: Transitions) -> list[int]:
    return [int(replay.states(one[None]).rows[0, 0]) for one in batch.state]


def test_every_transition_is_equally_likely() -> None:
    replay = Replay(50, SHAPE)
    for step in range(80):
        replay.add(walk(step), training_step=step)
    drawn = replay.sample_indices(20_000, generator())
    counts = torch.bincount(drawn, minlength=50).double()
    # Chi-square with 49 degrees of freedom exceeds 85.4 once in a thousand times.
    assert ((counts - 400) ** 2 / 400).sum() < 85.4


@pytest.mark.parametrize("added", [30, 50, 77, 120])
def test_transitions_that_are_too_old_are_not_drawn(added: int) -> None:
    replay = Replay(50, SHAPE)
    for step in range(added):
        replay.add(walk(step), training_step=step // 2)
    oldest = (added - 10) // 2
    batch = sample(replay, 10, generator(), oldest=oldest)
    assert min(cells(replay, batch)) >= 2 * oldest
    every = replay.sample_indices(10, generator(), oldest=oldest)
    many = torch.cat([replay.sample_indices(5, generator(s), oldest=oldest) for s in range(60)])
    assert len(every) == 10
    assert len(many.unique()) == added - 2 * oldest


@pytest.mark.parametrize("added", [30, 300])
def test_every_state_is_equally_likely_however_often_it_was_visited(added: int) -> None:
    replay, chance = Replay(50, SHAPE), random.Random(0)
    walked = [min(chance.randrange(12), chance.randrange(12)) for _ in range(added)]
    for step, cell in enumerate(walked):
        replay.add(walk(cell), training_step=step)
        if step == 20:  # From here on it is kept up to date, before it is put together.
            replay.sample_indices(1, generator(), by_state=True)
    drawn = replay.sample_indices(12_000, generator(), by_state=True)
    newest = {cell: step % 50 for step, cell in enumerate(walked) if step >= added - 50}
    assert set(drawn.tolist()) == set(newest.values())
    counts, share = torch.bincount(drawn, minlength=50).double(), 12_000 / len(newest)
    assert (counts[list(newest.values())] / share - 1).abs().max() < 0.15


def test_half_of_what_is_drawn_by_state_has_any_number_of_steps_left_equally_often() -> None:
    replay = Replay(50, SHAPE)
    for cell in range(9):
        replay.add(walk(cell, left=1), training_step=0)
    replay.add(walk(0, left=3), training_step=0)
    drawn = replay.sample_indices(12_000, generator(), by_state=True)
    chance = 0.5 / 10 + 0.5 / 2  # Evenly from ten timed states, or from two numbers of steps.
    assert abs(float((drawn == 9).double().mean()) - chance) < 0.02


def test_states_visited_too_long_ago_are_not_drawn() -> None:
    replay = Replay(50, SHAPE)
    for step in range(20):  # Ten cells, the first five of them twice.
        replay.add(walk(step if step < 10 else step % 5), training_step=step)
    assert set(replay.sample_indices(99, generator(), by_state=True).tolist()) == {
        *range(5, 10),
        *range(15, 20),
    }
    drawn = replay.sample_indices(5, generator(), oldest=10, by_state=True)
    assert set(drawn.tolist()) <= set(range(15, 20))


def test_everything_is_drawn_from_where_too_few_are_young_enough() -> None:
    replay = Replay(50, SHAPE)
    for step in range(20):
        replay.add(walk(step), training_step=step)
    assert min(cells(replay, sample(replay, 400, generator(), oldest=19))) == 0


def test_equal_rows_of_different_worlds_are_different_states() -> None:
    replay = Replay(64, SHAPE)
    for layout in (0, 3, 0):
        replay.add(walk(0, layout=layout), training_step=0)
    assert replay.distinct_states == 4
    batch = replay.transitions(torch.arange(3))
    assert batch.state[0] == batch.state[2] != batch.state[1]
    assert replay.states(batch.state).layout.tolist() == [0, 3, 0]


def test_ram_is_taken_when_it_is_written_and_given_back_with_the_replay() -> None:
    keep_freed_memory()
    process = psutil.Process()
    before = process.memory_info().rss
    replay = Replay(1_000_000, SHAPE)
    reserved = replay.reserved_bytes()
    assert process.memory_info().rss - before < reserved / 4
    replay._columns["action"][:] = 1
    replay._columns["first_item"][:] = 1
    assert process.memory_info().rss - before > 10_000_000
    del replay
    assert process.memory_info().rss - before < 10_000_000


def test_states_that_are_not_in_use_are_dropped_and_memory_stays_the_same() -> None:
    replay = Replay(100, SHAPE)
    for step in range(200):
        replay.add(walk(2 * step, 4), training_step=step)
        replay.add(walk(2 * step, 4, num_successors=2), training_step=step)
    reserved, numbers = replay.reserved_bytes(), set[int]()
    for step in range(200, 1200):
        replay.add(walk(2 * step, 4, num_successors=1 + step % 2), training_step=step)
        numbers.add(replay.renumberings)
        assert replay.distinct_states <= 2 * FEW_STATES + 8
        assert replay.reserved_bytes() <= 2 * reserved
    assert len(numbers) > 2


def test_successors_beyond_the_limit_push_out_the_oldest() -> None:
    replay = Replay(10, SHAPE, max_items=24)
    for step in range(20):
        replay.add(walk(step, num_successors=4), training_step=step)
        assert replay.items <= 24
    assert len(replay) == 3
    assert sorted(set(cells(replay, sample(replay, 50, generator())))) == [17, 18, 19]


def test_pairs_may_have_more_successors_than_a_byte_counts() -> None:
    replay = Replay(10, SHAPE, max_items=3000)
    replay.add(walk(0), training_step=0)
    replay.add(walk(1, num_successors=300), training_step=0)
    assert replay.transitions(torch.tensor([0, 1])).offsets.tolist() == [0, 1, 2, 302, 602]
    tree = replay.state_dict()
    restored = Replay(10, SHAPE, max_items=3000)
    restored.load_state_dict(tree)
    assert restored.transitions(torch.tensor([1])).offsets.tolist() == [0, 300, 600]


def test_a_restored_replay_goes_on_as_the_other_would(tmp_path: Path) -> None:
    replay = Replay(30, SHAPE)
    for step in range(47):
        replay.add(walk(step % 9, 2), training_step=step)
        replay.sample_indices(1, generator(), by_state=True)
    restored = Replay(30, SHAPE, storage="mapped", directory=tmp_path)
    restored.load_state_dict(replay.state_dict())
    for step in range(47, 99):
        for one in (replay, restored):
            one.add(walk(step % 9, 2), training_step=step)
        first, second = (sample(one, 16, generator(step), oldest=60) for one in (replay, restored))
        drawn = [one.sample_indices(9, generator(), by_state=True) for one in (replay, restored)]
        assert torch.equal(*drawn)
        for name in Transitions.__dataclass_fields__:
            assert torch.equal(getattr(first, name), getattr(second, name)), name


def test_a_mapped_replay_leaves_no_file_behind(tmp_path: Path) -> None:
    replay = Replay(1000, SHAPE, storage="mapped", directory=tmp_path / "replay")
    replay.add(walk(0, 4), training_step=0)
    assert cells(replay, replay.transitions(torch.arange(4))) == [0, 0, 0, 0]
    assert list((tmp_path / "replay").iterdir()) == []
    # Its arrays lie in files all the same.
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path / "replay") in maps.read_text()


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"replay\.capacity"):
        Replay(1000, replace(SHAPE, human_slots=2**40), storage="mapped", directory=tmp_path)


def test_a_replay_larger_than_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lower replay\.capacity"):
        Replay(2**31 - 1, replace(SHAPE, robot_actions=10_000))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device to pin memory for is there")
def test_pinned_memory_needs_a_device() -> None:
    with pytest.raises(ConfigError, match="'pinned'"):
        Replay(10, SHAPE, storage="pinned")


@pytest.mark.gpu
def test_pinned_memory_feeds_a_device() -> None:
    here, there = Replay(10, SHAPE), Replay(10, SHAPE, storage="pinned", device="cuda")
    for replay in (here, there):
        replay.add(walk(0, 4), training_step=0)
    batch, same = sample(here, 6, generator()), sample(there, 6, generator())
    for name in Transitions.__dataclass_fields__:
        assert torch.equal(getattr(batch, name), getattr(same, name).cpu()), name
    assert torch.equal(here.states(batch.state).rows, there.states(same.state).rows.cpu())


def test_a_mapped_replay_needs_a_directory() -> None:
    with pytest.raises(ConfigError, match="'mapped' needs"):
        Replay(10, SHAPE, storage="mapped")


def test_a_block_larger_than_the_replay_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"replay\.capacity:"):
        Replay(3, SHAPE).add(walk(0, 4), training_step=0)
    with pytest.raises(ConfigError, match=r"8 successors .*holds 7"):
        Replay(4, SHAPE, max_items=7).add(walk(0, 4), training_step=0)


def test_policies_that_are_not_recorded_may_have_any_length() -> None:
    for length in (0, 2, 3):
        replay = Replay(3, replace(SHAPE, human_actions=length))
        replay.add(walk(0), training_step=0)
        assert sample(replay, 4, generator()).human_policy.shape == (4, 0, length)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("name", "subject"),
    [("prob", "successors"), ("human_policy", "humans"), ("behaviour", "behaviour")],
)
def test_a_probability_that_is_not_finite_is_named(name: str, subject: str, bad: float) -> None:
    block = walk(0)
    right = getattr(block.transitions, name)
    size = right.shape if right.numel() else (1,) * right.ndim
    wrong = torch.full(size, bad, dtype=right.dtype)
    transitions = replace(block.transitions, **{name: wrong})
    with pytest.raises(NonFiniteError, match=subject):
        Replay(10, SHAPE).add(replace(block, transitions=transitions), training_step=0)


def test_a_saved_replay_of_another_shape_is_refused() -> None:
    tree = Replay(10, SHAPE).state_dict()
    with pytest.raises(ConfigError, match=r"capacity 10 .*11"):
        Replay(11, SHAPE).load_state_dict(tree)
    with pytest.raises(ConfigError, match="counts"):
        Replay(10, replace(SHAPE, profiles=2)).load_state_dict(tree)
