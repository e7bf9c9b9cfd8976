"""The tracker kit passes a right tracker and fails each one broken on purpose."""

import copy
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.protocols import Tracker
from empo_core.types import Histogram
from empo_testing.tracker import TrackerTests

Runner = Callable[..., set[str]]
NEVER = threading.Event()
KEPT_OPEN: list[int] = []


class Right(Tracker):
    """Notes what it is told in a file."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.config = config
        self.path = directory / "notes.txt"
        self.written: list[str] = []
        self.note("started")

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.written += metrics
        self.note(f"{step}: {', '.join(metrics)}")

    def progress(self, task: str, done: float, total: float) -> None:
        self.note(f"{task} {done}/{total}")

    def finish(self, status: str) -> None:
        self.note(status)

    def note(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


class Following(Right):
    """Follows episodes in plain Python, and shows words."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        self.said: dict[str, str] = {}

    def status(self, task: str, text: str) -> None:
        self.said[task] = text
        self.note(f"{task}: {text}")

    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        self.reasons = reasons
        self.state: dict[str, Any] = {
            "rewards": torch.zeros(num_envs, dtype=torch.float64), "sum": 0.0, "count": 0,
            "why": [0] * len(reasons),
        }  # fmt: skip

    def step_episodes(
        self, rewards: Tensor, dones: Tensor, reasons: Tensor | None = None,
        active: Tensor | None = None,
    ) -> None:  # fmt: skip
        for env in range(len(rewards)):
            if active is not None and not active[env]:
                continue
            self.state["rewards"][env] += rewards[env]
            if dones[env]:
                self.complete(env, -1 if reasons is None else int(reasons[env]))

    def complete(self, env: int, reason: int) -> None:
        self.state["sum"] += float(self.state["rewards"][env])
        self.state["count"] += 1
        self.state["rewards"][env] = 0
        if 0 <= reason < len(self.reasons):
            self.state["why"][reason] += 1

    def episode_statistics(self) -> dict[str, float | Histogram]:
        if not hasattr(self, "state"):
            return {}
        edges = [float(edge) for edge in range(len(self.reasons) + 1)]
        return {
            "mean": self.state["sum"] / max(self.state["count"], 1),
            "count": self.state["count"],
            "why": Histogram(edges=edges, counts=list(self.state["why"])),
        }

    def state_dict(self) -> dict[str, Any]:
        return copy.deepcopy(self.state) if hasattr(self, "state") else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.state = copy.deepcopy(dict(state_dict))


class TalksOnlyOfWhatItKnows(Following):
    def progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done, total)
        self.said.setdefault(task, "")

    def status(self, task: str, text: str) -> None:
        self.said[task]
        super().status(task, text)


class KnowsBeforeItFollows(Following):
    def episode_statistics(self) -> dict[str, float | Histogram]:
        return super().episode_statistics() or {"count": 0}


class FindsTensors(Following):
    def episode_statistics(self) -> dict[str, float | Histogram]:
        found = super().episode_statistics()
        if "count" in found:
            found["count"] = torch.tensor(found["count"])  # type: ignore[assignment, arg-type]
        return found


class ForgetsWhenAsked(Following):
    def episode_statistics(self) -> dict[str, float | Histogram]:
        found = super().episode_statistics()
        if found:
            self.state["count"] = 0
        return found


class SeesNoEpisode(Following):
    def complete(self, env: int, reason: int) -> None:
        """Nothing."""


class KeepsOldEpisodes(Following):
    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        before = getattr(self, "state", {"sum": 0.0, "count": 0})
        super().start_episodes(num_envs, reasons)
        self.state |= {name: before[name] for name in ("sum", "count")}


class NeedsAnEnvironment(Following):
    def step_episodes(self, rewards: Tensor, *others: Tensor | None) -> None:
        rewards.max()
        super().step_episodes(rewards, *others)  # type: ignore[arg-type]


class StepsThemAll(Following):
    def step_episodes(self, rewards: Tensor, *others: Tensor | None) -> None:
        super().step_episodes(rewards, *others[:2])  # type: ignore[arg-type]


class KnowsEveryReason(Following):
    def complete(self, env: int, reason: int) -> None:
        super().complete(env, reason)
        if reason < 0:
            raise LookupError(reason)


class ZeroesRewards(Following):
    def step_episodes(self, rewards: Tensor, dones: Tensor, *others: Tensor | None) -> None:
        super().step_episodes(rewards, dones, *others)
        rewards[dones] = 0


class KeepsTheirTensor(Following):
    def step_episodes(self, rewards: Tensor, *others: Tensor | None) -> None:
        super().step_episodes(rewards, *others)  # type: ignore[arg-type]
        self.state["newest"] = rewards


class SavesHalf(Following):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        rewards = torch.zeros_like(state_dict["rewards"])
        super().load_state_dict({**state_dict, "rewards": rewards})


class IsNoTracker:
    """Has every hook, but not the base class."""

    start, log, progress, finish = Right.start, Right.log, Right.progress, Right.finish
    status, truncate, note = Tracker.status, Tracker.truncate, Right.note


class Misspells(Right):
    def on_progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done, total)


