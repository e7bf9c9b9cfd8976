"""The run loop with a learner that counts: cadence, interrupts, errors, resumption."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.errors import CollectError, NonFiniteError, StorageError, TrackerError
from empo_core.protocols import RunContext, Tracker
from empo_core.runs.atomic import sealed_json
from empo_core.tracker_group import TrackerGroup
from empo_learning.checkpoint import TIMES, Checkpoints
from empo_learning.distributed import Group
from empo_learning.learner import Evaluated, Learner
from empo_learning.loop import CHECKPOINTS, Loop
from empo_learning.params import Reporting, ScoredReporting
from empo_testing.algorithm import RecordingTracker

TOTAL = 12
INTERVALS = {"log_interval": 2, "evaluation_interval": 5, "checkpoint_interval": 4}


class Counting(Learner):
    """Adds a random number to a weight at each step; each third advance makes no step."""

    def __init__(self) -> None:
        self.steps = self.calls = 0
        self.total_steps = TOTAL
        self.started = False
        self.weight = torch.zeros(2)
        self.scores = {step: float(step) for step in range(TOTAL + 1)}
        self.at: dict[int, Any] = {}
        """Event within ``advance`` by step: an exception, a signal, or a weight."""

    def start(self) -> None:
        self.started = True
        torch.manual_seed(0)

    def advance(self) -> None:
        self.calls += 1
        if self.calls % 3 == 0:
            return
        event = self.at.get(self.steps)
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, signal.Signals):
            os.kill(os.getpid(), event)
        self.weight += torch.rand(2)
        self.steps += 1
        if isinstance(event, float):
            self.weight[0] = event

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        return {"loss/weight": float(self.weight.sum())}

    def evaluate(self) -> Evaluated | None:
        return Evaluated({"eval/score": self.scores[self.steps]}, self.scores[self.steps])

    def state_dict(self, *, midway: bool) -> dict[str, Any]:
        return {"steps": self.steps, "calls": self.calls, "weight": self.weight}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.steps, self.calls = state_dict["steps"], state_dict["calls"]
        self.weight = state_dict["weight"].clone()


class Watching(RecordingTracker):
    """Remembers numbers, and may fail at a step."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.lines: dict[int, dict[str, Any]] = {}
        self.fails_at = fails_at

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        if step == self.fails_at:
            raise RuntimeError("no room on the disk")
        self.lines.setdefault(step, {}).update(metrics)


def loop_of(
    directory: Path, learner: Learner, *, resume: bool = False, fails_at: int | None = None,
    is_solved: Callable[[Sequence[float]], bool] | None = None, **reporting: int,
) -> tuple[Loop, Watching]:  # fmt: skip
    tracker = Watching(fails_at)
    context = RunContext(world=None, seed=0, directory=directory, tracker=tracker, resume=resume)
    chosen = INTERVALS | reporting
    return Loop(learner, context, Reporting.model_validate(chosen), is_solved=is_solved), tracker


def steps_of(directory: Path) -> list[int]:
    return Checkpoints(directory / CHECKPOINTS).steps()


def test_what_is_due_happens_once_and_all_of_it_at_the_end(tmp_path: Path) -> None:
    learner = Counting()
    loop, tracker = loop_of(tmp_path, learner, keep_checkpoints=9)
    loop.run()
    assert learner.started
    assert [step for step, line in tracker.lines.items() if "loss/weight" in line] == [
        2, 4, 6, 8, 10, 12,
    ]  # fmt: skip
    assert [s for s, line in sorted(tracker.lines.items()) if "eval/score" in line] == [5, 10, 12]
    assert steps_of(tmp_path) == [4, 8, 12]
    history = loop.record.history
    assert [row.steps for row in history] == [2, 4, 6, 8, 10, 12]
    assert [row.seconds for row in history] == sorted(row.seconds for row in history)
    assert history[-1].seconds == loop.record.seconds
    assert "time/steps_per_second" in tracker.lines[2]
    # The last checkpoint knows the last evaluation.
    found = Checkpoints(tmp_path / CHECKPOINTS).best()
    assert found is not None
    assert found[0] == 12


def test_a_run_ends_when_it_is_as_good_as_was_asked_for(tmp_path: Path) -> None:
    is_solved = ScoredReporting(
        evaluation_interval=5, solved_at=7.5, solved_evaluations=2
    ).is_solved
    learner = Counting()
    loop, _ = loop_of(tmp_path, learner, is_solved=is_solved)
    loop.run()
    assert learner.steps == 10
    assert steps_of(tmp_path)[-1] == 10
    again = Counting()
    loop, _ = loop_of(tmp_path, again, is_solved=is_solved, resume=True)
    loop.run()
    assert again.steps == 10


