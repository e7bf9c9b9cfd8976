"""Main function of a process that ends a local cluster whose gateway was killed.

The kernel ends most of it. Agents of Ray would try for a minute or two to tell its head, which is
gone, that something is wrong.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

import psutil

from empo_core.interrupts import SIGNALS


def start_reaper(folders: Sequence[str]) -> None:
    """End all processes that this one has started by now, once it is gone; remove the folders."""
    pids = [str(process.pid) for process in psutil.Process().children(recursive=True)]
    command = [sys.executable, "-P", "-m", __name__, ",".join(pids), *folders]
    # Its input is never written to, and ends with this process, which keeps it open until then.
    _started.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))


_started: list[subprocess.Popen[bytes]] = []


def main(pids: str, folders: Sequence[str]) -> None:
    """Wait for the end of the input, then clean up."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    processes = []
    for pid in pids.split(","):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(int(pid)))
    sys.stdin.read()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # Also where its number was given anew.
            process.kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
