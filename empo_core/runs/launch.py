"""Processes that ``torchrun`` starts, and may start again: their rank, and what they began."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from empo_core.runs.status import StatusRecord


def process_rank() -> int:
    """Which of the processes of ``torchrun`` this is; 0 where there is but one.

    All of them do the same run, and rank 0 alone keeps records of it. The others have no trackers,
    print no result, and get a temporary run directory, which is gone when they release it.
    """
    rank = os.environ.get("RANK", "")
    return int(rank) if "WORLD_SIZE" in os.environ and rank.isdecimal() else 0


def launch() -> str | None:
    """The name that ``torchrun --rdzv-id`` was given, the same when it starts processes again."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return None if name == "none" else name


def is_of_this_launch(status: StatusRecord) -> bool:
    """Whether processes of this very launch by ``torchrun`` began or went on with a run.

    Its name alone does not say: people use one name again. A run of this launch was marked after
    ``torchrun`` was started here; where that time is not known, ``torchrun`` says whether it has
    started these processes before.
    """
    if status.launch != launch() or status.status == "finished" or status.updated is None:
        return False
    since = _parent_started()
    if since is None:
        return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return status.updated.timestamp() >= math.floor(since)


def _parent_started() -> float | None:
    """When this process's parent was started, in seconds of ``time.time``; None: not known."""
    try:
        process = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        boot = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(boot[1]) + int(process[19]) / os.sysconf("SC_CLK_TCK") if boot else None
