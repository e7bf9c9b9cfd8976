"""Groups of symmetries are closed, whatever they are made from, and whatever was seen of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from cells_world import Cells, cycle, exchange
from comparison import exact_params
from hypothesis import given
from hypothesis import strategies as st
from random_games import Table
from symmetric_games import Renaming, SymmetricWorld
from test_symmetric_games import compare

from empo_core.world_structure import Symmetry
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_worlds import symmetry_group
from empo_worlds.symmetry_group import SymmetryGroup

SEVEN = [exchange(7, 0, 1), cycle(7)]
NEIGHBOURS = [exchange(7, i, i + 1) for i in range(6)]


def all_rows(cells: int, tokens: int = 3) -> torch.Tensor:
    return torch.tensor([*itertools.permutations(range(cells), tokens)], dtype=torch.int16)


def assert_group(group: SymmetryGroup, used: Sequence[Symmetry], rows: torch.Tensor) -> None:
    """The least image of a row is that of all of its images, which are counted right."""
    least, element = group.smallest_images(rows.numpy())
    for symmetry in used:
        assert np.array_equal(group.smallest_images(symmetry.rows(rows).numpy())[0], least)
    assert group.orbit_sizes(np.unique(least, axis=0)).sum() == len(rows)
    assert np.array_equal(group.goals[element, rows[:, 0].long()], least[:, 0])


@pytest.mark.parametrize(
    ("generators", "order", "unused"), [(SEVEN, 2, SEVEN[1:]), (NEIGHBOURS, 720, NEIGHBOURS[5:])]
)
def test_a_group_that_is_too_large_is_left_for_one_within_it(
    generators: list[tuple[int, ...]],
    order: int,
    unused: list[tuple[int, ...]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    symmetries = Cells(7, generators).symmetries()
    group = SymmetryGroup(symmetries, all_rows(7), 7)
    assert len(group) == order
    assert group.unused == tuple(f"order {each}" for each in unused)
    assert all(name in caplog.text for name in group.unused)
    assert_group(group, [s for s in symmetries if s.name not in group.unused], all_rows(7))


@pytest.mark.slow
def test_a_group_that_is_too_large_changes_no_value() -> None:
    (step,) = compare(Cells(7, SEVEN), CompleteTheory(), ["symmetry"]).reductions
    assert step.before is not None
    assert step.after < step.before
    assert str(SEVEN[1]) in step.note
    assert step.note in step.sentence
    (step,) = compare(Cells(7, NEIGHBOURS), CompleteTheory(), ["symmetry"]).reductions
    assert step.after < 20


def test_the_start_is_answered_for_where_the_group_is_too_large() -> None:
    world = Cells(7, SEVEN)
    plain, reduced = (
        solve(world, exact_params(keep="none", count_unrolled=False, reduce=reduce))
        for reduce in ([], ["symmetry"])
    )
    found, expected = reduced.at(world.initial_state()), plain.at(world.initial_state())
    for name in ("V_r", "Q_r", "V_e", "pi_h"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12
        )


@given(
    generators=st.lists(st.permutations(range(5)), min_size=1, max_size=3),
    num_seen=st.integers(1, 4),
)
def test_what_was_not_seen_of_a_group_shows_in_other_rows(
    generators: list[list[int]], num_seen: int
) -> None:
    # Goals tell all elements apart, so that only rows count here.
    symmetries = [
        Symmetry(name=s.name, rows=s.rows, agents=s.agents, actions=s.actions, goals=())
        for s in Cells(5, generators).symmetries()
    ]
    rows = all_rows(5)
    group = SymmetryGroup(symmetries, rows[:num_seen], 0)
    # It is enough to ask about the rows that stand for all others.
    while (ambiguous := group.is_ambiguous(least := group.smallest_images(rows.numpy())[0])).any():
        larger = group.refined(least[ambiguous][0])
        assert len(larger) > len(group)
        group = larger
    for symmetry in symmetries:
        assert np.array_equal(group.smallest_images(symmetry.rows(rows).numpy())[0], least)
    assert group.orbit_sizes(np.unique(least, axis=0)).sum() == len(rows)


def test_symmetries_that_do_not_commute_on_rare_states_are_told_apart() -> None:
    """States 0 and 1 lead to 2 and 3, or 4 and 5, now and then; one symmetry moves 2 and 3 only."""

    def leads(*items: tuple[float, int, float]) -> dict[tuple[int, ...], tuple]:  # type: ignore[type-arg]
        return dict.fromkeys(itertools.product((0, 1), (0, 1)), items)

    rare, half = 1e-7, 0.5
    outcomes = [
        leads((half, 0, 1.0), (half - 2 * rare, 1, 1.0), (rare, 2, 1.0), (rare, 3, 1.0)),
        leads((half, 1, 1.0), (half - 2 * rare, 0, 1.0), (rare, 4, 1.0), (rare, 5, 1.0)),
        *(leads((0.7, s, 1.0), (0.3, 6, 1.0)) for s in (2, 3, 4, 5)),
        leads((1.0, 6, 1.0)),
    ]
    goals = ((0, 1.0, frozenset(range(7))), (0, 1.0, frozenset([6])))
    table = Table(("human", "robot"), (2, 2), tuple(outcomes), goals, tuple(range(0, 21, 3)), 4)
    both = ((0, 1), ((0, 1), (0, 1)), (0, 1))
    renamings = [Renaming((1, 0, 4, 5, 2, 3, 6), *both), Renaming((0, 1, 3, 2, 4, 5, 6), *both)]
    (step,) = compare(SymmetricWorld(table, renamings), CompleteTheory(), ["symmetry"]).reductions
    assert (step.before, step.after) == (7, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_symmetry_whose_order_shows_in_rare_states_only_changes_no_value(seed: int) -> None:
    """States 0 and 1 become each other, and those that they rarely lead to a cycle of four."""

    def leads(*items: tuple[float, int, float]) -> dict[tuple[int, ...], tuple]:  # type: ignore[type-arg]
        return dict.fromkeys(itertools.product((0, 1), (0, 1)), items)

    rare = 1e-7
    outcomes = [
        leads((1 - 2 * rare, s, 1.0), (rare, s + 2, 1.0), (rare, s + 4, 1.0)) for s in (0, 1)
    ]
    for s in (2, 3, 4, 5):
        outcomes.append(leads((0.7, s, 1.0), (0.3, 6, 1.0)))
        outcomes[-1] |= {(1, robot): ((0.2, s, 1.0), (0.8, 6, 1.0)) for robot in (0, 1)}
    outcomes.append(leads((1.0, 6, 1.0)))
    labels = np.random.default_rng(seed).permutation(40)[:7] - 20
    goals = ((0, 1.0, frozenset(range(7))), (0, 1.0, frozenset([6])))
    table = Table(("human", "robot"), (2, 2), tuple(outcomes), goals, tuple(labels.tolist()), 4)
    renaming = Renaming((1, 0, 3, 4, 5, 2, 6), (0, 1), ((0, 1), (0, 1)), (0, 1))
    (step,) = compare(SymmetricWorld(table, [renaming]), CompleteTheory(), ["symmetry"]).reductions
    assert (step.before, step.after) == (4, 3)


def test_images_are_made_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    symmetries, rows = Cells(5, [exchange(5, 0, 1), cycle(5)]).symmetries(), all_rows(5)
    group = SymmetryGroup(symmetries, rows, 5)
    whole = group.smallest_images(rows.numpy())
    largest = [0]
    images = group._images

    def watched(rows_in: np.ndarray) -> list[np.ndarray]:
        found = images(rows_in)
        largest[0] = max(largest[0], sum(image.nbytes for image in found))
        return found

    monkeypatch.setattr(group, "_images", watched)
    monkeypatch.setattr(symmetry_group, "BYTES_AT_ONCE", 5000)
    for mine, expected in zip(group.smallest_images(rows.numpy()), whole, strict=True):
        assert np.array_equal(mine, expected)
    assert 0 < largest[0] <= 5000
