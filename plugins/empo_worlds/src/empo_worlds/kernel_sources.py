"""Digests of everything that the machine code of a kernel depends on.

Machine code holds parts of other files: the functions that a kernel calls, and whatever wrote their
instructions. Dates of files say nothing: sources that are newer may carry older dates.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_CORE = Path(__file__).parent
_COMPILER = tuple(
    _CORE / f"{name}.py"
    for name in ("compilation", "kernel_cache", "kernel_pipeline", "kernel_sources")
)
"""The core's files that say how kernels are compiled."""

_BY_VERSION = frozenset({"numba", "llvmlite", "numpy", "torch"})
"""Packages that a digest holds by their versions; Python's own is in the names of cache files."""


class UnreadableSourceError(Exception):
    """A source has no file that could be read: nothing is known of what it holds."""


def stamp(function: Callable[..., Any]) -> bytes:
    """Digest of all that the machine code of a kernel depends on but for types and processor.

    That is the contents of every source file of the kernel's package and of the packages of all
    functions that it calls, directly or not; the bytecode of those functions, and the values of the
    constants that they read from outside; how kernels are compiled; and versions of the core,
    numba, llvmlite and numpy. Of the core only folders with such functions count.

    Raises:
        UnreadableSourceError: if a function has no source file, or the file cannot be read.
    """
    functions, constants = _reach(function)
    files = {callee.__code__.co_filename for callee in functions}
    files |= {file for _, value in constants if (file := _file_of_class(value))}
    folders = {_folder(Path(file)) for file in files}
    digest = hashlib.sha256()
    _add(digest, _compiler())
    for content in sorted([_content(folder) for folder in folders]):
        _add(digest, content)
    for callee in functions:
        _add(digest, f"{callee.__module__}.{callee.__qualname__}".encode())
        for code in _codes(callee.__code__):
            _add(digest, code.co_code)
            _add(digest, repr((code.co_names, code.co_freevars)).encode())
            _add(digest, b"".join(map(_value, code.co_consts)))
    for name, value in constants:
        _add(digest, name.encode())
        _add(digest, _value(value))
    return digest.digest()


def note_sources(function: Callable[..., Any], *, again: bool) -> None:
    """Read the sources of a function's package now, when they are what Python has just loaded.

    Args:
        function: A kernel, or a part of one.
        again: Its module is loaded once more: sources may differ from what they were.
    """
    if again:
        _content.cache_clear()
    with contextlib.suppress(UnreadableSourceError):  # Such kernels are not kept on disk.
        _content(_folder(Path(function.__code__.co_filename)))


@cache
def _compiler() -> bytes:
    """Digest of what compiles: sources, versions and settings."""
    from numba import config

    settings = [
        getattr(config, name)
        for name in ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE")
    ]
    versions = []
    for name in ("empo-core", *sorted(_BY_VERSION)):
        try:
            versions.append(version(name))
        except PackageNotFoundError:  # A folder on Python's path.
            versions.append("")
    return _read(_COMPILER) + repr((versions, settings)).encode()


def _folder(file: Path) -> Path:
    """The outermost package that a file is part of; in the core only its folder; else the file.

    Raises:
        UnreadableSourceError: if the file does not exist.
    """
    if not file.is_file():
        raise UnreadableSourceError(f"{file} is no file")
    if file.is_relative_to(_CORE):
        return file.parent
    folder = file
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder


@cache
def _content(path: Path) -> bytes:
    """Digest of all source files in a folder and below, or of one file."""
    return _read([path] if path.is_file() else sorted(path.rglob("*.py")), path)


def _read(files: Iterable[Path], root: Path = _CORE) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise UnreadableSourceError(str(error)) from error
        _add(digest, file.relative_to(root).as_posix().encode())
        _add(digest, content)
    return digest.digest()


def _reach(function: Callable[..., Any]) -> tuple[list[FunctionType], list[tuple[str, Any]]]:
    """The functions that a kernel consists of, itself first, and constants that they read."""
    functions: list[FunctionType] = []
    constants: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [("", function)]
    visited: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        inner = _inner(value)
        if inner is None:
            constants.append((name, value))
        elif id(inner) not in visited and not _is_by_version(inner.__module__):
            visited.add(id(inner))
            functions.append(inner)
            waiting += _read_outside(inner)
    return functions, constants


def _inner(value: Any) -> FunctionType | None:
    """The Python function that a value is compiled from; None where it is something else."""
    for candidate in (value, getattr(value, "py_func", None), getattr(value, "_defn", None)):
        if isinstance(candidate, FunctionType):
            # While tests run, functions are wrapped in checks of shapes.
            plain = unwrap(candidate)
            return plain if isinstance(plain, FunctionType) else candidate
    return None


def _is_by_version(module: str | None) -> bool:
    package = (module or "").partition(".")[0]
    return package in _BY_VERSION or package in sys.stdlib_module_names - {"__main__"}


def _file_of_class(value: Any) -> str | None:
    """Where a class, or that of a value, was written: its fields may be in machine code."""
    module = (value if isinstance(value, type) else type(value)).__module__
    return None if _is_by_version(module) else getattr(sys.modules.get(module), "__file__", None)


def _read_outside(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values that a function may read from its closure, its module and named modules."""
    codes = list(_codes(function.__code__))
    names = sorted({name for code in codes for name in code.co_names})
    space = function.__globals__
    for name in names:
        value = space.get(name)
        if isinstance(value, ModuleType):
            yield from _attributes(value, names, {value})
        elif name in space:
            yield name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # Nothing has been put there so far.


def _attributes(
    module: ModuleType, names: list[str], visited: set[ModuleType]
) -> Iterator[tuple[str, Any]]:
    """Names and values that code may read from a module and its submodules."""
    if _is_by_version(module.__name__):
        return
    for name in names:
        value = getattr(module, name, None)
        if not isinstance(value, ModuleType):
            yield f"{module.__name__}.{name}", value
        elif value not in visited:
            yield from _attributes(value, names, visited | {value})


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of functions within."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _value(value: Any) -> bytes:
    """A constant as numba puts it into machine code; of other things, only their kind."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        head = f"{value.dtype!r}{value.shape}{value.flags.f_contiguous}"
        return head.encode() + hashlib.sha256(value.tobytes()).digest()
    if isinstance(value, Enum):
        return str(value).encode() + _value(value.value)
    if isinstance(value, bool | int | float | complex | str | bytes | type(None) | np.dtype):
        return repr(value).encode()
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_value, value)) + b")"
    if isinstance(value, frozenset):
        return b"{" + b",".join(sorted(map(_value, value))) + b"}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}".encode()
    return f"{type(value).__module__}.{type(value).__qualname__}".encode()


def _add(digest: Any, content: bytes) -> None:
    """Add length-prefixed data to a digest, so that neighbours cannot be confused."""
    digest.update(len(content).to_bytes(8, "little"))
    digest.update(content)
