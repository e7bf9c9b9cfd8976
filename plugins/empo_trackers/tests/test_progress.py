import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest

from empo_core.protocols import Tracker
from empo_testing.tracker import TrackerTests
from empo_trackers.plugin import ProgressParams
from empo_trackers.progress import ProgressTracker


@pytest.mark.parametrize("style", ["bar", "lines"])
class TestProgressTracker(TrackerTests):
    @pytest.fixture
    def tracker(self, style: Literal["bar", "lines"]) -> Tracker:
        return ProgressTracker(ProgressParams(style=style))


class Clock:
    """A clock that a test sets by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tracker(clock: Clock, tmp_path: Path) -> ProgressTracker:
    tracker = ProgressTracker(ProgressParams(interval_s=5.0), clock)
    tracker.start(tmp_path, {})
    return tracker


def test_elsewhere_than_on_a_terminal_it_prints_plain_lines_to_standard_error(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("graph [states]", 0, 200)
    clock.now += 30
    tracker.progress("graph [states]", 50, 200)
    clock.now += 90
    tracker.progress("graph [states]", 200, 200)
    tracker.finish("finished")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "graph [states]: 0%, 0.0 s elapsed",
        "graph [states]: 25%, 30.0 s elapsed, 1:30 left",
        "graph [states]: 100%, 2:00 elapsed",
    ]


def test_the_time_left_of_a_resumed_task_counts_only_what_was_done_since(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("training", 900, 1000)
    clock.now += 30
    tracker.progress("training", 925, 1000)
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["training: 90%, 0.0 s elapsed", "training: 92%, 30.0 s elapsed, 1:30 left"]


def test_lines_are_as_rare_as_asked_but_the_last_one_always_comes(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    for done in range(101):
        tracker.progress("sweep", done, 100)
        clock.now += 0.125
    tracker.progress("sweep", 100, 100)
    tracker.finish("finished")
    shares = [line.split()[1] for line in capfd.readouterr().err.splitlines()]
    assert shares == ["0%,", "40%,", "80%,", "100%,"]


def test_a_task_that_starts_again_is_timed_anew(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        tracker.progress("sweep", 0, 1)
        clock.now += 3700
        tracker.progress("sweep", 1, 1)
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["sweep: 0%, 0.0 s elapsed", "sweep: 100%, 1:01:40 elapsed"] * 2


def test_tasks_within_a_task_do_not_count_for_its_time(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("training", 0, 4)
    for task in ("compiling", "collecting"):
        tracker.progress(task, 0, 1)
        clock.now += 20
    for task in ("collecting", "compiling"):
        tracker.progress(task, 1, 1)
    clock.now += 10
    tracker.progress("training", 1, 4)
    lines = capfd.readouterr().err.splitlines()
    assert lines[-3:] == [
        "collecting: 100%, 20.0 s elapsed",
        "compiling: 100%, 20.0 s elapsed",
        "training: 25%, 10.0 s elapsed, 30.0 s left",
    ]


def test_a_task_of_nothing_is_done_at_once(
    tracker: ProgressTracker, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("empty", 0, 0)
    assert capfd.readouterr().err == "empty: 100%, 0.0 s elapsed\n"


def test_what_is_said_about_a_task_ends_its_next_line(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.status("rollout", "too early to be shown")
    tracker.status("rollout", "80,000 steps/s [fast]")
    tracker.progress("rollout", 0, 4)
    tracker.progress("other", 0, 4)
    clock.now += 30
    tracker.status("rollout", "two\nlines")
    tracker.progress("rollout", 1, 4)
    tracker.finish("finished")
    assert capfd.readouterr().err.splitlines() == [
        "rollout: 0%, 0.0 s elapsed, 80,000 steps/s [fast]",
        "other: 0%, 0.0 s elapsed",
        "rollout: 25%, 30.0 s elapsed, 1:30 left, two lines",
    ]


def test_another_run_begins_with_nothing_said(
    tracker: ProgressTracker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.status("rollout", "of the run before")
    tracker.start(tmp_path, {})
    tracker.progress("rollout", 1, 1)
    assert capfd.readouterr().err == "rollout: 100%, 0.0 s elapsed\n"


def test_a_task_that_says_nothing_for_long_gets_lines_all_the_same(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("sweep", 1, 4)
    tracker.progress("other", 1, 1)
    for _ in range(3):
        clock.now += 6
        tracker.repeat()
        tracker.repeat()
    tracker.progress("sweep", 4, 4)
    tracker.repeat()
    tracker.finish("finished")
    times = [line.split(", ")[1] for line in capfd.readouterr().err.splitlines()]
    assert times == ["0.0 s elapsed", "0.0 s elapsed"] + [
        f"{seconds}.0 s elapsed" for seconds in (6, 12, 18, 18)
    ]


def test_the_time_left_is_that_of_the_newest_report(
    tracker: ProgressTracker, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker.progress("training", 0, 4)
    for _ in range(3):
        clock.now += 10
        tracker.progress("training", 1, 4) if clock.now == 110 else tracker.repeat()
    assert capfd.readouterr().err.splitlines()[1:] == [
        f"training: 25%, {seconds}.0 s elapsed, 30.0 s left" for seconds in (10, 20, 30)
    ]


def test_lines_come_from_beside_the_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = ProgressTracker(ProgressParams(style="lines", interval_s=0.05))
    tracker.start(tmp_path, {})
    tracker.progress("sweep", 0, 1)
    text = ""
    deadline = time.monotonic() + 20
    while text.count("sweep: 0%") < 3 and time.monotonic() < deadline:
        time.sleep(0.02)  # The work, which says nothing.
        text += capfd.readouterr().err
    tracker.finish("finished")
    assert text.count("sweep: 0%") >= 3


SCRIPT = """
import time
from pathlib import Path
from empo_trackers.plugin import ProgressParams
from empo_trackers.progress import ProgressTracker

