"""Commands of ``empo`` in children of one process that has everything imported.

A fork takes milliseconds, a command that imports torch seconds: so thousands of runs can be
killed. Where the library of ``faulty_calls.c`` is preloaded, a child's calls can fail.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, util
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import psutil

PATIENCE_S = 300
"""Timeout in seconds, after which a command counts as hung; an idle machine needs far less."""
LIBRARY = "EMPO_FAULTY_CALLS"
"""The environment variable that names the preloaded library."""
SOURCE = Path(__file__).with_name("faulty_calls.c")
CALLS = {"open": 0, "write": 1, "fsync": 2, "rename": 3, "mkdir": 4, "open to read": 5}
"""Numbers of calls in the library."""
ERRORS = {
    "open": (errno.ENOSPC, errno.EMFILE, errno.EACCES), "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO, errno.ENOSPC), "rename": (errno.EIO, errno.EACCES),
    "mkdir": (errno.ENOSPC, errno.EROFS), "open to read": (errno.EIO, errno.EMFILE),
}  # fmt: skip
"""How each call fails."""


@dataclass(frozen=True)
class Ended:
    """A command that is over.

    Attributes:
        code: Its exit code; minus a signal that ended it.
        output: What it wrote to standard output and standard error.
        seconds: How long it ran.
        cpu_s: Processor time of it and of the children that it waited for.
    """

    code: int
    output: str
    seconds: float
    cpu_s: float

    @property
    def fault(self) -> str:
        """What is wrong with how it told of a failure; empty: nothing."""
        if "Traceback (most recent call last)" in self.output:
            return f"a traceback: {self.output[-1500:]}"
        if "This should not happen" in self.output:
            return f"an unexpected error: {self.output[-800:]}"
        if self.code not in (0, 2, 3, 130, -signal.SIGKILL):
            return f"exit code {self.code}: {self.output[-800:]}"
        if self.code and self.code != -signal.SIGKILL and not self.output.strip():
            return f"exit code {self.code} without a word"
        return ""


class Child:
    """A process that goes on beside this one, in a session and a process group of its own."""

    def __init__(self, pid: int, printed: Path) -> None:
        self.pid, self._printed, self._since = pid, printed, time.monotonic()
        self.process = psutil.Process(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is over."""
        os.kill(self.pid, number)  # A zombie takes it as well.

    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self.process.status() == psutil.STATUS_ZOMBIE

    def family(self) -> list[psutil.Process]:
        """The processes that it has started, and those that these have."""
        return self.process.children(recursive=True)

    def end(self, patience_s: float = PATIENCE_S) -> Ended:
        """Wait until the process is over; one that hangs is killed, with exit code -6.

        Where other programs leave it no processor, it is waited for that much longer.
        """
        began, starved_s = time.monotonic(), 0.0
        while (status := os.wait4(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() - began > patience_s + starved_s:
                before, starved_s = starved_s, self._starved_s()
                if starved_s > before + 1:
                    continue
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return Ended(-signal.SIGABRT, f"hung; {self._text()}", patience_s, 0.0)
            time.sleep(0.002)
        code, used = os.waitstatus_to_exitcode(status[1]), status[2]
        seconds = time.monotonic() - self._since
        return Ended(code, self._text(), seconds, used.ru_utime + used.ru_stime)

    def _starved_s(self) -> float:
        """Seconds in which a process of the family could have gone on, and had no processor."""
        waits = [0.0]
        for process in [self.process, *self.family()]:
            with suppress(OSError):  # It is over, or the system keeps no such account.
                waits.append(int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1]))
        return max(waits) / 1e9

    def _text(self) -> str:
        return self._printed.read_text(errors="replace")


def warm_up() -> None:
    """Import what runs import, so that children have it."""
    import torch

    from empo_core.config import installed

    torch.set_num_threads(1)  # Threads do not survive a fork.
    installed()
    gc.freeze()


