"""Compiling kernels with numba, for the plugins that use it; the core itself does not.

Kernels written for these decorators allocate nothing and take no slices of arrays. They can so
do without numba's counting of references to arrays, which would otherwise cost more than most
of what they compute, and they leave Python's global lock to other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import unwrap
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def compiled(function: Function, *, on_disk: bool = True) -> Function:
    """The function compiled on first use, and kept on disk for later processes."""
    from numba import njit

    # While tests run, functions are wrapped in checks of shapes, which numba cannot compile.
    plain = unwrap(function)
    forget_stale_code(Path(plain.__code__.co_filename).parent)
    return cast("Function", njit(**OPTIONS, cache=on_disk)(plain))


def inlined(function: Function) -> Function:
    """Compiled into every caller, because passing arrays costs time: seven numbers for each."""
    from numba import njit

    return cast("Function", njit(**OPTIONS, forceinline=True)(unwrap(function)))


def is_compiled(function: Callable[..., Any]) -> bool:
    """True if a compiled function's machine code is on disk already."""
    folder = cast("Any", function).stats.cache_path
    if folder is None:  # It is not kept on disk.
        return False
    return any(
        Path(folder).glob(f"{function.__module__.rpartition('.')[2]}.{function.__name__}-*.nbi")
    )


def is_loaded(function: Callable[..., Any]) -> bool:
    """True if a compiled function's machine code is in this process, or needs none."""
    return bool(getattr(function, "signatures", True))


SHARED = Path(__file__).parent / "worlds"
"""Whose kernels those of plugins call."""


@cache
def forget_stale_code(package: Path, shared: Path = SHARED) -> None:
    """Delete machine code that is older than any source file of its package, or of ``shared``.

    Numba only looks at the file that a function stands in, but machine code also contains what
    the function calls in other files: an update that touches one of those would go unnoticed.
    """
    sources = (*package.glob("*.py"), *shared.glob("*.py"))
    newest = max((file.stat().st_mtime for file in sources), default=0.0)
    for file in (package / "__pycache__").glob("*.nb[ic]"):
        try:
            if file.stat().st_mtime < newest:
                file.unlink()
        except OSError:
            continue  # Another process was quicker, or the installation is read-only.
