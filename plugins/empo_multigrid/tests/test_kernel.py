"""The compiled kernel equals the readable reference on random worlds with every object."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
import random_worlds as rw
from hypothesis import HealthCheck, given, settings
from reference_transition import transition

from empo_multigrid.law import kernel
from empo_multigrid.layout import BALL, KEY, NOTHING, Layout

Row = tuple[int, ...]
QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def expected(layout: Layout, row: Row, actions: list[int]) -> dict[Row, float]:
    successors = transition(layout, row, actions)
    assert len({successor for _, successor in successors}) == len(successors)
    assert not successors or sum(p for p, _ in successors) == pytest.approx(1, rel=0, abs=1e-12)
    return {successor: p for p, successor in successors}


def distributions(
    layout: Layout, rows: list[Row], actions: list[list[int]] | None
) -> list[dict[Row, float]]:
    """The kernel's successors of each pair, checked for shape, order of offsets and merging."""
    states = np.array(rows, np.int16)
    chosen = None if actions is None else np.array(actions, np.int64)
    before = states.copy()
    offsets, successors, prob = kernel.transitions(layout, states, chosen)
    np.testing.assert_array_equal(states, before)
    assert (offsets.dtype, successors.dtype, prob.dtype) == (np.int64, np.int16, np.float64)
    assert successors.shape == (len(prob), layout.state_words)
    assert offsets[0] == 0
    assert offsets[-1] == len(prob)
    assert (prob > 0).all()
    found = []
    for start, end in pairwise(offsets.tolist()):
        keys = [tuple(row) for row in successors[start:end].tolist()]
        assert len(set(keys)) == len(keys)
        found.append(dict(zip(keys, prob[start:end].tolist(), strict=True)))
    return found


def assert_equal(got: dict[Row, float], want: dict[Row, float]) -> None:
    assert got.keys() == want.keys()
    for row, p in want.items():
        assert abs(got[row] - p) <= 1e-12  # Much faster than pytest.approx.


def compare_along_a_walk(layout: Layout, row: Row, random: Random, steps: int) -> None:
    """Compare, then go on from one of the successors, so that reachable rows are met too."""
    for _ in range(steps):
        actions = rw.random_actions(random, layout, row)
        want = expected(layout, row, actions)
        (got,) = distributions(layout, [row], [actions])
        assert_equal(got, want)
        row = random.choice(sorted(want)) if want else row


def test_random_worlds_have_every_object_terrain_colour_and_setting() -> None:
    layouts = [rw.random_draft(Random(seed)).build()[0] for seed in range(300)]

    def seen(name: str) -> set[object]:
        return {value for layout in layouts for value in getattr(layout, name).ravel().tolist()}

    assert seen("terrain") == set(range(7))
    assert seen("fixed_kind") == set(range(7))
    assert seen("item_kind") == set(range(5))
    assert seen("agent_colour") == set(range(7))
    assert seen("fixed_side") == set(range(5))
    assert seen("item_content_kind") == {NOTHING, KEY, BALL}
    assert seen("actions") == set(range(9))
    for capability in ("can_push_rocks", "can_enter_magic", "tramples", "action_mask"):
        assert seen(capability) == {False, True}
    assert {layout.reference for layout in layouts} == {False, True}
    assert {layout.num_agents for layout in layouts} == {1, 2, 3, 4}
    assert len(seen("stumble") & {0.5, 0.3, 1.0}) == 3


@QUICK
@given(world=rw.worlds())
def test_given_joint_actions_have_the_reference_successors(world: rw.World) -> None:
    layout, row, random = world
    compare_along_a_walk(layout, row, random, 3)


@pytest.mark.slow
def test_worlds_drawn_without_hypothesis_agree_too() -> None:
    # Hypothesis prefers small choices, for shrinking; plain draws are more varied.
    for seed in range(1_000):
        random = Random(seed)
        layout, row = rw.random_draft(random).build()
        compare_along_a_walk(layout, row, random, 3)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1_000, 101_000, 20_000))
def test_very_many_worlds_agree(start: int) -> None:
    for seed in range(start, start + 20_000):
        random = Random(seed)
        layout, row = rw.random_draft(random).build()
        compare_along_a_walk(layout, row, random, 4)


@pytest.mark.slow
@settings(QUICK, max_examples=5_000)
@given(world=rw.worlds())
def test_many_more_given_joint_actions_agree(world: rw.World) -> None:
    layout, row, random = world
    compare_along_a_walk(layout, row, random, 4)


