"""Worlds in which there is nothing to learn are refused before learning begins."""

import logging

import pytest
from doors import DoorWorld
from torch import Tensor

from empo_core.errors import SolveError
from empo_phase2.world_checks import check_reach, reachable_goals


class Helpless(DoorWorld):
    """Some goals are never achieved."""

    def __init__(self, never: tuple[int, ...]) -> None:
        super().__init__()
        self._never = list(never)

    def achieved(self, states: Tensor) -> Tensor:
        achieved = super().achieved(states).clone()
        achieved[:, self._never] = False
        return achieved


def test_goals_in_reach_are_found() -> None:
    assert all(reachable_goals(DoorWorld()) or [])
    assert reachable_goals(Helpless((1,))) == [True, False, True, True, True]


def test_a_human_that_can_reach_nothing_is_named_before_training() -> None:
    with pytest.raises(SolveError, match=r"agent 2.*cannot reach any .*\(shut, not shut"):
        check_reach(Helpless((0, 2)))


def test_goals_that_cannot_be_reached_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    check_reach(Helpless((1,)))
    assert "can never reach shut of its 3 goals" in caplog.text


def test_large_worlds_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empo_phase2.world_checks.MOST_PAIRS", 1)
    assert reachable_goals(Helpless((0, 1, 2, 3, 4))) is None


def test_only_what_can_be_reached_in_time_counts() -> None:
    late = DoorWorld(horizon=1)
    after = late.transitions(late.initial_state()[None]).states
    assert reachable_goals(late) == late.achieved(after).any(0).tolist()
