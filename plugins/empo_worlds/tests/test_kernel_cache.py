"""Machine code on disk is that of today's sources, wherever it lies, or is not used."""

from __future__ import annotations

import importlib
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from empo_core.errors import StorageError
from empo_worlds import kernel_cache

SOURCES = {
    "demo_world/__init__.py": "",
    "demo_world/parts/__init__.py": "",
    "demo_world/parts/rule.py": """
from empo_worlds.compilation import nested

@nested
def scaled(x): return 2 * x
""",
    "demo_world/lanes.py": """
from numba import types
from numba.extending import intrinsic
from demo_world import writing

@intrinsic
def shifted(typing, x):
    def write(context, builder, signature, args):
        return writing.instruction(context, builder, args[0])
    return types.int64(types.int64), write
""",
    "demo_world/writing.py": """
def instruction(context, builder, number):
    return builder.add(number, number.type(1000))
""",
    "demo_world/kernels.py": """
import os
import demo_helper.sizes
from demo_helper import offset
from demo_helper.sizes import LENGTH, TABLE
from demo_world.lanes import shifted
from demo_world.parts.rule import scaled
from empo_worlds.compilation import compiled

FROM_OUTSIDE = int(os.environ.get("DEMO_CONSTANT", "0"))

@compiled
def value(x):
    own = shifted(scaled(x)) + FROM_OUTSIDE
    return own + offset(x) + LENGTH + TABLE[0] + demo_helper.sizes.WIDTH

@compiled
def other(x): return scaled(x)
""",
    "demo_helper/__init__.py": """
import numba

@numba.njit
def offset(x): return 20_000
""",
    "demo_helper/sizes.py": """
import numpy as np

LENGTH, WIDTH = 300_000, 4_000_000
TABLE = np.array([50_000_000])
""",
}
START = 54_321_006


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two packages in Python's path, with dates long ago."""
    for name, source in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    yield tmp_path
    forget()


def write(path: Path, source: str) -> None:
    path.write_text(source)
    os.utime(path, (10, 10))


def forget() -> None:
    """What a new process would not know."""
    for name in [name for name in sys.modules if name.startswith("demo_")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    kernel_cache._folder.cache_clear()
    kernel_cache._read_only_folder.cache_clear()
    kernel_cache._warned.clear()


def imported() -> ModuleType:
    forget()
    return importlib.import_module("demo_world.kernels")


def called(kernel: Any, argument: int = 3) -> tuple[int, bool]:
    """What a kernel returns, and whether its machine code came from disk."""
    return kernel(argument), bool(kernel.stats.cache_hits)


def keep_in(place: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let machine code be kept beside its sources, in a folder of choice, or in the user's own."""
    if place == "chosen":
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder / "chosen"))
        return folder / "chosen"
    if place == "home":
        (folder / "demo_world" / "__pycache__").write_text("Nobody can make a folder here.")
        return folder / "home"
    return folder / "demo_world" / "__pycache__"


CHANGES = {
    "a part in a folder of the package": ("demo_world/parts/rule.py", "2 * x", "5 * x", 9),
    "what writes instructions": ("demo_world/writing.py", "type(1000)", "type(7000)", 6_000),
    "a function of another package": ("demo_helper/__init__.py", "20_000", "90_000", 70_000),
    "a number of another package": ("demo_helper/sizes.py", "300_000", "800_000", 500_000),
    "a number by its module": ("demo_helper/sizes.py", "4_000_000", "9_000_000", 5_000_000),
    "a table of another package": ("demo_helper/sizes.py", "[50_000", "[90_000", 40_000_000),
}