@settings(QUICK, max_examples=60)
@given(world=rw.worlds())
def test_all_joint_actions_come_in_order_with_agent_0_fastest(world: rw.World) -> None:
    layout, row, _ = world
    if len(layout.actions) ** layout.num_agents > 600:
        return
    profiles = product(range(len(layout.actions)), repeat=layout.num_agents)
    joint = [list(reversed(profile)) for profile in profiles]
    found = distributions(layout, [row, row], None)
    assert len(found) == 2 * len(joint)
    for actions, got, again in zip(joint, found, found[len(joint) :], strict=False):
        assert_equal(got, expected(layout, row, actions))
        assert got == again


@settings(QUICK, max_examples=60)
@given(world=rw.worlds())
def test_rows_of_a_batch_do_not_influence_each_other(world: rw.World) -> None:
    layout, row, random = world
    rows = [row]
    for _ in range(4):
        found = expected(layout, rows[-1], rw.random_actions(random, layout, rows[-1]))
        rows.append(random.choice(sorted(found)) if found else row)
    actions = [rw.random_actions(random, layout, start) for start in rows]
    found = distributions(layout, rows, actions)
    for got, start, chosen in zip(found, rows, actions, strict=True):
        assert_equal(got, expected(layout, start, chosen))
    backwards = distributions(layout, rows[::-1], actions[::-1])
    assert backwards[::-1] == found


@settings(QUICK, max_examples=60)
@given(world=rw.worlds())
def test_evenly_spaced_numbers_are_sampled_in_proportion(world: rw.World) -> None:
    layout, row, random = world
    actions = rw.random_actions(random, layout, row)
    want = expected(layout, row, actions)
    if not want:
        return
    draws = 1_000
    uniform = (np.arange(draws) + 0.5) / draws
    counts = sampled(layout, row, actions, uniform)
    assert counts.keys() <= want.keys()
    for successor, p in want.items():
        # An interval of length p holds this many of the evenly spaced numbers, give or take one.
        assert abs(counts.get(successor, 0) - draws * p) <= 1


@settings(QUICK, max_examples=60)
@given(world=rw.worlds())
def test_what_is_drawn_is_what_the_listed_successors_give(world: rw.World) -> None:
    layout, row, random = world
    rows = [row]
    for _ in range(5):
        found = expected(layout, rows[-1], rw.random_actions(random, layout, rows[-1]))
        rows.append(random.choice(sorted(found)) if found else row)
    # Actions that are not available are among these, so that some states are left as they are.
    states = np.array(rows, np.int16)
    choices = range(len(layout.actions))
    actions = np.array([[random.choice(choices) for _ in range(layout.num_agents)] for _ in rows])
    uniform = np.array([random.choice([0.0, random.random(), 1 - 2**-53]) for _ in rows])
    offsets, successors, prob = kernel.transitions(layout, states, actions)
    wanted = states.copy()
    for i, (start, end) in enumerate(pairwise(offsets.tolist())):
        if end > start:
            item = int((prob[start:end].cumsum() <= uniform[i]).sum())
            wanted[i] = successors[min(start + item, end - 1)]
    np.testing.assert_array_equal(kernel.step(layout, states, actions, uniform), wanted)
    one_by_one = kernel.SingleStep(kernel.pack(layout), layout.state_words)
    for i, row in enumerate(states):
        np.testing.assert_array_equal(one_by_one(row, actions[i].tolist(), uniform[i]), wanted[i])


@pytest.mark.slow
def test_sampled_frequencies_pass_a_chi_square_test() -> None:
    generator, tested, seed = np.random.default_rng(7), 0, 0
    while tested < 60:
        seed += 1
        random = Random(seed)
        layout, row = rw.random_draft(random).build()
        actions = rw.random_actions(random, layout, row)
        want = expected(layout, row, actions)
        if len(want) < 2:
            continue
        tested += 1
        draws = 4_000
        counts = sampled(layout, row, actions, generator.random(draws))
        assert counts.keys() <= want.keys()
        chi_square = sum((counts.get(s, 0) - draws * p) ** 2 / (draws * p) for s, p in want.items())
        freedom = len(want) - 1
        # Wilson and Hilferty: the cube root is nearly normal. 4.5 deviations: one in 300,000.
        bound = freedom * (1 - 2 / (9 * freedom) + 4.5 * (2 / (9 * freedom)) ** 0.5) ** 3
        assert chi_square < bound, seed


def sampled(layout: Layout, row: Row, actions: list[int], uniform: np.ndarray) -> dict[Row, int]:
    """Counts of each successor drawn by these uniform numbers."""
    states = np.tile(np.array(row, np.int16), (len(uniform), 1))
    chosen = np.tile(np.array(actions, np.int64), (len(uniform), 1))
    drawn, counts = np.unique(
        kernel.step(layout, states, chosen, uniform), axis=0, return_counts=True
    )
    return {tuple(s): int(n) for s, n in zip(drawn.tolist(), counts.tolist(), strict=True)}