def call_here(folder: Path, *arguments: str) -> None:
    """``empo`` with arguments in this process, so that forks have what it imports and compiles."""
    from empo_core.cli.app import app

    before = Path.cwd()
    os.chdir(folder)
    try:
        app(list(arguments), standalone_mode=False)
    finally:
        os.chdir(before)
        gc.collect()  # Else files that are mapped stay open.
        gc.freeze()


def begin(folder: Path, *arguments: str, prepare: Callable[[], object] | None = None) -> Child:
    """Start ``empo`` with arguments in a fork, after ``prepare`` was called there."""

    def command() -> None:
        from empo_core.cli import main

        sys.argv = ["empo", *arguments]
        main()

    return fork(folder, command, prepare)


def fork(
    folder: Path, command: Callable[[], object], prepare: Callable[[], object] | None = None
) -> Child:
    """Call a function in a fork whose working directory is ``folder``."""
    printed = folder / f"printed-{time.monotonic_ns()}.txt"
    printed.touch()
    pid = os.fork()
    if not pid:
        _live(folder, printed, command, prepare)
    return Child(pid, printed)


def call(folder: Path, *arguments: str, prepare: Callable[[], object] | None = None) -> Ended:
    """``empo`` with arguments in a fork, from its start to its end."""
    return begin(folder, *arguments, prepare=prepare).end()


def _live(
    folder: Path, printed: Path, command: Callable[[], object], prepare: Callable[[], object] | None
) -> NoReturn:
    """What a fork does: it never returns."""
    code = 70
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        descriptor = os.open(printed, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        os.chdir(folder)
        sys.modules["__main__"] = ModuleType("__main__")  # Its workers need not import this one.
        _forget_the_fork_server()
        if prepare is not None:
            prepare()
        command()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 71
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]  # As Python ends itself.
            atexit._run_exitfuncs()
            util._exit_function()  # type: ignore[attr-defined]
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _forget_the_fork_server() -> None:
    """Have workers of this fork started by a server of its own: that of the parent is no child."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server._forkserver_pid = server._forkserver_address = server._forkserver_alive_fd = None


def spawn(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (), script: str = "",
) -> Child:  # fmt: skip
    """Start ``empo`` as users do, in a new Python.

    Args:
        folder: The working directory.
        arguments: Of the command.
        environment: Of the process; None: of this one.
        before: A command that starts it, e.g. ``unshare``.
        script: Python code to run first.
    """
    python = [sys.executable, "-m", "empo_core"]
    if script:
        code = f"{script}\nfrom empo_core.cli import main\nmain()\n"
        python = [sys.executable, "-c", code]
    printed = folder / f"printed-{time.monotonic_ns()}.txt"
    surroundings = {k: v for k, v in (environment or os.environ).items() if k != "LD_PRELOAD"}
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [*before, *python, *arguments], cwd=folder, env=surroundings, stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True, preexec_fn=_heed_signals,
        )  # fmt: skip
    process.returncode = 0  # It is waited for elsewhere.
    return Child(process.pid, printed)


def _heed_signals() -> None:
    """Undo what shells do to processes in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def library() -> ctypes.CDLL | None:
    """The preloaded library; None where there is none."""
    path = os.environ.get(LIBRARY)
    return ctypes.CDLL(path) if path else None


def failing(folder: Path, kind: str, number: int, code: int, *, for_good: bool) -> None:
    """Have a call of this process fail, by its number among those of its kind; 0: kill there."""
    loaded = library()
    assert loaded is not None
    loaded.faults_arm(bytes(folder), CALLS[kind], ctypes.c_long(number), code, int(for_good))


def preload(folder: Path, arguments: Sequence[str]) -> None:
    """Start this program anew with the library preloaded, where a C compiler is there."""
    if os.environ.get(LIBRARY) or sys.platform != "linux":
        return
    path = folder / "faulty_calls.so"
    compiler = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE), "-ldl"]
    try:
        subprocess.run(compiler, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"calls cannot be made to fail: {error}", file=sys.stderr)
        return
    os.environ |= {LIBRARY: str(path), "LD_PRELOAD": str(path)}
    os.execv(sys.executable, [sys.executable, *arguments])
