"""Worlds in which there is nothing to learn are refused before learning begins."""

import logging
import random
from functools import cache

import numpy as np
import pytest
from doors import DoorWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_phase2.world_checks import Reach, check_reach
from empo_theory.parameters import TheoryParams


class Helpless(DoorWorld):
    """Some goals are never achieved."""

    def __init__(self, never: tuple[int, ...]) -> None:
        super().__init__()
        self._never = list(never)

    def achieved(self, states: Tensor) -> Tensor:
        achieved = super().achieved(states).clone()
        achieved[:, self._never] = False
        return achieved


THEORY = TheoryParams()


def goals_in_reach(world: WorldModel) -> list[bool]:
    reach = Reach.of(world)
    assert reach is not None
    found: list[bool] = reach.achieved[reach.after].any(0).tolist()
    return found


def test_goals_in_reach_are_found() -> None:
    assert all(goals_in_reach(DoorWorld()))
    assert goals_in_reach(Helpless((1,))) == [True, False, True, True, True]


def test_a_human_that_can_reach_nothing_is_named_before_training() -> None:
    with pytest.raises(SolveError, match=r"agent 2.*\(shut, not shut"):
        check_reach(Helpless((0, 2)), THEORY)


def test_goals_that_cannot_be_reached_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    check_reach(Helpless((1,)), THEORY)
    assert "can never reach shut of its 3 goals" in caplog.text


def test_large_worlds_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empo_phase2.world_checks.MOST_PAIRS", 1)
    assert Reach.of(Helpless((0, 1, 2, 3, 4))) is None


def test_only_what_can_be_reached_in_time_counts() -> None:
    late = DoorWorld(horizon=1)
    after = late.transitions(late.initial_state()[None]).states
    assert goals_in_reach(late) == late.achieved(after).any(0).tolist()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 7),
    horizon=st.sampled_from([1, 2, 5, 100, None]),
)
def test_dead_ends_are_those_that_a_search_along_every_path_finds(
    seed: int, count: int, horizon: int | None
) -> None:
    chance = random.Random(seed)
    edges = sorted({(chance.randrange(count), chance.randrange(count)) for _ in range(2 * count)})
    achieved = np.array([chance.random() < 0.2 for _ in range(count)])
    following = {s: [b for a, b in edges if a == s] for s in range(count)}

    @cache
    def can(state: int, left: int) -> bool:
        return left > 0 and any(achieved[b] or can(b, left - 1) for b in following[state])

    here, expected = {0}, set()
    for time in range(horizon or count + 1):
        left = count + 1 if horizon is None else horizon - time
        stuck = {s for s in here if following[s] and not can(s, left)}
        expected |= {(s, time) for s in stuck}
        here = {b for s in here for b in following[s]}
    reached = {0}
    for _ in range(count):
        reached |= {b for s in reached for b in following[s]}
    edges = [(a, b) for a, b in edges if a in reached]
    source, after = np.array(edges, np.int64).reshape(-1, 2).T
    reach = Reach(np.zeros((count, 1)), achieved[:, None], source, after)
    found = reach.dead_end(achieved, horizon)
    if horizon is None:
        assert (None if found is None else found[0]) in ({s for s, _ in expected} or {None})
    elif expected:
        assert found in expected
        assert found[1] == max(time for _, time in expected)
    else:
        assert found is None
    # 420 is a multiple of every period that seven states can have.
    state_and_time, later = (reach.dead_end(achieved, 1000 + 420 * n) for n in (0, 10**12))
    if state_and_time is None:
        assert later is None
    else:
        assert later is not None
        assert later[0] == state_and_time[0]
        assert later[1] - state_and_time[1] in {0, 420 * 10**12}  # 0: only reached early.
