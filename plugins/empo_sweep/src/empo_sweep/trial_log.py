"""State of a sweep: the events in ``trials.jsonl``, and the trials' states."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue, ValidationError

from empo_core.errors import StorageError
from empo_core.runs.atomic import StrictModel
from empo_sweep.arms import Trial
from empo_sweep.event_log import EventLog

TRIALS = "trials.jsonl"
Kind = Literal["planned", "started", "reported", "interrupted", "done", "failed", "pruned"]
ENDS = ("done", "failed", "pruned")
"""The events that end a trial."""
_BEFORE: dict[Kind, tuple[Kind, ...]] = {
    "started": ("planned", "started", "interrupted", "failed", "reported"),
    "reported": ("started", "reported"),
    "interrupted": ("started", "reported"),
    "done": ("started", "reported"),
    "failed": ("planned", "started", "reported"),
    "pruned": ("started", "reported"),
}
"""The events after which another may come."""


class TrialEvent(StrictModel):
    """A line of the file.

    Attributes:
        event: The event.
        trial, arm, seed, digest, run: The trial, see ``Trial``.
        time: When it was written.
        value: The objective of a trial that is done, None where it has none; or what was reported.
        step: Of a report.
        threads: Threads of torch in a trial that is started.
        reason: Why a trial failed.
    """

    event: Kind
    trial: int = Field(ge=0)
    arm: dict[str, JsonValue]
    seed: int = Field(ge=0)
    digest: str
    run: str = Field(pattern=r"^trial-[\w.+-]+$")
    time: str
    value: float | None = None
    step: int | None = None
    threads: int | None = None
    reason: str | None = None


@dataclass
class TrialState:
    """A trial and its state after the events so far.

    Attributes:
        trial: The trial.
        status: The last event.
        value: The objective of a trial that is done.
        reason: Why it failed.
        reports: What was reported while it ran, by step.
    """

    trial: Trial
    status: Kind = "planned"
    value: float | None = None
    reason: str | None = None
    reports: dict[int, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True if the trial has ended, unless it is retried."""
        return self.status in ENDS


class TrialLog:
    """The trials of a sweep, and the file that records them.

    Attributes:
        states: The trials by number.
        history: All events in their order.
    """

    def __init__(self, folder: Path) -> None:
        """Read the file, if there is one.

        Raises:
            StorageError: if a line of the log is damaged; the message gives its number.
        """
        self._path = folder / TRIALS
        self.states: list[TrialState] = []
        self.history: list[TrialEvent] = []
        self._log = EventLog(self._path)
        try:
            for number, data in enumerate(self._log.events, 1):
                self._take(_event(f"{self._path}:{number}", data), f"{self._path}:{number}")
        except StorageError:
            self._log.close()
            raise

    def plan(self, trials: Sequence[Trial]) -> None:
        """Add trials, whose numbers go on from those before."""
        self._write([_of(trial, "planned") for trial in trials])

    def record(
        self,
        trial: Trial,
        event: Kind,
        *,
        value: float | None = None,
        step: int | None = None,
        threads: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Write an event of a trial; see ``TrialEvent``."""
        fields = {"value": value, "step": step, "threads": threads, "reason": reason}
        self._write([_of(trial, event).model_copy(update=fields)])

    def in_state(self, *status: Kind) -> list[TrialState]:
        """The trials whose last event is one of these."""
        return [state for state in self.states if state.status in status]

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _write(self, events: Sequence[TrialEvent]) -> None:
        if events:
            self._log.append([event.model_dump(exclude_none=True) for event in events])
        for event in events:
            self._take(event, str(self._path))

    def _take(self, event: TrialEvent, place: str) -> None:
        trial = Trial(event.trial, event.arm, event.seed, event.digest, event.run)
        if event.event == "planned":
            if event.trial != len(self.states):
                raise _damaged(place, f"trial {event.trial} where {len(self.states)} is due")
            self.states.append(TrialState(trial))
        else:
            state = self.states[event.trial] if event.trial < len(self.states) else None
            if state is None or state.trial != trial:
                raise _damaged(place, f"trial {event.trial} was not planned so")
            if state.status not in _BEFORE[event.event]:
                raise _damaged(place, f"trial {event.trial} is {event.event} after {state.status}")
            state.status, state.reason = event.event, event.reason
            if event.event == "reported":
                if event.step is None or event.value is None:
                    raise _damaged(place, "a report lacks its step or its value")
                state.reports[event.step] = event.value
            else:
                state.value = event.value
        self.history.append(event)


def _of(trial: Trial, event: Kind) -> TrialEvent:
    return TrialEvent(
        event=event,
        trial=trial.number,
        arm=dict(trial.arm),
        seed=trial.seed,
        digest=trial.digest,
        run=trial.run,
        time=datetime.datetime.now().astimezone().isoformat(timespec="milliseconds"),
    )


def _event(place: str, data: dict[str, JsonValue]) -> TrialEvent:
    try:
        return TrialEvent.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        raise _damaged(place, f"{location}: {first['msg']}") from error


def _damaged(place: str, reason: str) -> StorageError:
    return StorageError(f"{place}: is damaged or not ours: {reason}")