class KnowsTwoEndings(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        {"finished": 0, "failed": 1}[status]


class NeedsALog(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        self.written[-1]


class NeedsFiniteNumbers(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        numbers = {k: v for k, v in metrics.items() if not isinstance(v, Histogram)}
        json.dumps({name: float(value) for name, value in numbers.items()}, allow_nan=False)
        super().log(step, metrics)


class NeedsNumbers(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        for value in metrics.values():
            float(value)  # type: ignore[arg-type]
        super().log(step, metrics)


class FixesItsColumns(Right):
    columns: tuple[str, ...] = ()

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.columns = self.columns or tuple(metrics)
        if tuple(metrics) != self.columns:
            raise KeyError(f"expected {self.columns}")
        super().log(step, metrics)


class DividesByTheTotal(Right):
    def progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done / total, 1)


class WritesWhereItStands(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        Path("notes.txt").write_text("", encoding="utf-8")


class TidiesUp(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        for path in directory.iterdir():
            path.unlink()
        super().start(directory, config)


class StartsOver(Right):
    """Its second part is shorter than its first, and replaces it."""

    parts = 0

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.parts += 1
        (directory / "notes.txt").write_text("", encoding="utf-8")
        super().start(directory, config)

    def progress(self, task: str, done: float, total: float) -> None:
        if self.parts == 1:
            super().progress(task, done, total)


class PopsItsSettings(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        config.pop("seed", None)  # type: ignore[attr-defined]


class LooksBackAtTheConfig(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        self.config["seed"]


class Samples(Right):
    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        torch.rand(1)


class Prints(Right):
    def progress(self, task: str, done: float, total: float) -> None:
        super().progress(task, done, total)
        print(task)


class ChangesDirectory(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        os.chdir(directory)


class LeavesAThread(Right):
    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        super().start(directory, config)
        threading.Thread(target=NEVER.wait, daemon=True).start()


class LeavesAFileOpen(Right):
    def finish(self, status: str) -> None:
        super().finish(status)
        KEPT_OPEN.append(os.open(self.path, os.O_RDONLY))


KNOWN = "test_nothing_is_known_of_episodes"
FLAWS: list[tuple[type, list[str]]] = [
    (IsNoTracker, ["test_it_is_a_tracker"]),
    (Misspells, ["test_no_hook_is_misspelt"]),
    (KnowsTwoEndings, ["test_a_whole_run_can_be_tracked"]),
    (NeedsALog, ["test_a_run_may_end_before_anything_happens"]),
    (NeedsFiniteNumbers, ["test_every_kind_of_number_is_taken"]),
    (NeedsNumbers, ["test_every_kind_of_number_is_taken"]),
    (FixesItsColumns, ["test_metrics_may_come_and_go"]),
    (DividesByTheTotal, ["test_progress_comes_in_any_unit"]),
    (WritesWhereItStands, ["test_files_go_into_the_run_directory_only"]),
    (TidiesUp, ["test_files_of_others_stay_as_they_are"]),
    (StartsOver, ["test_a_run_can_go_on_in_its_directory"]),
    (PopsItsSettings, ["test_what_it_is_given_stays_as_it_is"]),
    (LooksBackAtTheConfig, ["test_later_changes_to_what_it_was_given_are_harmless"]),
    (Samples, ["test_global_randomness_is_left_alone"]),
    (Prints, ["test_standard_output_is_left_to_the_result"]),
    (ChangesDirectory, ["test_the_environment_is_left_alone"]),
    (LeavesAThread, ["test_nothing_is_left_running"]),
    (LeavesAFileOpen, ["test_no_file_is_left_open"]),
    (TalksOnlyOfWhatItKnows, ["test_words_come_at_any_time_and_in_any_form"]),
    (KnowsBeforeItFollows, [f"{KNOWN}_before_there_are_environments"]),
    (FindsTensors, ["test_episodes_lead_to_numbers_that_every_tracker_takes"]),
    (ForgetsWhenAsked, ["test_episodes_lead_to_numbers_that_every_tracker_takes"]),
    (SeesNoEpisode, ["test_episodes_lead_to_numbers_that_every_tracker_takes"]),
    (KeepsOldEpisodes, ["test_episodes_of_any_number_of_environments_can_be_followed"]),
    (NeedsAnEnvironment, ["test_episodes_of_any_number_of_environments_can_be_followed"]),
    (StepsThemAll, ["test_environments_that_take_no_step_change_nothing"]),
    (KnowsEveryReason, ["test_unknown_reasons_are_no_reason_to_fail"]),
    (ZeroesRewards, ["test_what_it_is_told_of_episodes_stays_as_it_is"]),
    (KeepsTheirTensor, ["test_what_it_is_told_of_episodes_stays_as_it_is"]),
    (SavesHalf, ["test_episodes_go_on_exactly_from_a_checkpoint"]),
]


def subclass(make: type) -> type:
    class TestIt(TrackerTests):
        @pytest.fixture
        def tracker(self) -> Tracker:
            return make()  # type: ignore[no-any-return]

    return TestIt


@pytest.mark.parametrize("make", [Right, Following])
def test_a_right_tracker_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_tracker_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    try:
        assert kit_failures(subclass(make), only=caught_by) == set(caught_by)
    finally:
        NEVER.set()
        NEVER.clear()
        while KEPT_OPEN:
            os.close(KEPT_OPEN.pop())


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in dir(TrackerTests) if name.startswith("test_")}
