"""Whatever happens to the process, the disk or the files: a good checkpoint is found again."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pytest
import torch

from empo_core.errors import StorageError
from empo_core.runs.atomic import DISK, Disk
from empo_learning.checkpoint import Checkpoints


class Crash(BaseException):
    """The process is gone; no handler may run."""


@dataclass
class Change:
    """A change of a directory that was not forced to the disk yet."""

    kind: Literal["made", "written", "renamed", "removed"]
    path: Path
    before: Path | None = None

    def take_back(self) -> None:
        if self.kind == "made":
            shutil.rmtree(self.path)
        elif self.kind == "written":
            self.path.unlink()
        elif self.kind == "renamed":
            self.path.rename(self.before or self.path)
        elif self.before is not None:
            self.before.rename(self.path)


class FaultyDisk(Disk):
    """Fails at one operation, and knows what a power cut could take back by then.

    What was not forced to the disk may be there in part: a prefix of a file's bytes, and of the
    changes of directories, in the order in which they were made.
    """

    def __init__(self, trash: Path, fail_at: int = 0, error: BaseException | None = None) -> None:
        self.count, self.fail_at, self.error = 0, fail_at, error
        self._trash = trash
        self._unsynced: set[int] = set()  # By inode: names change.
        self._changes: list[Change] = []

    def mkdir(self, path: Path) -> None:
        self._tick()
        super().mkdir(path)
        self._changes.append(Change("made", path))

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        inode = os.fstat(file.fileno()).st_ino
        if inode not in self._unsynced:
            self._unsynced.add(inode)
            self._changes.append(Change("written", Path(file.name)))
        try:
            self._tick()
        except BaseException:
            super().write(file, bytes(data)[: len(bytes(data)) // 2])
            raise
        super().write(file, data)

    def sync(self, path: Path) -> None:
        self._tick()
        super().sync(path)
        self._unsynced.discard(path.stat().st_ino)
        for change in [change for change in self._changes if change.path.parent == path]:
            earlier = self._changes[: self._changes.index(change)]
            self._changes.remove(change)
            for each in earlier if change.kind == "renamed" else []:
                if change.before in each.path.parents:  # It has another name for good.
                    each.path = change.path / each.path.relative_to(change.before or "")

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        super().rename(old, new)
        self._changes.append(Change("renamed", new, old))

    def remove(self, path: Path) -> None:
        try:
            self._tick()
        except BaseException:
            for file in sorted(path.iterdir())[::2]:
                file.unlink()
            raise
        kept = self._trash / str(self.count)
        path.rename(kept)
        self._changes.append(Change("removed", path, kept))

    def cut_power(self, root: Path, rng: random.Random) -> None:
        keep = rng.randrange(len(self._changes) + 1)
        for change in reversed(self._changes[keep:]):
            with suppress(FileNotFoundError):  # Its directory is gone with an earlier change.
                change.take_back()
        for path in root.rglob("*"):
            if path.is_file() and path.stat().st_ino in self._unsynced:
                os.truncate(path, rng.randrange(path.stat().st_size + 1))

    def _tick(self) -> None:
        self.count += 1
        if self.count == self.fail_at and self.error is not None:
            raise self.error


def state(number: int) -> dict[str, Any]:
    """The state of a small learner."""
    generator = torch.Generator().manual_seed(number)
    return {
        "number": number,
        "network": {"weight": torch.randn(5, 3, generator=generator)},
        "table": {"keys": torch.arange(40 + number), "flags": torch.tensor([True, False])},
        "generator": generator.get_state(),
    }


def is_state(saved: dict[str, Any], number: int) -> bool:
    right = state(number)
    return (
        saved["number"] == number
        and torch.equal(saved["network"]["weight"], right["network"]["weight"])
        and torch.equal(saved["table"]["keys"], right["table"]["keys"])
        and torch.equal(saved["table"]["flags"], right["table"]["flags"])
        and torch.equal(saved["generator"], right["generator"])
    )


@contextmanager
def on(disk: Disk) -> Iterator[None]:
    """Have the operations of another disk take the place of the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "write", "sync", "rename", "remove"):
            patch.setattr(DISK, name, getattr(disk, name))
        yield


