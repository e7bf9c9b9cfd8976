"""The status of a run: how it goes, and which process it has or had."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from empo_core.errors import StorageError
from empo_core.interrupts import process_exists
from empo_core.runs.atomic import read_json, validated

STATUS = "status.json"
Status = Literal["running", "finished", "failed", "interrupted"]

log = logging.getLogger("empo_core")


class StatusRecord(BaseModel):
    """Contents of ``status.json``.

    Attributes:
        status: How the run goes; None where the file is missing or damaged.
        task: Its world and its task, of those that there are.
        launch: The name of the launch by ``torchrun`` that began it.
        pid: Its process.
        host: The machine of that process.
        started: When it began first.
        updated: When this was written.
        seconds: How long it had run by then, without interruptions.
        error: Why it failed.
    """

    model_config = ConfigDict(frozen=True)

    status: Status | None = None
    task: str = ""
    launch: str | None = None
    pid: int | None = None
    host: str | None = None
    started: AwareDatetime | None = None
    updated: AwareDatetime | None = None
    seconds: float | None = None
    error: str | None = None

    @property
    def is_local(self) -> bool:
        """True if the process is one of this machine."""
        return self.host == socket.gethostname()

    @property
    def has_ended_silently(self) -> bool:
        """True if the run is said to go on in a process of this machine that does not exist."""
        return self.status == "running" and self.is_local and not process_exists(self.pid)

    @property
    def silent_end(self) -> str:
        """The message about a run that has ended silently."""
        return (
            "the last run ended without a word (as after os._exit, a crash or kill -9): "
            f"process {self.pid} is gone"
        )


def read_status(directory: Path) -> StatusRecord:
    """The status of the run in a directory.

    Raises:
        StorageError: if ``status.json`` is missing or damaged.
    """
    path = directory / STATUS
    record = validated(path, StatusRecord, read_json(path))
    if record.status is None:
        raise StorageError(f"{path}: has no status")
    return record


def status_of(directory: Path) -> StatusRecord:
    """As ``read_status``, but empty where ``status.json`` is missing, or with a warning damaged.

    It has few words, which can be written anew, and says nothing about whether checkpoints and
    results are whole.
    """
    try:
        return read_status(directory) if (directory / STATUS).exists() else StatusRecord()
    except StorageError as error:
        log.warning("%s; goes on without it", error)
        return StatusRecord()
