"""Checkpoints of a run: directories that are complete or not there, and are checked when read.

``step-<n>`` holds ``tensors.safetensors``, ``state.json`` (everything else) and, written last,
``manifest.json`` with size and sha256 of both. There is no pickle in it. Equal runs have equal
bytes in all three; how long they took is in ``times.json``, which has a sha256 sum of its own.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from empo_core.errors import NonFiniteError, StorageError
from empo_core.runs.atomic import (
    DISK,
    MANIFEST,
    MAX_JSON,
    FileEntry,
    StrictModel,
    read_json,
    read_sealed,
    refused,
    sealed_json,
    write_synced,
)
from empo_core.runs.files import reason_of
from empo_learning.saved_state import SavedState, Source, traced
from empo_learning.state_tree import flatten, unflatten
from empo_learning.tensor_file import read_tensors, write_tensors
from empo_worlds.directories import check_file, found_directory, refuse_surplus, written_directory

log = logging.getLogger("empo_core")

FORMAT, VERSION = "empo-checkpoint", 1
STATE: Literal["state.json"] = "state.json"
TENSORS: Literal["tensors.safetensors"] = "tensors.safetensors"
TIMES = "times.json"
_NAME = re.compile(r"step-(0|[1-9][0-9]{0,17})")
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_HIDDEN = re.compile(rf"\.({_NAME.pattern})\.(new|old)")


class _Body(StrictModel):
    step: int = Field(ge=0)
    score: float | None
    files: dict[Literal["state.json", "tensors.safetensors"], FileEntry] = Field(min_length=2)


class TimerTimes(StrictModel):
    """What ``Timers`` have measured; see there."""

    seconds: Seconds
    totals: dict[str, Seconds]


class History(StrictModel):
    """The curve of a run, a row for each line of its log; see ``TrainingRow``."""

    rows: list[Annotated[tuple[int, Seconds, float | None, float | None], Field(strict=False)]]
    count: int = Field(ge=0)
    stride: int = Field(ge=0)


class Times(StrictModel):
    """How long a run took so far, which differs between checkpoints of equal runs.

    Attributes:
        seconds: Time of all calls of ``Learner.advance``.
        timers: Time by what was done.
        history: The curve of the run.
    """

    seconds: Seconds
    timers: TimerTimes
    history: History


class _Times(StrictModel):
    times: Times


class Checkpoints:
    """The checkpoints in one directory: the newest ones, and the one with the best score."""

    def __init__(self, directory: Path, *, keep: int = 2) -> None:
        """Look after a directory, which need not exist yet.

        Args:
            directory: Where the checkpoints lie.
            keep: How many of the newest stay, at least 1; the best one stays besides.
        """
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 checkpoint must be kept")
        self.directory = directory
        self._keep = keep
        self._refused: set[int] = set()

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        *,
        score: float | None = None,
        times: Mapping[str, Any] | None = None,
    ) -> Path:
        """Store a state; once this returns, a crash or power cut does not lose it.

        Later steps than this are dropped: the run that made them did not go on from there.

        Args:
            step: Where the run is, at least 0.
            state: A tree of dictionaries, lists and tuples with tensors (of any device; shared
                memory is stored once per use), numbers, strings, booleans and None.
            score: How good it is; higher is better.
            times: How long the run took so far: see ``Times``.

        Returns:
            The directory of the new checkpoint.

        Raises:
            StorageError: if the state cannot be stored, or the disk refuses; what was there stays.
            NonFiniteError: if the score is infinite or NaN.
        """
        path = self._path(step)
        if score is not None and not math.isfinite(score):
            raise NonFiniteError(f"the score of the checkpoint of step {step} is {score}")
        data, tensors = flatten(state)
        text = _json(path, data)
        self._clear_up(path)
        with written_directory(path) as new:
            files = {
                TENSORS: write_tensors(new / TENSORS, tensors),
                STATE: write_synced(new / STATE, text),
            }
            body = {
                "step": step,
                "score": None if score is None else float(score),
                "files": {name: entry.model_dump() for name, entry in files.items()},
            }
            if times is not None:
                sealed = sealed_json(path, f"{FORMAT}-times", VERSION, {"times": dict(times)})
                write_synced(new / TIMES, sealed)
            write_synced(new / MANIFEST, sealed_json(path, FORMAT, VERSION, body))
        self._refused.discard(step)
        self._rotate(step)
        return path

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, ascending, damaged ones included."""
        steps = set()
        for name in self._names():
            hidden = _HIDDEN.fullmatch(name)
            if hidden and hidden[3] == "old":  # A writer stopped between its two renames.
                name = hidden[1]
            if match := _NAME.fullmatch(name):
                steps.add(int(match[1]))
        return sorted(steps)

    def load(self, step: int) -> SavedState:
        """The state that was saved at a step, tensors on the CPU.

        Raises:
            StorageError: if there is none, or it is damaged; the message names the file.
        """
        if step not in (steps := self.steps()):
            there = ", ".join(map(str, steps)) or "none"
            raise StorageError(f"{self.directory}: has no checkpoint of step {step}; has {there}")
        directory = found_directory(self._path(step))
        files = self._manifest(step).files
        refuse_surplus(directory, {MANIFEST, STATE, TENSORS, TIMES})
        check_file(directory / STATE, files[STATE])
        data = read_json(directory / STATE)
        tensors = read_tensors(directory / TENSORS, files[TENSORS])
        try:
            state: SavedState = traced(unflatten(data, tensors), Source(directory / STATE))
            return state
        except StorageError as error:
            raise StorageError(f"{directory / STATE}: {error}") from error

    def times(self, step: int) -> dict[str, Any]:
        """The times that were saved at a step, see ``Times``; empty where none were.

        Raises:
            StorageError: if the times are damaged.
        """
        path = found_directory(self._path(step)) / TIMES
        if not path.exists():
            return {}
        return read_sealed(path, f"{FORMAT}-times", VERSION, _Times).times.model_dump()

    def newest(
        self, check: Callable[[SavedState], None] | None = None
    ) -> tuple[int, SavedState] | None:
        """The newest checkpoint that is whole, with its step; None where there is none at all.

        Args:
            check: Refuses a state by ``NonFiniteError``; then an older one is tried.

        Raises:
            StorageError: if all are damaged; the message names a file and a reason for each.
        """
        return self._first(reversed(self.steps()), check)

    def best(
        self, check: Callable[[SavedState], None] | None = None
    ) -> tuple[int, SavedState] | None:
        """The checkpoint with the highest score that is whole; None where none has a score.

        Args:
            check: As of ``newest``.

        Raises:
            StorageError: if all that have a score are damaged.
        """
        scores = self._scores()
        scored = [(score, step) for step, score in scores.items() if score is not None]
        return self._first((step for _, step in sorted(scored, reverse=True)), check)

    def _first(
        self, steps: Iterable[int], check: Callable[[SavedState], None] | None = None
    ) -> tuple[int, SavedState] | None:
        problems = []
        for step in steps:
            try:
                state = self.load(step)
                self.times(step)
                if check is not None:
                    check(state)
                return step, state
            except (StorageError, NonFiniteError) as error:
                problems.append(str(error))
                self._refused.add(step)
                log.warning("checkpoint of step %d refused, trying the one before: %s", step, error)
        if problems:
            raise StorageError("\n".join(["every checkpoint is damaged:", *problems]))
        return None

    def _path(self, step: int) -> Path:
        if not 0 <= step < 10**18:
            raise ValueError(f"step is {step}; it must be from 0 to 10**18 - 1")
        return self.directory / f"step-{int(step)}"

    def _names(self) -> list[str]:
        if not self.directory.exists():
            return []
        try:
            return sorted(path.name for path in self.directory.iterdir())
        except OSError as error:
            raise StorageError(f"{self.directory}: cannot be listed: {reason_of(error)}") from error

    def _manifest(self, step: int) -> _Body:
        directory = found_directory(self._path(step))
        path = directory / MANIFEST
        if directory.is_symlink():
            raise StorageError(f"{directory}: cannot be read: is a symbolic link")
        body = read_sealed(path, FORMAT, VERSION, _Body)
        if body.step != step:
            raise StorageError(f"{path}: is the manifest of step {body.step}")
        return body

    def _scores(self) -> dict[int, float | None]:
        """The score by step of each checkpoint whose manifest is whole."""
        scores = {}
        for step in self.steps():
            try:
                scores[step] = self._manifest(step).score
            except StorageError as error:
                if step not in self._refused:  # Saying so with every later checkpoint is noise.
                    log.warning("checkpoint of step %d refused: %s", step, error)
                self._refused.add(step)
        return scores

    def _clear_up(self, target: Path) -> None:
        """Remove what interrupted writers left, and what would be in the way of a new one."""
        try:
            for name in self._names():
                path = self.directory / name
                if hidden := _HIDDEN.fullmatch(name):
                    place = self.directory / hidden[1]
                    if hidden[3] == "old" and not place.exists():
                        DISK.rename(path, place)
                    else:
                        DISK.remove(path)
            if target.is_dir() and not target.is_symlink() and not (target / MANIFEST).is_file():
                self._discard(target)  # Damaged; ours by its name.
        except OSError as error:
            raise refused(target, error) from error

    def _rotate(self, newest: int) -> None:
        """Drop all but the newest and the best, once ``newest`` is safely there."""
        scores = self._scores()
        # One that turned out to be damaged must not push out one that is whole.
        whole = [step for step in sorted(scores) if step <= newest and step not in self._refused]
        scored = [(score, step) for step in whole if (score := scores[step]) is not None]
        retained = {*whole[-self._keep :], *(step for _, step in sorted(scored)[-1:])}
        later = [step for step in self.steps() if step > newest]
        for step in sorted({*whole, *later} - retained):
            path = self._path(step)
            try:
                self._discard(path)
            except OSError as error:
                raise StorageError(
                    f"{path}: cannot be removed: {reason_of(error)} (errno {error.errno}); "
                    f"the checkpoint of step {newest} is safe"
                ) from error

    def _discard(self, path: Path) -> None:
        """Remove a checkpoint so that a crash leaves no half of it under its name."""
        dying = path.with_name(f".{path.name}.new")
        DISK.rename(path, dying)
        DISK.sync(path.parent)
        DISK.remove(dying)


def _json(path: Path, data: Any) -> bytes:
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # Deep nesting, or an integer of many digits.
        raise StorageError(f"{path}: the state is not strict JSON: {error}") from error
    if len(text) > MAX_JSON:
        raise StorageError(
            f"{path}: the state is {len(text):,} bytes besides tensors, and {MAX_JSON:,} can be "
            "read back; put long lists into tensors"
        )
    return text
