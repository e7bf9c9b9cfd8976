"""Stages of a run whose parts are not told apart, as trackers show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

COMPILING, LOADING = "compiling kernels", "loading kernels"


class Watcher(Protocol):
    """Is told when kernels are compiled or loaded."""

    def notice(self, *, compiles: bool) -> None:
        """A kernel is being compiled; or looked for on disk, to be loaded."""

    def end(self) -> None:
        """That is over, as far as it is known."""


watchers: list[Watcher] = []
"""Whom compilers of kernels tell; only the first one is told."""

declared: set[str] = set()
"""Full names of the functions that may have to be compiled, as far as their files are loaded."""

Tell = Callable[[str, float, float], object]
"""``Tracker.progress``, or a function like it."""


@contextmanager
def stage(tell: Tell, task: str) -> Iterator[None]:
    """A task whose parts are not told apart."""
    tell(task, 0, 1)
    yield
    tell(task, 1, 1)


@contextmanager
def kernel_stage(tell: Tell) -> Iterator[None]:
    """Kernels that are compiled or loaded within, as one task, unless another tracker is told."""
    kernels = KernelStage(tell)
    if not watchers:
        kernels.start()
    try:
        yield
        watchers[0].end()
    finally:
        kernels.stop()


class KernelStage:
    """Kernels that are compiled or loaded, as a task that lasts until there is other progress.

    Loading takes long only the first time, when the compiler itself gets ready, and is shown then.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell, self._task = tell, ""
        self._known_stages: set[str] = set()
        self._begun = 0

    def start(self) -> None:
        """Listen from now on, instead of whoever listened before."""
        watchers.insert(0, self)

    def stop(self) -> None:
        """Listen no longer."""
        if self in watchers:
            watchers.remove(self)

    def end(self) -> None:
        """End what is shown: something else goes on."""
        task, self._task = self._task, ""
        if task:
            self._tell(task, 1, 1)

    def notice(self, *, compiles: bool) -> None:
        """Show that a kernel is being compiled; or looked for on disk, to be loaded."""
        task = COMPILING if compiles else LOADING
        if task == LOADING and (self._task == COMPILING or task in self._known_stages):
            return
        if task != self._task:
            self.end()
            self._task, self._begun = task, 0
        self._known_stages.add(task)
        # Which of the functions are needed, numba only finds out on its way.
        self._tell(task, self._begun, max(len(declared), self._begun + 1))
        self._begun += compiles
