"""Several trackers as one: some write, some follow episodes, some show words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.experiment import Trackers
from empo_core.protocols import EpisodeTracker, Narrator, Rewindable, Tracker
from empo_core.types import Histogram


class Notes:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float | Histogram]]] = []

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Nothing."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.logged.append((step, dict(metrics)))

    def progress(self, task: str, done: float, total: float) -> None:
        """Nothing."""

    def finish(self, status: str) -> None:
        """Nothing."""


class Speaks(Notes):
    """Shows words."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def narrate(self, task: str, text: str) -> None:
        self.said.append((task, text))


class Counts(Notes):
    """Counts episodes under a name of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.count: int | None = None
        self.told: list[tuple[Tensor | None, Tensor | None]] = []

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        self.count, self.reasons, self.num_envs = 0, tuple(reasons), num_envs

    def step(
        self,
        rewards: Tensor,
        dones: Tensor,
        reasons: Tensor | None = None,
        active: Tensor | None = None,
    ) -> None:
        assert self.count is not None
        assert len(rewards) == self.num_envs
        self.count += int(dones.sum())
        self.told.append((reasons, active))

    def statistics(self) -> dict[str, float | Histogram]:
        if self.count is None:
            return {}
        bins = Histogram(edges=[0.0, 1.0], counts=[self.count])
        return {f"count/{self.name}": self.count, "newest": hash(self.name), "bins": bins}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.count = state_dict["count"]


DONES = torch.tensor([True, False, True])


def started(directory: Path, *members: Tracker) -> Trackers:
    trackers = Trackers(members)
    trackers.start(directory, {})
    return trackers


def test_several_trackers_offer_everything_that_one_may_offer(tmp_path: Path) -> None:
    trackers = Trackers([])
    for protocol in (Tracker, EpisodeTracker, Narrator, Rewindable):
        assert isinstance(trackers, protocol)


def test_words_reach_those_that_show_them(tmp_path: Path) -> None:
    one, other = Speaks(), Speaks()
    trackers = started(tmp_path, one, Notes(), Counts("a"), other)
    trackers.narrate("rollout", "fast")
    assert one.said == other.said == [("rollout", "fast")]


def test_episodes_reach_those_that_follow_them(tmp_path: Path) -> None:
    one, other = Counts("one"), Counts("other")
    trackers = started(tmp_path, Notes(), one, Speaks(), other)
    trackers.follow(3, ["won", "lost"])
    reasons, active = torch.tensor([0, -1, 1]), torch.tensor([True, True, False])
    trackers.step(torch.ones(3), DONES)
    trackers.step(torch.ones(3), DONES, reasons, active)
    for member in (one, other):
        assert (member.count, member.reasons) == (4, ("won", "lost"))
        assert member.told == [(None, None), (reasons, active)]


def test_what_is_found_goes_to_all_trackers_with_whatever_is_logged(tmp_path: Path) -> None:
    notes, counts = Notes(), Counts("x")
    trackers = started(tmp_path, notes, counts)
    metrics: dict[str, float | Histogram] = {"loss": 0.5}
    trackers.log(1, metrics)
    trackers.follow(3, [])
    trackers.step(torch.ones(3), DONES)
    trackers.log(2, metrics)
    bins = Histogram(edges=[0.0, 1.0], counts=[2])
    found = {"loss": 0.5, "count/x": 2, "newest": hash("x"), "bins": bins}
    assert notes.logged == counts.logged == [(1, {"loss": 0.5}), (2, found)]
    assert metrics == {"loss": 0.5}


def test_of_two_that_found_the_same_the_later_one_counts(tmp_path: Path) -> None:
    trackers = started(tmp_path, Counts("first"), Counts("second"))
    assert trackers.statistics() == {}
    trackers.follow(3, [])
    trackers.step(torch.ones(3), DONES)
    found = trackers.statistics()
    assert found["newest"] == hash("second")
    assert found["count/first"] == found["count/second"] == 2


def test_what_those_remember_that_follow_episodes_is_kept_apart(tmp_path: Path) -> None:
    first, second = Counts("first"), Counts("second")
    trackers = started(tmp_path, Notes(), first, Speaks(), second)
    trackers.follow(3, [])
    first.count, second.count = 5, 7
    state = trackers.state_dict()
    trackers.follow(3, [])
    assert (first.count, second.count) == (0, 0)
    trackers.load_state_dict(state)
    assert (first.count, second.count) == (5, 7)


def test_trackers_that_have_not_started_are_told_nothing(tmp_path: Path) -> None:
    counts, speaks = Counts("x"), Speaks()
    trackers = Trackers([counts, speaks])
    trackers.narrate("rollout", "too early")
    trackers.follow(3, [])
    assert (counts.count, speaks.said, trackers.statistics()) == (None, [], {})
    assert trackers.state_dict() == {}
    trackers.start(tmp_path, {})
    trackers.follow(3, [])
    trackers.finish("finished")
    with pytest.raises(AssertionError):
        counts.step(torch.ones(2), DONES)
    trackers.step(torch.ones(2), DONES)  # Nobody listens any more.
