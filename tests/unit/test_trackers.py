"""Several trackers as one: some write, some follow episodes, some show words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.errors import ConfigError, TrackerError
from empo_core.protocols import Tracker
from empo_core.tracker_group import TrackerGroup
from empo_core.types import Histogram


class Notes(Tracker):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float | Histogram]]] = []

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.logged.append((step, dict(metrics)))


class Speaks(Notes):
    """Shows words."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def status(self, task: str, text: str) -> None:
        self.said.append((task, text))


class Counts(Notes):
    """Counts episodes under a name of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.count: int | None = None
        self.told: list[tuple[Tensor | None, Tensor | None]] = []

    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        self.count, self.reasons, self.num_envs = 0, tuple(reasons), num_envs

    def step_episodes(
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

    def episode_statistics(self) -> dict[str, float | Histogram]:
        if self.count is None:
            return {}
        bins = Histogram(edges=[0.0, 1.0], counts=[self.count])
        return {f"count/{self.name}": self.count, "newest": hash(self.name), "bins": bins}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.count = state_dict["count"]


DONES = torch.tensor([True, False, True])


def started(directory: Path, *members: Tracker) -> TrackerGroup:
    trackers = TrackerGroup(members)
    trackers.start(directory, {})
    return trackers


def test_several_trackers_are_one_tracker(tmp_path: Path) -> None:
    assert isinstance(TrackerGroup([]), Tracker)


def test_words_reach_those_that_show_them(tmp_path: Path) -> None:
    one, other = Speaks(), Speaks()
    trackers = started(tmp_path, one, Notes(), Counts("a"), other)
    trackers.status("rollout", "fast")
    assert one.said == other.said == [("rollout", "fast")]


def test_episodes_reach_those_that_follow_them(tmp_path: Path) -> None:
    one, other = Counts("one"), Counts("other")
    trackers = started(tmp_path, Notes(), one, Speaks(), other)
    trackers.start_episodes(3, ["won", "lost"])
    reasons, active = torch.tensor([0, -1, 1]), torch.tensor([True, True, False])
    trackers.step_episodes(torch.ones(3), DONES)
    trackers.step_episodes(torch.ones(3), DONES, reasons, active)
    for member in (one, other):
        assert (member.count, member.reasons) == (4, ("won", "lost"))
        assert member.told == [(None, None), (reasons, active)]


def test_what_is_found_goes_to_all_trackers_with_whatever_is_logged(tmp_path: Path) -> None:
    notes, counts = Notes(), Counts("x")
    trackers = started(tmp_path, notes, counts)
    metrics: dict[str, float | Histogram] = {"loss": 0.5}
    trackers.log(1, metrics)
    trackers.start_episodes(3, [])
    trackers.step_episodes(torch.ones(3), DONES)
    trackers.log(2, metrics)
    bins = Histogram(edges=[0.0, 1.0], counts=[2])
    found = {"loss": 0.5, "count/x": 2, "newest": hash("x"), "bins": bins}
    assert notes.logged == counts.logged == [(1, {"loss": 0.5}), (2, found)]
    assert metrics == {"loss": 0.5}


def test_of_two_that_found_the_same_the_later_one_counts(tmp_path: Path) -> None:
    trackers = started(tmp_path, Counts("first"), Counts("second"))
    assert trackers.episode_statistics() == {}
    trackers.start_episodes(3, [])
    trackers.step_episodes(torch.ones(3), DONES)
    found = trackers.episode_statistics()
    assert found["newest"] == hash("second")
    assert found["count/first"] == found["count/second"] == 2


def test_what_those_remember_that_follow_episodes_is_kept_apart(tmp_path: Path) -> None:
    first, second = Counts("first"), Counts("second")
    trackers = started(tmp_path, Notes(), first, Speaks(), second)
    trackers.start_episodes(3, [])
    first.count, second.count = 5, 7
    state = trackers.state_dict()
    trackers.start_episodes(3, [])
    assert (first.count, second.count) == (0, 0)
    trackers.load_state_dict(state)
    assert (first.count, second.count) == (5, 7)


def test_trackers_that_have_not_started_are_told_nothing(tmp_path: Path) -> None:
    counts, speaks = Counts("x"), Speaks()
    trackers = TrackerGroup([counts, speaks])
    trackers.status("rollout", "too early")
    assert (counts.count, speaks.said) == (None, [])
    trackers.start(tmp_path, {})
    trackers.start_episodes(3, [])
    trackers.finish("finished")
    with pytest.raises(AssertionError):
        counts.step_episodes(torch.ones(2), DONES)
    trackers.step_episodes(torch.ones(3), DONES)  # No tracker takes it in any more.


HOOKS: dict[str, Callable[[TrackerGroup], object]] = {
    "log": lambda trackers: trackers.log(1, {"loss": 0.5}),
    "progress": lambda trackers: trackers.progress("rollout", 1, 2),
    "status": lambda trackers: trackers.status("rollout", "fast"),
    "truncate": lambda trackers: trackers.truncate(3),
    "start_episodes": lambda trackers: trackers.start_episodes(3, []),
    "step_episodes": lambda trackers: trackers.step_episodes(torch.ones(3), DONES),
    "episode_statistics": lambda trackers: trackers.episode_statistics(),
    "state_dict": lambda trackers: trackers.state_dict(),
    "load_state_dict": lambda trackers: trackers.load_state_dict({"1": {}}),
}


class Odd(BaseException):
    """An exception that handlers of exceptions do not catch."""


def broken(hook: str, error: BaseException) -> Counts:
    def fail(*arguments: object) -> None:
        raise error

    made = Counts("broken")
    made.count, made.num_envs, made.reasons = 0, 3, ()
    setattr(made, hook, fail)
    return made


@pytest.mark.parametrize("error", [ValueError("no room"), Odd("no room"), SystemExit("no room")])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_tracker_that_fails_ends_the_run(tmp_path: Path, hook: str, error: BaseException) -> None:
    trackers = started(tmp_path, Notes(), broken(hook, error), Notes())
    told = f"{type(error).__name__}: no room"
    if isinstance(error, SystemExit):
        told = r"calls sys\.exit\('no room'\)"
    message = rf"Counts .*{hook}: {told}"
    with pytest.raises(TrackerError, match=message) as caught:
        HOOKS[hook](trackers)
    assert caught.value.__cause__ is error


def test_the_others_are_told_what_a_tracker_fails_at(tmp_path: Path) -> None:
    notes = Notes()
    trackers = started(tmp_path, broken("log", ValueError("no room")), notes)
    with pytest.raises(TrackerError, match="no room"):
        trackers.log(1, {"loss": 0.5})
    assert [step for step, _ in notes.logged] == [1]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_tracker_that_fails_is_switched_off_with_one_warning_where_that_is_wanted(
    tmp_path: Path, hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, bad, other = Notes(), broken(hook, ValueError("no room")), Counts("other")
    finished: list[str] = []
    bad.finish = finished.append  # type: ignore[method-assign, assignment]
    trackers = TrackerGroup([one, bad, other], on_error="warn")
    trackers.start(tmp_path, {})
    other.start_episodes(3, [])
    for _ in range(3):
        HOOKS[hook](trackers)
    assert len(caplog.records) == 1
    assert "the tracker Counts failed in" in caplog.text
    assert re.search(r"no room \(tests, .*test_trackers\.py:\d+\); it is switched", caplog.text)
    assert finished == ["failed"]
    trackers.start_episodes(3, [])
    trackers.log(7, {"loss": 1.0})
    assert one.logged[-1] == (7, {"loss": 1.0, **other.episode_statistics()})
    trackers.finish("finished")
    assert finished == ["failed"]


def test_a_tracker_that_cannot_start_or_finish_is_a_warning_where_that_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    members = [broken("start", OSError("full")), notes, broken("finish", OSError("full"))]
    trackers = TrackerGroup(members, on_error="warn")
    trackers.start(tmp_path, {})
    trackers.log(1, {})
    trackers.finish("finished")
    assert len(notes.logged) == 1
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [("Counts" in each, "full" in each) for each in warnings] == [(True, True)] * 2


@pytest.mark.parametrize("on_error", ["fail", "warn"])
def test_ctrl_c_and_errors_of_the_config_are_no_fault_of_a_tracker(
    tmp_path: Path, on_error: Any
) -> None:
    for error in (KeyboardInterrupt(), ConfigError("resume with the same environments")):
        trackers = TrackerGroup([broken("log", error)], on_error=on_error)
        trackers.start(tmp_path, {})
        with pytest.raises(type(error)) as caught:
            trackers.log(1, {})
        assert caught.value is error


def test_a_metric_that_was_switched_off_begins_anew_when_the_run_goes_on(tmp_path: Path) -> None:
    first, second = Counts("first"), Counts("second")
    trackers = TrackerGroup([first, second])
    trackers.start(tmp_path, {})
    trackers.start_episodes(3, [])
    second.count = 7
    state = trackers.state_dict()
    del state["0"]  # As a checkpoint has it after the first one was switched off.
    first.count, second.count = 5, 0
    trackers.load_state_dict(state)
    assert (first.count, second.count) == (5, 7)