tracker = ProgressTracker(ProgressParams())
tracker.start(Path("."), {})
for done in range(5):
    tracker.progress("graph", done, 4)
    tracker.status("graph", f"at [{done}] and {'much' * 20} more")
    time.sleep(0.15)  # Longer than the bars stand still.
print("the result")
tracker.finish("finished")
"""


def on_a_terminal(tmp_path: Path, **environment: str) -> tuple[str, str]:
    """The script's standard output, a pipe, and its standard error, a terminal."""
    leader, follower = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=follower,
        env=variables | {"TERM": "xterm-256color", "COLUMNS": "80"} | environment,
        cwd=tmp_path,
        check=True,
        text=True,
    )
    os.close(follower)
    screen = b""
    try:
        while chunk := os.read(leader, 65536):
            screen += chunk
    except OSError:  # Linux reports the end of a terminal as an input error.
        pass
    os.close(leader)
    return process.stdout, screen.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*\b3[0-9][0-9;]*m")
MOVES = "\x1b[2K"


def test_a_terminal_gets_moving_bars_with_the_time_left_and_colours(tmp_path: Path) -> None:
    output, screen = on_a_terminal(tmp_path)
    assert output == "the result\n"
    assert MOVES in screen
    assert COLOUR.search(screen)
    assert re.search(r"graph .*75%.*\d\.\d s left", screen)
    assert re.search(r"75%.*\s+.*graph: at \[3\] and much\w*…", screen)
    assert re.search(r"graph .*100%", screen)


@pytest.mark.slow
def test_moving_bars_leave_the_cursor_in_an_empty_line_until_they_end(tmp_path: Path) -> None:
    _, screen = on_a_terminal(tmp_path, COLUMNS="40")
    # Each time the bars are drawn anew, the first thing that is erased is the cursor's line.
    frames = screen.replace("\r\n", "\n").split("\r\x1b[2K\x1b[1A")[:-1]
    assert len(frames) > 3
    assert all(frame.endswith("\n") for frame in frames)
    assert not screen.endswith("\n\n")


@pytest.mark.slow
def test_no_color_keeps_the_bars_and_drops_the_colours(tmp_path: Path) -> None:
    _, screen = on_a_terminal(tmp_path, NO_COLOR="1")
    assert MOVES in screen
    assert not COLOUR.search(screen)


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    _, screen = on_a_terminal(tmp_path, TERM="dumb")
    assert "\x1b" not in screen
    assert screen.splitlines()[0] == "graph: 0%, 0.0 s elapsed"
    assert screen.splitlines()[-1].startswith("graph: 100%, ")


def test_the_style_can_be_chosen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = ProgressTracker(ProgressParams(style="bar"))
    tracker.start(tmp_path, {})
    tracker.progress("graph", 1, 1)
    tracker.finish("finished")
    assert "━" in capfd.readouterr().err
