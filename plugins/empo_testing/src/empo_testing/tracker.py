"""Conformance kit of trackers: take everything, disturb nothing, leave nothing open.

One that also follows episodes or shows words is checked for that, too.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.protocols import RunStatus, Tracker
from empo_core.suggestions import nearest
from empo_core.trees import JsonData
from empo_core.types import Histogram
from empo_learning.state_tree import flatten
from empo_testing.exploration import global_randomness_untouched, stored

CONFIG: dict[str, JsonData] = {
    "world_model": {"name": "grid", "params": {"file": "/somewhere/world.yaml"}},
    "algorithm": {"name": "solve", "params": {"beta_h": 10.0, "list": [1, None, True]}},
    "trackers": [],
    "seed": 3,
}
# numpy's scalars are no floats for a type checker, but end up among metrics all the same.
METRICS: list[dict[str, Any]] = [
    {},
    {"value/v_r": -1.5},
    {"count": 3, "deep/er/key": 1e300, "tiny": 5e-324, "ü/µ with space": 0.0},
    {"nan": float("nan"), "high": float("inf"), "low": -float("inf")},
    {"numpy": np.float64(0.25), "narrow": np.float32(0.5), "integer": np.int64(7)},
    {"histogram": Histogram(edges=[0.0, 0.5, 2.0], counts=[3, 0]), "beside": 1.0},
    {"empty": Histogram(edges=[-1.0, 1.0], counts=[0])},
]
GRACE_S = 1.0
"""Time in seconds within which a thread must notice that its tracker has finished."""
RESEMBLANCE = 0.82
"""Share of common letters from which a method counts as a misspelt hook; helpers may be called
otherwise."""
REASONS = ("won", "lost")
ENVS = 5
STATUSES: tuple[RunStatus, ...] = ("finished", "failed", "interrupted")


class _TrackerCase:
    """The tracker under test, and a run directory."""

    @pytest.fixture
    def tracker(self) -> Tracker:
        """A fresh tracker that has not started."""
        raise NotImplementedError("override the fixture 'tracker'")

    @pytest.fixture
    def directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A run directory; the working and home directories lie elsewhere."""
        for name in ("run", "elsewhere", "home"):
            (tmp_path / name).mkdir()
        (tmp_path / "run" / "config.yaml").write_text("seed: 3\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path / "elsewhere")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return tmp_path / "run"


class _EpisodeTests(_TrackerCase):
    """The statistics of episodes, where the tracker has some."""

    def test_nothing_is_known_of_episodes_before_there_are_environments(
        self, tracker: Tracker, directory: Path
    ) -> None:
        follower(tracker)
        assert tracker.episode_statistics() == {}
        tracker.start(directory, CONFIG)
        assert tracker.episode_statistics() == {}
        flatten(tracker.state_dict())  # A checkpoint may be due before the first step.
        tracker.finish("finished")

    def test_episodes_lead_to_numbers_that_every_tracker_takes(
        self, tracker: Tracker, directory: Path
    ) -> None:
        with started(tracker, directory):
            before = numbers(tracker)
            live(tracker, seed=0)
            statistics = tracker.episode_statistics()
            assert numbers(tracker) != before, "episodes were completed, and it makes no difference"
            for key, value in statistics.items():
                assert isinstance(key, str)
                if isinstance(value, Histogram):
                    assert len(value.edges) == len(value.counts) + 1, key
                else:
                    assert type(value) in (int, float), f"{key} is a {type(value).__name__}"
            assert numbers(tracker) == repr(statistics), "asking for the numbers changed them"
            tracker.log(1, statistics)

    def test_episodes_of_any_number_of_environments_can_be_followed(
        self, tracker: Tracker, directory: Path
    ) -> None:
        follower(tracker)
        with tracked(tracker, directory):
            for num_envs, reasons in ((0, REASONS), (1, ()), (1000, ("one",)), (ENVS, REASONS)):
                tracker.start_episodes(num_envs, reasons)
                live(tracker, seed=0, num_envs=num_envs, steps=2)
            first = numbers(tracker)
            tracker.start_episodes(ENVS, REASONS)
            live(tracker, seed=0, steps=2)
            assert numbers(tracker) == first, "environments that begin anew begin with nothing"

    def test_environments_that_take_no_step_change_nothing(
        self, tracker: Tracker, directory: Path
    ) -> None:
        with started(tracker, directory):
            live(tracker, seed=0)
            before = snapshot(tracker)
            everything = torch.ones(ENVS, dtype=torch.bool)
            tracker.step_episodes(
                torch.full([ENVS], torch.nan), everything, everything.long(), ~everything
            )
            assert snapshot(tracker) == before

    def test_unknown_reasons_are_no_reason_to_fail(self, tracker: Tracker, directory: Path) -> None:
        with started(tracker, directory):
            done = torch.ones(ENVS, dtype=torch.bool)
            tracker.step_episodes(torch.ones(ENVS), done, torch.full([ENVS], -1))
            tracker.step_episodes(torch.ones(ENVS), done)
            tracker.log(1, tracker.episode_statistics())

    def test_what_it_is_told_of_episodes_stays_as_it_is(
        self, tracker: Tracker, directory: Path
    ) -> None:
        with started(tracker, directory):
            step = steps_of(seed=0, num_envs=ENVS, steps=1)[0]
            before = [part.clone() for part in step]
            tracker.step_episodes(*step)
            assert all(torch.equal(a, b) for a, b in zip(step, before, strict=True))
            state = snapshot(tracker)
            for part in step:
                part.zero_()
            assert snapshot(tracker) == state, "it goes on using tensors that are not its own"

    def test_episodes_go_on_exactly_from_a_checkpoint(
        self, tracker: Tracker, directory: Path
    ) -> None:
        with started(tracker, directory):
            live(tracker, seed=0)
            checkpoint = stored(tracker.state_dict())
            live(tracker, seed=1)
            expected = snapshot(tracker)
            tracker.start_episodes(ENVS, REASONS)
            tracker.load_state_dict(checkpoint)
            live(tracker, seed=1)
            assert snapshot(tracker) == expected


class TrackerTests(_EpisodeTests):
    """Subclass this in your plugin's tests and override ``tracker``."""

    def test_it_is_a_tracker(self, tracker: Tracker) -> None:
        assert isinstance(tracker, Tracker)

    def test_no_hook_is_misspelt(self, tracker: Tracker) -> None:
        hooks = [name for name in vars(Tracker) if not name.startswith("_")]
        for name, member in vars(type(tracker)).items():
            if callable(member) and not name.startswith("_") and name not in hooks:
                hook = nearest(name, hooks, cutoff=RESEMBLANCE)
                assert hook is None, f"no run calls {name!r}; the hook of trackers is {hook!r}"

    @pytest.mark.parametrize("status", STATUSES)
    def test_a_whole_run_can_be_tracked(
        self, tracker: Tracker, directory: Path, status: RunStatus
    ) -> None:
        run_once(tracker, directory, status)

    @pytest.mark.parametrize("status", STATUSES)
    def test_a_run_may_end_before_anything_happens(
        self, tracker: Tracker, directory: Path, status: RunStatus
    ) -> None:
        tracker.start(directory, {})
        tracker.finish(status)

    @pytest.mark.parametrize("metrics", METRICS, ids=lambda metrics: "+".join(metrics) or "none")
    def test_every_kind_of_number_is_taken(
        self, tracker: Tracker, directory: Path, metrics: dict[str, float | Histogram]
    ) -> None:
        with tracked(tracker, directory):
            tracker.log(0, metrics)
            tracker.log(10**12, metrics)

    def test_metrics_may_come_and_go(self, tracker: Tracker, directory: Path) -> None:
        with tracked(tracker, directory):
            for step in (0, 0, 5, 3):
                tracker.log(step, {f"only/{step}": 1.0, "always": float(step)})

    def test_progress_comes_in_any_unit(self, tracker: Tracker, directory: Path) -> None:
        with tracked(tracker, directory):
            for task, done, total in (
                ("nothing to do", 0, 0),
                ("never finished", 1, 3),
                ("one of two", 0.25, 0.5),
                ("other of two", 10**9, 2 * 10**9),
                ("one of two", 0.5, 0.5),
                ("a total that grows", 5, 10),
                ("a total that grows", 10, 20),
                ("one of two", 0.0, 0.5),
                ("[with] markup", 1, 1),
            ):
                tracker.progress(task, done, total)

    def test_files_go_into_the_run_directory_only(self, tracker: Tracker, directory: Path) -> None:
        before = tree(directory.parent)
        run_once(tracker, directory, "finished")
        changed = {
            path
            for path, content in tree(directory.parent).items()
            if before.get(path) != content and directory not in path.parents
        }
        assert not changed, f"written outside the run directory: {sorted(map(str, changed))}"

    def test_files_of_others_stay_as_they_are(self, tracker: Tracker, directory: Path) -> None:
        before = tree(directory)
        run_once(tracker, directory, "finished")
        after = tree(directory)
        assert {path: after.get(path) for path in before} == before

    def test_a_run_can_go_on_in_its_directory(self, tracker: Tracker, directory: Path) -> None:
        run_once(tracker, directory, "interrupted")
        before = tree(directory)
        run_once(tracker, directory, "finished")
        lost = [
            str(path) for path in before if len(tree(directory).get(path, b"")) < len(before[path])
        ]
        assert not lost, f"the second part of the run shortened {lost}"

    def test_what_it_is_given_stays_as_it_is(self, tracker: Tracker, directory: Path) -> None:
        config, metrics = copy.deepcopy(CONFIG), dict(METRICS[5])
        tracker.start(directory, config)
        tracker.log(0, metrics)
        tracker.finish("finished")
        assert config == CONFIG
        assert metrics == METRICS[5]

    def test_later_changes_to_what_it_was_given_are_harmless(
        self, tracker: Tracker, directory: Path
    ) -> None:
        config, metrics = copy.deepcopy(CONFIG), {"value": 1.0}
        tracker.start(directory, config)
        config.clear()
        for step in range(3):
            tracker.log(step, metrics)
            metrics.clear()
            metrics["value"] = float(step)
        tracker.finish("finished")

    def test_global_randomness_is_left_alone(self, tracker: Tracker, directory: Path) -> None:
        with global_randomness_untouched():
            run_once(tracker, directory, "finished")

    def test_standard_output_is_left_to_the_result(
        self, tracker: Tracker, directory: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run_once(tracker, directory, "finished")
        assert capfd.readouterr().out == "", "write to standard error; results may be piped"

    def test_the_environment_is_left_alone(self, tracker: Tracker, directory: Path) -> None:
        before = Path.cwd(), dict(os.environ)
        run_once(tracker, directory, "finished")
        assert (Path.cwd(), dict(os.environ)) == before

    def test_nothing_is_left_running(self, tracker: Tracker, directory: Path) -> None:
        before = set(threading.enumerate())
        run_once(tracker, directory, "finished")
        left = []
        for thread in set(threading.enumerate()) - before:
            thread.join(GRACE_S)
            if thread.is_alive():
                left.append(thread.name)
        assert not left, f"threads still running after finish: {left}"

    def test_no_file_is_left_open(self, tracker: Tracker, directory: Path) -> None:
        descriptors = Path("/proc/self/fd")
        if not descriptors.exists():
            pytest.skip("this system does not list open files")
        run_once(tracker, directory, "finished")
        left = [
            target
            for target in (os.path.realpath(entry) for entry in descriptors.iterdir())
            if target.startswith(str(directory.resolve()))
        ]
        assert not left, f"still open after finish: {left}"

    def test_words_come_at_any_time_and_in_any_form(
        self, tracker: Tracker, directory: Path
    ) -> None:
        with tracked(tracker, directory):
            for text in (
                "before there is a task",
                "",
                "[with] markup",
                "two\nlines",
                "ü µ ∎",
                "x" * 999,
            ):
                tracker.status("task", text)
                tracker.progress("task", 1, 2)
            tracker.status("a task that never comes", "anyway")
            tracker.progress("task", 2, 2)
            tracker.status("task", "after its end")


def follower(tracker: Tracker) -> Tracker:
    """The tracker; where it has no statistics of episodes there is nothing to check."""
    if type(tracker).episode_statistics is Tracker.episode_statistics:
        pytest.skip("it has no statistics of episodes")
    return tracker


@contextmanager
def tracked(tracker: Tracker, directory: Path) -> Iterator[None]:
    """A run that starts, and finishes where nothing failed."""
    tracker.start(directory, CONFIG)
    yield
    tracker.finish("finished")


@contextmanager
def started(tracker: Tracker, directory: Path) -> Iterator[None]:
    """Such a run, with episodes in ``ENVS`` environments."""
    with tracked(follower(tracker), directory):
        tracker.start_episodes(ENVS, REASONS)
        yield


def steps_of(*, seed: int, num_envs: int, steps: int) -> list[list[torch.Tensor]]:
    """Random rewards, dones, reasons and active environments."""
    generator = torch.Generator().manual_seed(seed)

    def flags(share: float) -> torch.Tensor:
        return torch.rand(num_envs, generator=generator) < share

    return [
        [
            torch.randn(num_envs, generator=generator),
            flags(0.3),
            torch.randint(-1, 3, (num_envs,), generator=generator),
            flags(0.8),
        ]
        for _ in range(steps)
    ]


def live(tracker: Tracker, *, seed: int, num_envs: int = ENVS, steps: int = 20) -> None:
    """Have environments take random steps."""
    for rewards, dones, reasons, active in steps_of(seed=seed, num_envs=num_envs, steps=steps):
        tracker.step_episodes(rewards, dones, reasons, active)


def numbers(tracker: Tracker) -> str:
    """Statistics in a form in which NaN equals NaN."""
    return repr(tracker.episode_statistics())


def snapshot(tracker: Tracker) -> str:
    """Everything that it knows, likewise."""
    data, tensors = flatten(tracker.state_dict())
    values = {name: tensor.tolist() for name, tensor in tensors.items()}
    return f"{numbers(tracker)} {data} {values}"


def run_once(tracker: Tracker, directory: Path, status: RunStatus) -> None:
    """Everything a run may tell a tracker."""
    tracker.start(directory, CONFIG)
    for step, metrics in enumerate(METRICS):
        tracker.progress("steps", step, len(METRICS))
        tracker.log(step, metrics)
    tracker.progress("steps", len(METRICS), len(METRICS))
    tracker.status("steps", "as fast as ever")
    tracker.truncate(len(METRICS))
    tracker.start_episodes(ENVS, REASONS)
    live(tracker, seed=0)
    tracker.log(len(METRICS), tracker.episode_statistics())
    tracker.finish(status)


def tree(directory: Path) -> dict[Path, bytes]:
    """The content of every file below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