@pytest.mark.parametrize(
    "place",
    ["beside", *(pytest.param(place, marks=pytest.mark.slow) for place in ("chosen", "home"))],
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_any_source_changes_results_whatever_its_date(
    change: str, place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = keep_in(place, folder, monkeypatch)
    assert called(imported().value) == (START, False)
    assert list(cache.rglob("*.nbi"))
    assert called(imported().value) == (START, True)
    name, old, new, more = CHANGES[change]
    write(folder / name, SOURCES[name].replace(old, new))
    assert called(imported().value) == (START + more, False)
    assert called(imported().value) == (START + more, True)


def test_a_constant_that_depends_on_the_environment_is_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called(imported().value)
    monkeypatch.setenv("DEMO_CONSTANT", "7")
    assert called(imported().value) == (START + 7, False)


@pytest.mark.parametrize("changed", ["numba", "llvmlite", "empo-core"])
def test_other_versions_compile_anew(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from empo_worlds import kernel_sources

    called(imported().value)
    version = kernel_sources.version
    monkeypatch.setattr(
        kernel_sources, "version", lambda name: "0" if name == changed else version(name)
    )
    kernel_sources._compiler.cache_clear()
    assert called(imported().value) == (START, False)
    monkeypatch.undo()
    kernel_sources._compiler.cache_clear()


def test_a_copy_elsewhere_with_the_same_sources_is_not_compiled_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(imported().value)
    shutil.copytree(folder, folder / "copy")
    monkeypatch.syspath_prepend(str(folder / "copy"))
    kernels = imported()
    assert Path(str(kernels.__file__)).is_relative_to(folder / "copy")
    assert called(kernels.value) == (START, True)


def test_nothing_in_a_package_is_deleted(folder: Path) -> None:
    pycache = folder / "demo_world" / "__pycache__"
    pycache.mkdir()
    foreign = [pycache / name for name in ("kernels.value-1.py311.nbi", "a.nbc", "b.pyc")]
    for path in foreign:
        write(path, "of somebody else")
    called(imported().value)
    assert [path.read_text() for path in foreign] == ["of somebody else"] * 3


def truncated(content: bytes) -> bytes:
    return content[:20]


def flipped(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


DAMAGES = {
    "truncated": truncated,
    "empty": lambda content: b"",
    "one bit": flipped,
    "another format": lambda content: pickle.dumps("0.1") + content,
}


@pytest.mark.parametrize("kind", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_misses_with_one_warning_and_are_written_anew(
    damage: str, kind: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernels = imported()
    assert (kernels.value(3), kernels.other(3)) == (START, 6)
    files = list(folder.rglob(kind))
    assert len(files) == 2
    for path in files:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    for hit, warnings in ((False, 1), (True, 0)):
        caplog.clear()
        kernels = imported()
        assert (called(kernels.value), called(kernels.other)) == ((START, hit), (6, hit))
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warned) == warnings


def test_machine_code_of_other_sources_under_the_name_of_todays_is_a_miss(folder: Path) -> None:
    """As a process leaves it that is killed between its writing of code and of the index."""
    called(imported().value)
    (data,) = folder.rglob("*.nbc")
    old = data.read_bytes()
    name, before, after, more = CHANGES["a part in a folder of the package"]
    write(folder / name, SOURCES[name].replace(before, after))
    called(imported().value)
    data.write_bytes(old)
    assert called(imported().value) == (START + more, False)


def test_two_types_that_were_given_one_file_are_not_taken_for_each_other(folder: Path) -> None:
    """As two processes leave it that compile at the same time."""
    kernel = imported().other
    kernel(3)
    (first,) = folder.rglob("*.1.nbc")
    kernel(1.5)
    (second,) = folder.rglob("*.2.nbc")
    first.write_bytes(second.read_bytes())
    assert called(imported().other) == (6, False)


class Planted:
    """A pickle that says where it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


needs_rights = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has other rights")


@needs_rights
@pytest.mark.parametrize("which", ["chosen", "chosen/*"])
def test_a_chosen_folder_that_others_can_write_is_refused(
    which: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in("chosen", folder, monkeypatch)
    called(imported().value)
    for path in folder.rglob("*.nb[ic]"):
        path.write_bytes(pickle.dumps(Planted(folder / "was read")))
    (open_to_all,) = folder.glob(which)
    open_to_all.chmod(0o777)
    with pytest.raises(StorageError) as refusal:
        imported().value(3)
    assert str(open_to_all) in str(refusal.value)
    assert "chmod" in str(refusal.value)
    assert not (folder / "was read").exists()


@needs_rights
def test_the_chosen_folder_may_be_one_where_nobody_can_replace_files_of_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in("chosen", folder, monkeypatch).mkdir()
    (folder / "chosen").chmod(0o1777)
    called(imported().value)
    assert called(imported().value) == (START, True)


@needs_rights
def test_a_folder_beside_sources_that_others_can_write_is_passed_over(folder: Path) -> None:
    called(imported().value)
    pycache = folder / "demo_world" / "__pycache__"
    pycache.chmod(0o777)
    assert called(imported().value) == (START, False)
    assert list((folder / "home").rglob("*.nbi"))
    assert called(imported().value) == (START, True)


@needs_rights
@pytest.mark.parametrize("place", ["beside", "chosen"])
def test_machine_code_that_this_user_may_only_read_is_used_and_other_code_is_kept_at_home(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = keep_in(place, folder, monkeypatch)
    called(imported().value)
    before = sorted(filled.rglob("*.nb[ic]"))

    def is_writable(path: Path) -> bool:  # As for a user who is not root.
        path.mkdir(parents=True, exist_ok=True)
        return not path.is_relative_to(filled)

    monkeypatch.setattr(kernel_cache, "_is_writable", is_writable)
    kernels = imported()
    assert (called(kernels.value), called(kernels.other)) == ((START, True), (6, False))
    assert sorted(filled.rglob("*.nb[ic]")) == before
    assert list((folder / "home").rglob("*other*.nbi"))
    assert called(imported().other) == (6, True)


@needs_rights
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give away")
def test_machine_code_of_another_user_that_this_user_may_only_read_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = keep_in("chosen", folder, monkeypatch)
    called(imported().value)
    for path in (filled, *filled.rglob("*")):
        os.chown(path, 12345, 0)
    monkeypatch.setattr(kernel_cache, "_is_writable", lambda path: "home" in path.parts)
    assert called(imported().value) == (START, False)


@needs_rights
def test_without_any_safe_folder_nothing_is_kept_and_one_warning_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = keep_in("home", folder, monkeypatch)
    (home / "numba").mkdir(parents=True)
    (home / "numba").chmod(0o777)
    kernels = imported()
    assert (called(kernels.value), called(kernels.other)) == ((START, False), (6, False))
    (warned,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert str(home / "numba") in warned.getMessage()
    assert not list(folder.rglob("*.nbi"))


@needs_rights
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give away")
@pytest.mark.parametrize("target", ["folder", "file"])
def test_what_belongs_to_another_user_is_not_read(
    target: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in("chosen", folder, monkeypatch)
    called(imported().value)
    if target == "folder":
        os.chown(folder / "chosen", 12345, 0)
        with pytest.raises(StorageError):
            imported().value(3)
    else:
        for path in folder.rglob("*.nb[ic]"):
            os.chown(path, 12345, 0)
        assert called(imported().value) == (START, False)


@needs_rights
def test_files_that_others_can_write_are_not_read(folder: Path) -> None:
    called(imported().value)
    for path in folder.rglob("*.nb[ic]"):
        path.write_bytes(pickle.dumps(Planted(folder / "was read")))
        path.chmod(0o666)
    assert called(imported().value) == (START, False)
    assert not (folder / "was read").exists()
    assert called(imported().value) == (START, True)


@needs_rights
def test_whatever_the_umask_only_this_user_can_write_what_is_kept(folder: Path) -> None:
    """In a process of its own, as a user has it: with ``NUMBA_CACHE_DIR``."""
    script = (
        "import os; os.umask(0); from demo_world.kernels import value; "
        "print(value(3), sum(value.stats.cache_hits.values()))"
    )
    for hits in (0, 1):
        process = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ
            | {"NUMBA_CACHE_DIR": str(folder / "deep" / "chosen"), "PYTHONPATH": str(folder)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert process.stdout.split() == [str(START), str(hits)]
    paths = [folder / "deep", *(folder / "deep").rglob("*")]
    assert len(paths) == 5
    assert not [path for path in paths if path.stat().st_mode & 0o022]


def test_arrays_and_closures_are_part_of_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from empo_worlds.compilation import compiled

    keep_in("chosen", folder, monkeypatch)

    def made(number: int, table: np.ndarray) -> Any:
        def read(x: int) -> int:
            return x + number + table[0]

        return compiled(read)

    assert [made(1, np.array([10]))(100), made(2, np.array([10]))(100)] == [111, 112]
    assert made(2, np.array([20]))(100) == 122


def test_a_kernel_without_a_file_works_and_is_not_kept() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    source = (
        "from empo_worlds.compilation import compiled\n@compiled\ndef double(x): return 2 * x\n"
    )
    exec(compile(source, "<typed>", "exec"), space)
    assert space["double"](3) == 6


@pytest.mark.slow
def test_a_factor_changed_in_a_part_of_the_solver_changes_its_values(tmp_path: Path) -> None:
    """With the real package, as a user has it, in processes of their own."""
    copy = tmp_path / "empo_exact"
    package = Path(__file__).parents[3] / "plugins" / "empo_exact" / "src" / "empo_exact"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def value(cache: str) -> float:
        process = subprocess.run(
            [
                sys.executable, "-m", "empo_core", "run", "multigrid/trivial", "algorithm=exact",
                "trackers=[]", f"runs={tmp_path / 'runs'}", "-q", "--json",
            ],
            env=os.environ
            | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / cache)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(json.loads(process.stdout)["root"]["V_r"])

    before = value("cache")
    source, old = (copy / "rows.py").read_text(), "total += weight * load("
    assert old in source
    write(copy / "rows.py", source.replace(old, "total += 0.5 * weight * load("))
    after = value("cache")
    assert after != before
    assert after == value("empty cache")
