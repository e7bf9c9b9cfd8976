# mypy: disable-error-code="no-untyped-call"
"""Machine code of kernels on disk: numba's caches with stricter rules for stale and unsafe files.

A kernel has an index, ``empo-FILE.FUNCTION-LINE.pyXY.nbi``, from types of arguments to files of
machine code, ``.nbc``. Both are pickles, as numba writes them, behind a digest of their content and
the ``stamp`` of the kernel's sources. So a damaged file and one of other sources are both told
before they are unpickled, and are written anew. Whoever can write a pickle can run code here, so
that a folder or file that others can write is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import pickle  # noqa: S403
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import config
from numba.core.caching import UserProvidedCacheLocator, _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from empo_core.errors import StorageError
from empo_worlds.kernel_sources import UnreadableSourceError, stamp

log = logging.getLogger(__name__)

_MAGIC = b"EMPO kernel 1\n"
_DIGEST = hashlib.sha256().digest_size


class KernelCache(_Cache):
    """A kernel's machine code on disk, by its types and processor.

    It is loaded without what numba needs only to compile: half a second of imports. A kernel that
    allocates would need some of that; see ``empo_worlds.compilation``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._file: _KernelFile | None = None
        self._shared: _KernelFile | None = None
        self._stamp = b""
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder; empty where machine code is not kept."""
        file = self._shared_file() or self._kernel_file()
        return str(file.folder) if file else ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these types; None where it is not on disk.

        Raises:
            StorageError: if others can write the folder that ``NUMBA_CACHE_DIR`` names.
        """
        key = sig, target_context.codegen().magic_tuple()
        for find in (self._shared_file, self._kernel_file):
            file = find()
            data = None if file is None else file.load(key)
            if data is not None:
                return CompileResult._rebuild(target_context, *data)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel for these types, where that can be done."""
        file = self._kernel_file()
        if file is None or data.lifted or data.library.has_dynamic_globals:
            return
        try:
            file.save((sig, data.codegen.magic_tuple()), data._reduce())
        except OSError as error:
            _warn("compiled kernels could not be kept for later runs: %s", error)

    def enable(self) -> None:
        """Load and keep from now on."""
        self._enabled = True

    def disable(self) -> None:
        """Neither load nor keep from now on."""
        self._enabled = False

    def flush(self) -> None:
        """Forget what is on disk."""
        file = self._kernel_file()
        if file:
            file.flush()

    def _kernel_file(self) -> _KernelFile | None:
        """The file of this kernel, resolved at the first call, when all its callees are defined."""
        if self._file is None and self._enabled:
            self._file = self._file_in(_folder)
            self._enabled = self._file is not None or self._shared is not None
        return self._file if self._enabled else None

    def _shared_file(self) -> _KernelFile | None:
        """The file of this kernel that this user may only read."""
        if self._shared is None and self._enabled:
            self._shared = self._file_in(_read_only_folder)
        return self._shared if self._enabled else None

    def _file_in(self, choose: Callable[[str], Path | None]) -> _KernelFile | None:
        code = self._function.__code__
        try:
            stamped = self._stamp = self._stamp or stamp(self._function)
        except UnreadableSourceError:
            return None  # Nobody could tell when it is stale.
        folder = choose(code.co_filename)
        if folder is None:
            return None
        name = self._function.__qualname__.replace("<", "").replace(">", "")
        version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        stem = f"empo-{Path(code.co_filename).stem}.{name}-{code.co_firstlineno}.{version}"
        return _KernelFile(folder, stem, stamped)


class _KernelFile:
    """Index and data files of a kernel."""

    def __init__(self, folder: Path, stem: str, stamped: bytes) -> None:
        self.folder = folder
        self._stem, self._stamp = stem, stamped

    def load(self, key: Any) -> Any:
        """The data saved for a key; None where there are none that can be used."""
        name = self._index().get(key)
        saved = self._read(name) if name else None
        # Of two processes that save at once, one may have taken the other's name.
        return saved[1] if saved and saved[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        """Write machine code, then the index; older code for the key is replaced.

        Raises:
            OSError: if a file cannot be written.
        """
        index = self._index()
        names = (f"{self._stem}.{number}.nbc" for number in itertools.count(1))
        name = index.get(key) or next(
            candidate for candidate in names if candidate not in index.values()
        )
        self._write(name, (key, data))
        self._write(f"{self._stem}.nbi", index | {key: name})

    def flush(self) -> None:
        """Forget all keys."""
        self._write(f"{self._stem}.nbi", {})

    def _index(self) -> dict[Any, str]:
        return self._read(f"{self._stem}.nbi") or {}

    def _read(self, name: str) -> Any:
        """An object that was written with the same stamp; None where there is none."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                owner = self.folder.stat().st_uid
                reason = _other_writers(path, status.st_uid, status.st_gid, status.st_mode, owner)
                if reason:
                    _warn("%s: compiled kernels are not read from such files, but anew", reason)
                    return None
                content = file.read()
            head, digest, stamped, pickled = _split(content)
            if head != _MAGIC or digest != hashlib.sha256(stamped + pickled).digest():
                raise ValueError("its content is not what was written")
            return pickle.loads(pickled) if stamped == self._stamp else None  # noqa: S301
        except FileNotFoundError:
            return None
        except Exception as error:  # Whatever pickles raise; the file is written anew.
            _warn(
                "%s is damaged (%s): compiled kernels of damaged files are compiled and written "
                "anew, which takes up to a minute",
                *(path, error),
            )
            return None

    def _write(self, name: str, data: Any) -> None:
        stamped = self._stamp + dumps(data)
        _make_folder(self.folder)
        draft = self.folder / f"{name}.{uuid.uuid4().hex[:16]}.tmp"
        try:
            with open(draft, "xb", opener=partial(os.open, mode=0o644)) as file:
                file.write(_MAGIC + hashlib.sha256(stamped).digest() + stamped)
            draft.replace(self.folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise


def _split(content: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    first, second = len(_MAGIC), len(_MAGIC) + _DIGEST
    third = second + _DIGEST
    return content[:first], content[first:second], content[second:third], content[third:]


@cache
def _folder(source: str) -> Path | None:
    """Where numba keeps machine code of a source file; None where there is no safe place.

    That is below ``NUMBA_CACHE_DIR`` if it is set; else in ``__pycache__`` beside the source, or
    where that cannot be written by this user, or by others too, in the user's own cache.

    Raises:
        StorageError: if others can write the folder that ``NUMBA_CACHE_DIR`` names.
    """
    part = UserProvidedCacheLocator.get_suitable_cache_subpath(source)
    if cache_dir := getattr(config, "CACHE_DIR"):  # noqa: B009  # It has no types.
        chosen = Path(os.path.abspath(cache_dir), part)
        if _is_writable(chosen):
            reason = _reason_against(chosen.parent, is_shared=True) or _reason_against(chosen)
            if reason:
                raise StorageError(
                    f"{reason}: NUMBA_CACHE_DIR must name a folder that nobody else can write, "
                    "since files of compiled kernels are pickles, by which others could run code "
                    f"as this user; chmod go-w {chosen.parent}, or name a folder of your own"
                )
            return chosen
    else:
        pycache = Path(source).parent / "__pycache__"
        # Whoever owns the sources has this user's trust already.
        if _is_writable(pycache) and not _reason_against(pycache, os.stat(source).st_uid):
            return pycache
    path = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir, part)
    if not _is_writable(path):
        reason = f"{path} cannot be written"
    else:
        reason = _reason_against(path.parent) or _reason_against(path)
    if not reason:
        return path
    _warn(
        "%s: compiled kernels are not kept for later runs, each of which takes up to a minute to "
        "compile them; set NUMBA_CACHE_DIR to a folder that this user, and nobody else, can write",
        reason,
    )
    return None


@cache
def _read_only_folder(source: str) -> Path | None:
    """A folder of machine code that others keep for this user, who may not write it, or None.

    It is below ``NUMBA_CACHE_DIR`` if that is set, else ``__pycache__`` beside the source, and root
    or the owner of the sources has filled it, e.g. when an image of a container was made.
    """
    cache_dir = getattr(config, "CACHE_DIR")  # noqa: B009  # It has no types.
    if cache_dir:
        part = UserProvidedCacheLocator.get_suitable_cache_subpath(source)
        folder, owner = Path(os.path.abspath(cache_dir), part), None
    else:
        folder, owner = Path(source).parent / "__pycache__", os.stat(source).st_uid
    if not any(folder.glob("empo-*.nbi")) or _is_writable(folder):
        return None
    reason = _reason_against(folder, owner)
    if cache_dir:
        reason = reason or _reason_against(folder.parent, is_shared=True)
    return None if reason else folder


def _reason_against(folder: Path, owner: int | None = None, *, is_shared: bool = False) -> str:
    """The reason why other users could write into a folder; empty where they could not.

    Args:
        folder: Which is there.
        owner: A user who is trusted besides this one and root.
        is_shared: Others may add to it if it has the sticky bit, as ``/tmp``: what is made there
            stays this user's, and is looked at itself.
    """
    try:
        link, status = folder.lstat(), folder.stat()
    except OSError as error:
        return f"{folder} cannot be looked at ({error.strerror})"
    sticky = is_shared and status.st_mode & stat.S_ISVTX
    mode = 0 if sticky else status.st_mode
    return _other_writers(folder, link.st_uid, 0, 0, owner) or _other_writers(
        folder, status.st_uid, status.st_gid, mode, owner
    )


def _other_writers(path: Path, user: int, group: int, mode: int, owner: int | None = None) -> str:
    """A clause about other users who can write a file or folder; empty where nobody can."""
    if not hasattr(os, "geteuid"):
        return ""  # Windows has other rights; folders of a user are closed to others by default.
    if user not in {os.geteuid(), 0, owner}:
        return f"{path} belongs to another user (number {user})"
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private(group)):
        return f"{path} can be written by other users (mode {stat.S_IMODE(mode):03o})"
    return ""


@cache
def _is_private(group: int) -> bool:
    """True for a group of this user alone, as many systems give to each, or of root alone."""
    import grp
    import pwd

    try:
        members = grp.getgrgid(group)
    except KeyError:
        return False
    try:
        user = pwd.getpwuid(os.geteuid())
        name, is_own = user.pw_name, user.pw_gid == group and user.pw_name == members.gr_name
    except KeyError:  # Containers run under numbers that nobody has.
        name, is_own = "root", False
    return not set(members.gr_mem) - {name, "root"} and (is_own or group == 0)


def _is_writable(folder: Path) -> bool:
    """True if files can be made in a folder, which is made if it is not there."""
    try:
        _make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _make_folder(folder: Path) -> None:
    """Make a folder and those it lies in, which only this user can write, whatever the umask."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            with contextlib.suppress(FileExistsError):  # Another process was quicker.
                path.mkdir(mode=0o755)


_warned: set[str] = set()


def _warn(message: str, *values: object) -> None:
    """Log a message once per process, not once per kernel."""
    if message not in _warned:
        _warned.add(message)
        log.warning(message, *values)
