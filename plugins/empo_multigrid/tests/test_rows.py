"""Rows that are no states are refused, because compiled code would not notice."""

from pathlib import Path

import numpy as np
import pytest
import torch

import empo_multigrid
from empo_core.errors import WorldError
from empo_multigrid.law.effects import PROGRAMMED_MASK
from empo_multigrid.law.rows import RowCheck, word_bounds
from empo_multigrid.layout import CONTROL_BUTTON
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world

NAMES = sorted(p.stem for p in (Path(empo_multigrid.__file__).parent / "worlds").glob("*.yaml"))


def world_called(name: str) -> MultigridWorld:
    file = Path(empo_multigrid.__file__).parent / "worlds" / f"{name}.yaml"
    return load_world(MultigridParams.model_validate({"file": str(file)}))


@pytest.mark.parametrize("name", NAMES)
def test_a_word_beyond_its_bounds_is_refused(name: str) -> None:
    world = world_called(name)
    low, high = word_bounds(world.layout)
    for word in range(world.spec.state_words):
        for value in (low[word] - 1, high[word] + 1, 70_000, -70_000):
            row = world.initial_state().to(torch.int64)
            row[word] = int(value)
            with pytest.raises(WorldError, match=f"has {value} as word {word}"):
                world.transitions(row[None])


@pytest.mark.parametrize("place", [0, 63, 64, 199])
def test_one_wrong_row_among_many_is_refused(place: int) -> None:
    world = world_called("trivial")
    rows = world.initial_state().repeat(200, 1)
    world.available(rows)
    rows[place, 0] = -1
    with pytest.raises(WorldError, match="has -1 as word 0"):
        world.available(rows)


@pytest.mark.parametrize("name", NAMES)
def test_rows_within_bounds_are_safe_to_expand_whatever_they_mean(name: str) -> None:
    world = world_called(name)
    low, high = (torch.from_numpy(bound) for bound in word_bounds(world.layout))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(200, len(low), generator=generator, dtype=torch.float64)
    rows = (low + drawn * (high - low + 1)).long()
    layout = world.layout
    # Nobody is programmed, because most of the numbers that fit name agents that do not exist.
    rows[:, layout.fixed_word[layout.fixed_kind == CONTROL_BUTTON].tolist()] &= ~PROGRAMMED_MASK
    actions = torch.zeros(len(rows), len(world.spec.agents), dtype=torch.long)
    for action in range(world.spec.num_actions[0]):
        found = world.transitions(rows, actions + action)
        total = torch.segment_reduce(found.prob, "sum", offsets=found.offsets)
        assert ((total - 1).abs() < 1e-12)[found.offsets.diff() > 0].all()
        world.available(found.states)  # Successors are rows within bounds again.


def test_a_control_button_cannot_be_programmed_for_an_agent_that_does_not_exist() -> None:
    world = world_called("control_button")
    row = world.initial_state()
    row[-1] = 1 | 3 << 2
    with pytest.raises(WorldError, match="as word 9"):
        world.transitions(row[None])


def test_fractions_are_no_states() -> None:
    world = world_called("trivial")
    check = RowCheck(world.layout, "trivial")
    assert check(world.initial_state()[None]).dtype == np.int16
    with pytest.raises(WorldError, match="integers"):
        check(world.initial_state()[None].double())