@dataclass(frozen=True)
class Scenario:
    """Checkpoints on the disk (step, number of the state, score), and the one saved next."""

    before: tuple[tuple[int, int, float | None], ...]
    step: int
    number: int

    def prepare(self, directory: Path) -> None:
        for step, number, score in self.before:
            Checkpoints(directory).save(step, state(number), score=score)

    def save(self, directory: Path) -> None:
        Checkpoints(directory).save(self.step, state(self.number))

    def check(self, directory: Path, *, saved: bool | None = None) -> bool:
        """True if the new checkpoint is the newest; fails where neither it nor the old one is."""
        found = Checkpoints(directory).newest()
        if found is None:
            assert not self.before
            new = False
        else:
            step, tree = found
            new = step == self.step and is_state(tree, self.number)
            assert new or (self.before and step == self.before[-1][0])
            assert new or is_state(tree, self.before[-1][1])
        assert saved is None or new == saved
        for step in Checkpoints(directory).steps():
            Checkpoints(directory).load(step)  # No half of any is left under its name.
        if any(score is not None for *_, score in self.before):
            best = Checkpoints(directory).best()
            assert best is not None
            assert is_state(best[1], 10)
        return new


SCENARIOS = {
    "first save": Scenario(before=(), step=1, number=1),
    "overwrite": Scenario(before=((1, 1, None), (2, 2, None)), step=2, number=3),
    "rotate": Scenario(before=((0, 10, 1.0), (1, 1, 0.5), (2, 2, None)), step=3, number=3),
}


@pytest.fixture
def places(tmp_path: Path) -> Callable[[], tuple[Path, Path]]:
    """Makes a run directory and a place for what is removed, afresh each time."""
    made = iter(range(10**6))

    def fresh() -> tuple[Path, Path]:
        home = tmp_path / str(next(made))
        for name in ("run", "trash"):
            (home / name).mkdir(parents=True)
        return home / "run" / "checkpoints", home / "trash"

    return fresh


def operations(scenario: Scenario, places: Callable[[], tuple[Path, Path]]) -> int:
    directory, trash = places()
    scenario.prepare(directory)
    disk = FaultyDisk(trash)
    with on(disk):
        scenario.save(directory)
    assert scenario.check(directory, saved=True)
    return disk.count


