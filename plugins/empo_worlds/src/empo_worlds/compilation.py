"""Compiling kernels with numba, for plugins whose world models, solvers or learners have some.

Kernels written for these decorators allocate nothing and take no slices of arrays. They can so
do without numba's counting of references to arrays, which would otherwise cost more than most
of what they compute, and they leave Python's global lock to other threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from inspect import unwrap
from typing import Any, TypeVar, cast
from weakref import WeakSet

from empo_core.stages import declared, watchers
from empo_worlds.kernel_sources import note_sources

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

kernels: WeakSet[Any] = WeakSet()
"""The kernels in this process whose machine code is kept on disk."""

OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def compiled(function: Function, *, on_disk: bool = True) -> Function:
    """The function compiled on first use, for callers in Python, and kept on disk for later."""
    from numba import njit

    from empo_worlds.kernel_cache import KernelCache
    from empo_worlds.kernel_pipeline import KernelPipeline

    plain = _declared(function)
    kernel: Any = njit(**OPTIONS, pipeline_class=KernelPipeline)(plain)
    if on_disk:
        kernel._cache = KernelCache(plain)
        kernels.add(kernel)
    return cast("Function", kernel)


def nested(function: Function, *, inline: bool = False) -> Function:
    """Compiled for callers that are compiled themselves; a call from Python is a ``TypeError``.

    Args:
        function: A kernel's part.
        inline: Put it into every caller.
    """
    from empo_worlds.kernel_pipeline import PartDispatcher, PartPipeline

    # A third of the time of compiling went into wrappers for callers in Python.
    options = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options |= {"forceinline": inline, "nopython": True}
    part: Any = PartDispatcher(
        _declared(function), targetoptions=options, pipeline_class=PartPipeline
    )
    return cast("Function", part)


def inlined(function: Function) -> Function:
    """Compiled into every caller, because passing arrays costs time: seven numbers for each."""
    return nested(function, inline=True)


def compiled_closure(function: Function) -> Function:
    """The function with what surrounds it, compiled on first use; may allocate and take slices."""
    from numba import njit

    return cast("Function", njit(nogil=True, error_model="numpy")(_declared(function)))


def _declared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as its author wrote it, with its compilation reported to watchers."""
    # While tests run, functions are wrapped in checks of shapes, which numba cannot compile.
    plain: Callable[..., Any] = unwrap(function)
    _listen()
    name = f"{plain.__module__}.{plain.__qualname__}"
    note_sources(plain, again=name in declared)
    declared.add(name)
    return plain


def is_loaded(function: Callable[..., Any]) -> bool:
    """True if a compiled function's machine code is in this process, or needs none."""
    return bool(getattr(function, "signatures", True))


@cache
def _listen() -> None:
    """Report numba's compilations to watchers."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            compiles = event.kind == "numba:compile"
            for watcher in watchers[:1]:
                if compiles:
                    _tell_of_warmup()
                watcher.notice(compiles=compiles)

        def on_end(self, event: Any) -> None:
            pass  # Another kernel may be next: the stage ends when something else goes on.

    register: Any = event.register  # It has no types.
    for kind in ("numba:compiler_lock", "numba:compile"):
        register(kind, Listener())


@cache
def _tell_of_warmup() -> None:
    """Say once in a process why it takes so long, and how later ones need not wait."""
    log.info(
        "compiling kernels, which the first use on a machine does; 'empo warmup' compiles all "
        "of them ahead of the runs, in a minute or two"
    )
