"""A child process with a pipe: started safely, watched, ended in time, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Literal, NamedTuple, TypeAlias

from empo_core.errors import WorkerError
from empo_core.interrupts import SIGNALS
from empo_core.plugins.imports import extra_imports, import_extra

StartMethod = Literal["forkserver", "spawn"]
Context: TypeAlias = ForkServerContext | SpawnContext
Pipe: TypeAlias = "Connection[bytes, bytes]"
KILL_S = 1.0
"""Seconds that the system may need to take a killed process away."""
_PR_SET_PDEATHSIG = 1


def process_context(method: StartMethod | None = None, preload: Sequence[str] = ()) -> Context:
    """The multiprocessing context of a start method.

    ``fork`` is not offered: a forked child hangs in the first parallel torch operation when its
    parent has done one before.

    Args:
        method: How processes start; None takes ``forkserver`` where there is one.
        preload: Modules that the fork server imports once, beside torch.

    Raises:
        ValueError: if this system does not have the start method.
    """
    existing = multiprocessing.get_all_start_methods()
    methods = [name for name in ("forkserver", "spawn") if name in existing]
    name = methods[0] if method is None else method
    if name not in methods:
        raise ValueError(f"start method {name!r} is not one of {', '.join(methods)}")
    if name == "spawn":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Loaded once in the server, torch costs a process milliseconds instead of seconds.
    context.set_forkserver_preload(["torch", __name__, *preload])
    return context


class SupervisedProcess:
    """A process that runs ``target(pipe, *arguments)``, and the parent's end of its pipe.

    The child uses one thread for numerics, ignores the signals of Ctrl-C, termination and a closed
    terminal (they reach the whole group, and the parent decides what they mean), and ends with its
    parent, even while it is stopped.

    Attributes:
        pipe: The parent's end.
        pid: The process's id.
        sentinel: Readable once the process has ended; see ``multiprocessing.connection.wait``.
    """

    def __init__(
        self, context: Context, target: Callable[..., None], arguments: Sequence[object], name: str
    ) -> None:
        """Start the process.

        Args:
            context: From ``process_context``.
            target: An importable function, called with the child's end of the pipe first.
            arguments: Further arguments, which ``pickle`` can send.
            name: Of the process, for people.

        Raises:
            OSError: if the system refuses a process or a pipe.
            WorkerError: if the folder of temporary files has too long a path.
        """
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_enter,
            args=(target, theirs, child_setup(context), tuple(arguments)),
            daemon=False,  # Those may not start processes, and the work may need some.
            name=name,
        )
        try:
            with signals_held():
                self._process.start()
        except BaseException as error:
            self.pipe.close()
            if "AF_UNIX" in str(error):
                raise WorkerError(
                    f"no process can be started: TMPDIR ({tempfile.gettempdir()}) is too long for "
                    "the socket that starts them; set it to a shorter folder, e.g. TMPDIR=/tmp"
                ) from error
            raise
        finally:
            # With our copy open, the pipe would not end when the process does.
            theirs.close()
        self.pid: int = self._process.pid or 0
        self.sentinel: int = self._process.sentinel
        self._ended = False
        # At exit multiprocessing waits for its children, which do not end by themselves.
        self._finalizer = Finalize(self, _kill, (self._process,), exitpriority=0)

    def has_message(self, timeout_s: float | None = None) -> bool:
        """Wait for a message; False where the process has ended, or the time is over.

        A process started by the child may hold the pipe open, so both are watched.
        """
        return self.pipe in wait([self.pipe, self.sentinel], timeout_s)

    @property
    def has_ended(self) -> bool:
        """True once the process is gone."""
        with contextlib.suppress(ValueError):  # Another thread has released it just now.
            return self._ended or self._process.exitcode is not None
        return True

    def kill(self) -> None:
        """End the process by force; SIGKILL ends even one that is stopped or in compiled code."""
        if not self._ended:
            _kill(self._process)

    def join(self, timeout_s: float) -> bool:
        """Wait for the process to end, and say whether it has."""
        if not self._ended:
            with contextlib.suppress(ValueError):
                self._process.join(max(0.0, timeout_s))
        return self.has_ended

    def end(self, deadline: float = 0.0) -> None:
        """Wait until ``deadline`` (of ``time.monotonic``), then kill; twice does no harm.

        The pipe stays open, since another thread may be using it.
        """
        if self._ended:
            return
        self.join(deadline - time.monotonic())
        self.kill()
        ended = self.join(KILL_S)
        self._ended = True
        self._finalizer.cancel()
        if ended:
            self._process.close()

    def obituary(self, subject: str, *, at_start: bool = False) -> str:
        """The way the process ended, with the usual cause where there is one; before ``end``.

        Args:
            subject: The process, for people.
            at_start: Whether it ended before it had said anything.
        """
        self.join(KILL_S)
        code = self._process.exitcode
        if code is None:
            return f"{subject} closed its pipe without being asked to"
        if code < 0:
            advice = "; signal 9 often means that memory ran out" if code == -9 else ""
            return f"{subject} was killed by signal {-code}{advice}"
        advice = (
            "; at the start this often means that a script starts workers outside of "
            "`if __name__ == '__main__':`"
        )
        return (
            f"{subject} exited with code {code} without being asked to{advice if at_start else ''}"
        )


def _kill(process: BaseProcess) -> None:
    with contextlib.suppress(ValueError, OSError):
        process.kill()


class ChildSetup(NamedTuple):
    """What ``set_up_child`` needs of the parent.

    Attributes:
        is_lasting: True if the thread that starts the child lives as long as the parent.
        imports: Modules of ``--import``.
    """

    is_lasting: bool
    imports: Sequence[str]


def child_setup(context: Context) -> ChildSetup:
    """The setup of a child that the present thread starts."""
    # The kernel's signal goes by the thread that started a process; that of the fork server
    # lives as long as the parent does, as does our main thread.
    is_lasting = context.get_start_method() == "forkserver" or (
        threading.current_thread() is threading.main_thread()
    )
    return ChildSetup(is_lasting, extra_imports())


def set_up_child(setup: ChildSetup) -> None:
    """Let this process end with its parent, ignore signals, and use one thread for numerics."""
    if setup.is_lasting:
        _let_the_kernel_kill()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # For programs that the target starts.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    import torch

    torch.set_num_threads(1)
    import_extra(setup.imports)


def _enter(
    target: Callable[..., None], pipe: Pipe, setup: ChildSetup, arguments: Sequence[object]
) -> None:
    """Main function of a supervised process."""
    set_up_child(setup)
    target(pipe, *arguments)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals back, which what is started meanwhile, e.g. a fork server, does for good.

    They reach the whole group, and children end with their fork server. This process gets what
    has arrived at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows knows no groups of processes.
        yield
        return
    resource_tracker.ensure_running()  # Which would let them through again, once it is started.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _let_the_kernel_kill() -> None:
    """Have this process killed with the one that forked it, which also ends it while stopped."""
    # A copy of this descriptor in each child would keep the fork server alive without the parent.
    server = getattr(forkserver, "_forkserver", None)
    descriptor = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and descriptor is not None:
        server._forkserver_alive_fd = server._forkserver_address = None
        with contextlib.suppress(OSError):
            os.close(descriptor)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_parent() -> None:
    """End this process when its parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stdout.flush()
        os._exit(1)


__all__ = [
    "KILL_S", "ChildSetup", "Context", "Pipe", "StartMethod", "SupervisedProcess", "child_setup",
    "process_context", "set_up_child", "signals_held",
]  # fmt: skip