def test_one_lucky_evaluation_does_not_end_a_run(tmp_path: Path) -> None:
    learner = Counting()
    learner.scores[5] = 100.0
    goal = ScoredReporting(evaluation_interval=1, solved_at=50.0, solved_evaluations=3)
    loop, _ = loop_of(tmp_path, learner, is_solved=goal.is_solved, evaluation_interval=1)
    loop.run()
    assert learner.steps == TOTAL
    assert not goal.is_solved([100.0, 100.0])
    assert goal.is_solved([0.0, 49.0, 50.0, 51.0])


def test_what_fails_after_a_signal_is_an_interruption(tmp_path: Path) -> None:
    class Dying(Counting):
        """Its workers end by the signal that the learner gets."""

        def advance(self) -> None:
            super().advance()
            if self.steps == 5:
                os.kill(os.getpid(), signal.SIGTERM)
                raise CollectError("a worker was killed by signal 15")

    loop, _ = loop_of(tmp_path, Dying())
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert steps_of(tmp_path)[-1] == 5


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_run_between_two_steps_and_it_goes_on_exactly(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    whole = Counting()
    loop_of(tmp_path / "whole", whole)[0].run()
    number = signal.Signals[name]
    before = signal.getsignal(number)
    request.addfinalizer(lambda: signal.signal(number, before))
    stopped = Counting()
    stopped.at[6] = number
    with pytest.raises(KeyboardInterrupt):
        loop_of(tmp_path / "stopped", stopped)[0].run()
    assert signal.getsignal(number) == before
    assert stopped.steps == 7
    assert steps_of(tmp_path / "stopped")[-1] == 7
    resumed = Counting()
    loop, tracker = loop_of(tmp_path / "stopped", resumed, resume=True)
    loop.run()
    assert not resumed.started
    assert min(tracker.lines) == 8
    assert torch.equal(resumed.weight, whole.weight)


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("step", [5, TOTAL])
def test_a_signal_ends_an_evaluation_at_once_and_it_is_made_again_exactly(
    tmp_path: Path, name: str, step: int, request: pytest.FixtureRequest
) -> None:
    class Evaluating(Counting):
        """Its evaluation draws random numbers; a signal arrives within it."""

        signal_at: int | None = None

        def __init__(self) -> None:
            super().__init__()
            self.evaluated: list[int] = []

        def evaluate(self) -> Evaluated | None:
            with self.interruptible():
                score = float(torch.rand(3).sum())
                if self.steps == self.signal_at:
                    os.kill(os.getpid(), signal.Signals[name])
                    pytest.fail("the evaluation went on after the signal")
            self.evaluated.append(self.steps)
            return Evaluated({"eval/score": score}, score)

    whole = Evaluating()
    loop, tracker = loop_of(tmp_path / "whole", whole, keep_checkpoints=9)
    loop.run()
    before = signal.getsignal(signal.Signals[name])
    request.addfinalizer(lambda: signal.signal(signal.Signals[name], before))
    stopped = Evaluating()
    stopped.signal_at = step
    with pytest.raises(KeyboardInterrupt):
        loop_of(tmp_path / "stopped", stopped, keep_checkpoints=9)[0].run()
    assert stopped.steps == step
    assert step not in stopped.evaluated
    assert steps_of(tmp_path / "stopped")[-1] == step
    resumed = Evaluating()
    again, lines = loop_of(tmp_path / "stopped", resumed, resume=True, keep_checkpoints=9)
    again.run()
    assert stopped.evaluated + resumed.evaluated == whole.evaluated
    assert lines.lines[step]["eval/score"] == tracker.lines[step]["eval/score"]
    assert torch.equal(resumed.weight, whole.weight)
    assert Checkpoints(tmp_path / "stopped" / CHECKPOINTS).best() is not None


def test_a_signal_that_waits_says_what_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = Counting()
    learner.at[6] = signal.SIGTERM
    with pytest.raises(KeyboardInterrupt):
        loop_of(tmp_path, learner)[0].run()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(1)
    assert [record.levelname for record in caplog.records if "SIGTERM" in record.message] == [
        "WARNING"
    ]


@pytest.mark.parametrize("error", [CollectError("all actors are dead"), RuntimeError("a bug")])
def test_an_error_within_a_step_leaves_a_checkpoint(tmp_path: Path, error: Exception) -> None:
    learner = Counting()
    learner.at[6] = error
    with pytest.raises(type(error)):
        loop_of(tmp_path, learner)[0].run()
    assert steps_of(tmp_path)[-1] == 6


def test_a_tracker_that_fails_ends_the_run_after_a_checkpoint(tmp_path: Path) -> None:
    learner = Counting()
    with pytest.raises(RuntimeError, match="no room"):
        loop_of(tmp_path, learner, fails_at=6)[0].run()
    assert steps_of(tmp_path)[-1] == 6


def test_what_is_due_where_a_tracker_fails_is_done_before_the_run_ends(tmp_path: Path) -> None:
    loop, tracker = loop_of(
        tmp_path, Counting(), fails_at=6, evaluation_interval=6, checkpoint_interval=6
    )
    with pytest.raises(RuntimeError, match="no room"):
        loop.run()
    assert loop.record.scores == [Counting().scores[6]]
    resumed, again = loop_of(
        tmp_path, Counting(), resume=True, evaluation_interval=6, checkpoint_interval=6
    )
    resumed.run()
    assert sorted({**tracker.lines, **again.lines}) == [2, 4, 8, 10, 12]
    assert len(resumed.record.scores) == 2, "the evaluation at step 6 is not made again"


class Twin(Group):
    """One of two processes that do exactly the same."""

    def __init__(self) -> None:
        super().__init__(size=2)

    def sum(self, number: int) -> int:
        return 2 * number

    def shared(self, value: Any) -> Any:
        return value

    def gathered(self, value: Any) -> list[Any]:
        return [value, value]


class Failing(Watching):
    """Fails in one of its hooks, after two steps or at the end."""

    def __init__(self, hook: str, step: int) -> None:
        super().__init__(step if hook == "log" else None)
        self.hook, self.at, self.logged = hook, step, 0

    def fail(self, hook: str, step: int) -> None:
        if (hook, step) == (self.hook, self.at):
            raise RuntimeError("no room on the disk")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.logged = step
        super().log(step, metrics)

    def status(self, task: str, text: str) -> None:
        self.fail("status", self.logged)

    def progress(self, task: str, done: int, total: int) -> None:
        self.fail("progress", done)


@pytest.mark.parametrize(
    ("hook", "step"),
    [("progress", 0), *itertools.product(["log", "status", "progress"], [6, TOTAL])],
)
@pytest.mark.parametrize("group", [Group(), Twin()], ids=["alone", "two processes"])
def test_a_tracker_that_fails_anywhere_ends_the_run_after_a_checkpoint(
    group: Group, hook: str, step: int, tmp_path: Path
) -> None:
    tracker = Failing(hook, step)
    context = RunContext(world=None, seed=0, directory=tmp_path, tracker=tracker, resume=False)
    learner = Counting()
    intervals = INTERVALS | {"checkpoint_interval": 100}
    loop = Loop(learner, context, Reporting.model_validate(intervals), group=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("empo_learning.loop.PROGRESS_S", -1.0)
        with pytest.raises(RuntimeError, match="no room"):
            loop.run()
    # Several processes begin with a checkpoint, for one of them may be lost.
    assert steps_of(tmp_path) == sorted({step, 0 if group.size > 1 else step})


class Updating(Counting):
    """Makes an update of so many seconds in each advance."""

    def __init__(self, seconds: Sequence[float], clock: list[float]) -> None:
        super().__init__()
        self.seconds, self.clock = iter(seconds), clock

    def advance(self) -> None:
        super().advance()
        self.after_rollout()
        self.clock[0] += next(self.seconds)


class Statuses(Tracker):
    """Remembers texts, and fails at one of them."""

    def __init__(self, fails_at: str = "nothing") -> None:
        self.fails_at, self.texts = fails_at, list[str]()

    def status(self, task: str, text: str) -> None:
        self.texts.append(text)
        if self.fails_at in text:
            raise RuntimeError("no room on the disk")


def updates_in(tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop whose updates take 1, 7, 3 and then always 1 second."""
    clock = [0.0]
    monkeypatch.setattr("empo_learning.loop.time.perf_counter", lambda: clock[0])
    context = RunContext(world=None, seed=0, directory=tmp_path, tracker=tracker, resume=False)
    learner = Updating([1, 7, 3] + [1] * 30, clock)
    quiet = Reporting.model_validate(dict.fromkeys(INTERVALS, 100))
    return Loop(learner, context, quiet)


def test_an_update_is_announced_where_the_one_before_took_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Statuses()
    updates_in(tmp_path, tracker, monkeypatch).run()
    *texts, end = tracker.texts
    assert texts == [
        "first update", "", "update, the last one took 7 s", "", "update, the last one took 3 s", ""
    ]  # fmt: skip
    assert "steps/s" in end


def test_a_tracker_that_fails_within_an_update_ends_the_run_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = updates_in(tmp_path, Statuses("took 7 s"), monkeypatch)
    with pytest.raises(RuntimeError, match="no room"):
        loop.run()
    # The third call of ``advance`` makes no step.
    assert steps_of(tmp_path) == [2]
    assert Checkpoints(tmp_path / CHECKPOINTS).times(2)["seconds"] == 11


class Unsaveable(Tracker):
    """Has numbers about episodes that no checkpoint can take."""

    def episode_statistics(self) -> Any:
        return {}

    def state_dict(self) -> Any:
        raise RuntimeError("it lost count")


def test_a_metric_that_cannot_be_saved_ends_the_run_after_a_checkpoint_without_it(
    tmp_path: Path,
) -> None:
    group, learner = TrackerGroup([Unsaveable()]), Counting()
    group.start(tmp_path, {})
    context = RunContext(world=None, seed=0, directory=tmp_path, tracker=group, resume=False)
    with pytest.raises(TrackerError, match=r"Unsaveable failed in state_dict: .* lost count"):
        Loop(learner, context, Reporting.model_validate(INTERVALS)).run()
    assert steps_of(tmp_path) == [4]
    resumed = Counting()
    loop_of(tmp_path, resumed, resume=True)[0].run()
    assert resumed.steps == TOTAL


def test_what_is_not_finite_is_never_saved(tmp_path: Path) -> None:
    learner = Counting()
    learner.at[8] = float("nan")
    with pytest.raises(NonFiniteError, match="loss/weight is nan") as caught:
        loop_of(tmp_path, learner)[0].run()
    assert "no checkpoint" in caught.value.__notes__[0]
    assert "weight has 1 of 2 numbers" in caught.value.__notes__[0]
    assert steps_of(tmp_path)[-1] == 8
    resumed = Counting()
    loop_of(tmp_path, resumed, resume=True)[0].run()
    assert resumed.steps == TOTAL
    assert resumed.weight.isfinite().all()


@pytest.mark.parametrize("broken", [torch.full((2,), torch.inf), {"a": [1.0, float("nan")]}])
def test_resuming_goes_past_checkpoints_that_are_not_finite(tmp_path: Path, broken: Any) -> None:
    loop_of(tmp_path, Counting())[0].run()
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS)
    state = checkpoints.load(12)
    state["learner"]["weight"] = broken
    checkpoints.save(12, state, times=checkpoints.times(12))
    resumed = Counting()
    loop, tracker = loop_of(tmp_path, resumed, resume=True)
    loop.run()
    assert min(tracker.lines) == 10
    assert resumed.steps == TOTAL
    assert resumed.weight.isfinite().all()


def test_no_good_checkpoint_is_an_error(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS)
    checkpoints.save(3, {"learner": {"weight": torch.tensor([torch.nan])}})
    with pytest.raises(StorageError, match="every checkpoint"):
        loop_of(tmp_path, Counting(), resume=True)[0].run()


def test_equal_runs_leave_equal_checkpoints_besides_their_times(tmp_path: Path) -> None:
    sums = []
    for name in "ab":
        loop_of(tmp_path / name, Counting())[0].run()
        files = sorted((tmp_path / name / CHECKPOINTS).glob("step-*/*"))
        sums.append(
            [
                (path.parent.name, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
                for path in files
                if path.name != TIMES
            ]
        )
    assert sums[0] == sums[1]
    assert len(sums[0]) == 2 * 3


def test_damaged_times_are_noticed(tmp_path: Path) -> None:
    loop_of(tmp_path, Counting())[0].run()
    path = tmp_path / CHECKPOINTS / "step-12" / TIMES
    path.write_bytes(path.read_bytes().replace(b"seconds", b"sekonds"))
    resumed = Counting()
    loop, tracker = loop_of(tmp_path, resumed, resume=True)
    loop.run()
    assert min(tracker.lines) == 10


def test_times_of_other_types_are_noticed(tmp_path: Path) -> None:
    loop_of(tmp_path, Counting())[0].run()
    path = tmp_path / CHECKPOINTS / "step-12" / TIMES
    data = json.loads(path.read_text())
    data["body"]["times"]["timers"]["totals"] = {"train": {"name": "exact"}}
    path.write_bytes(sealed_json(path, data["format"], data["version"], data["body"]))
    loop, tracker = loop_of(tmp_path, Counting(), resume=True)
    loop.run()
    assert min(tracker.lines) == 10


def test_a_run_goes_on_without_times_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop_of(tmp_path, Counting())[0].run()
    (tmp_path / CHECKPOINTS / "step-12" / TIMES).unlink()
    loop_of(tmp_path, Counting(), resume=True)[0].run()
    assert "no times" in caplog.text