def goes_on(scenario: Scenario, directory: Path) -> None:
    """Save after a crash; assert that this succeeds and removes leftover temporary files."""
    scenario.save(directory)
    scenario.check(directory, saved=True)
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def crash_everywhere(
    scenario: Scenario, places: Callable[[], tuple[Path, Path]], images: int
) -> list[bool]:
    """Crash at every operation; ``images`` power cuts each, or a mere kill where that is 0."""
    total = operations(scenario, places)
    assert total > 10
    news = []
    for fail_at in range(1, total + 2):
        for image in range(max(images, 1)):
            directory, trash = places()
            scenario.prepare(directory)
            disk = FaultyDisk(trash, fail_at, Crash())
            returned = False
            try:
                with on(disk):
                    scenario.save(directory)
                returned = True
            except Crash:
                pass
            if images:
                disk.cut_power(directory.parent, random.Random(1000 * fail_at + image))
            news.append(scenario.check(directory, saved=True if returned else None))
            goes_on(scenario, directory)
    return news


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_kill_at_any_point_leaves_the_last_checkpoint_or_the_new_one(
    scenario: Scenario, places: Callable[[], tuple[Path, Path]]
) -> None:
    news = crash_everywhere(scenario, places, images=0)
    assert news == sorted(news), "never back from the new to the old"
    assert len(set(news)) == 2


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_power_cut_at_any_point_does_too(
    scenario: Scenario, places: Callable[[], tuple[Path, Path]]
) -> None:
    assert len(set(crash_everywhere(scenario, places, images=2))) == 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_five_thousand_power_cuts(
    scenario: Scenario, places: Callable[[], tuple[Path, Path]]
) -> None:
    images = 1 + 5000 // (len(SCENARIOS) * operations(scenario, places))
    assert len(set(crash_everywhere(scenario, places, images=images))) == 2


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.parametrize(
    "code",
    [
        errno.ENOSPC,
        *(
            pytest.param(code, marks=pytest.mark.slow)
            for code in (errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)
        ),
    ],
)
def test_a_disk_that_refuses_is_named_and_nothing_is_lost(
    scenario: Scenario, code: int, places: Callable[[], tuple[Path, Path]]
) -> None:
    for fail_at in range(1, operations(scenario, places) + 1):
        directory, trash = places()
        scenario.prepare(directory)
        home = directory.parent.parent
        error = OSError(code, os.strerror(code))
        message = rf"{directory}/step-\d: cannot be (written|removed): .*\(errno {code}\)"
        with pytest.raises(StorageError, match=message), on(FaultyDisk(trash, fail_at, error)):
            scenario.save(directory)
        scenario.check(directory)
        assert {path.name for path in home.iterdir()} == {"run", "trash"}, "no other folder"
        assert {path.name for path in (home / "run").iterdir()} <= {"checkpoints"}
        goes_on(scenario, directory)


def damage_at_random(directory: Path, trials: int, caplog: pytest.LogCaptureFixture) -> int:
    """Flip bits or cut files of the newest checkpoint; returns how often it was refused."""
    checkpoints = Checkpoints(directory)
    checkpoints.save(1, state(1))
    files = sorted(checkpoints.save(2, state(2), score=0.5).iterdir())
    rng, refused = random.Random(0), 0
    for _ in range(trials):
        file = rng.choice(files)
        good = file.read_bytes()
        place = rng.randrange(len(good))
        if rng.random() < 0.2:
            file.write_bytes(good[:place])
        else:
            damaged = bytearray(good)
            damaged[place] ^= 1 << rng.randrange(8)
            file.write_bytes(damaged)
        caplog.clear()
        step, found = checkpoints.newest() or (0, {})
        assert is_state(found, step)
        if step == 1:
            refused += 1
            (record,) = caplog.records
            assert record.levelno == logging.WARNING
            assert str(file) in record.getMessage()
        else:  # Only the spaces between the words of the manifest mean nothing.
            assert (step, file.name) == (2, "manifest.json")
        file.write_bytes(good)
    return refused


def test_damage_is_noticed_and_the_previous_checkpoint_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert damage_at_random(tmp_path, 200, caplog) > 150


@pytest.mark.slow
def test_two_thousand_damages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert damage_at_random(tmp_path, 2000, caplog) > 1500


WRITER = """
import sys
from pathlib import Path
import torch
from empo_learning.checkpoint import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]))
step = int(sys.argv[2])
while True:
    step += 1
    checkpoints.save(step, {"step": step, "data": torch.full((300_000,), step)})
    print(step, flush=True)
"""


def test_killing_the_process_loses_no_checkpoint_that_was_saved(tmp_path: Path) -> None:
    rng, step = random.Random(4), 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(step)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            for _ in range(rng.randrange(1, 12)):
                saved = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = [line for line in process.stdout.read().splitlines(keepends=True) if line]
        process.wait()
        saved = max([saved, *(int(line) for line in rest if line.endswith("\n"))])
        step, found = Checkpoints(tmp_path).newest() or (0, {})
        assert step in (saved, saved + 1)
        assert found["step"] == step
        assert torch.equal(found["data"], torch.full((300_000,), step))
