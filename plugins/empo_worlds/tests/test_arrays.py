"""Arrays on disk survive crashes, and nothing damaged or hostile is loaded."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from empo_core.errors import StorageError
from empo_core.runs.atomic import DISK, Disk, read_json, write_file
from empo_worlds.arrays import load_array, load_arrays, save_arrays

OLD = {"values": np.arange(6.0).reshape(2, 3)}
NEW = {"values": np.ones((40, 3)), "policy": np.zeros(5, dtype=np.int16)}


class Crash(BaseException):
    """The process is gone; no handler may run."""


class Failing(Disk):
    """Fails at the n-th operation, either like a kill or like a full disk."""

    def __init__(self, fail_at: int, error: BaseException) -> None:
        self.count, self.fail_at, self.error = 0, fail_at, error
        self.unsynced: set[Path] = set()

    def _tick(self) -> None:
        self.count += 1
        if self.count == self.fail_at:
            raise self.error

    def mkdir(self, path: Path) -> None:
        self._tick()
        super().mkdir(path)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        self.unsynced.add(Path(file.name))
        try:
            self._tick()
        except BaseException:
            super().write(file, bytes(data)[: len(bytes(data)) // 2])
            raise
        super().write(file, data)

    def sync(self, path: Path) -> None:
        self._tick()
        super().sync(path)
        self.unsynced.discard(path)

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        super().rename(old, new)
        self.unsynced = {new / p.relative_to(old) if old in p.parents else p for p in self.unsynced}

    def remove(self, path: Path) -> None:
        self._tick()
        super().remove(path)
        self.unsynced = {p for p in self.unsynced if path not in p.parents}

    def lose_power(self, rng: random.Random) -> None:
        """Simulate a power cut: truncate files that were not synced at random lengths."""
        for path in sorted(self.unsynced):
            os.truncate(path, rng.randrange(path.stat().st_size + 1))


@contextlib.contextmanager
def on(disk: Disk) -> Iterator[None]:
    """Have the operations of another disk take the place of the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "write", "sync", "rename", "remove"):
            patch.setattr(DISK, name, getattr(disk, name))
        yield


def operations(directory: Path) -> int:
    counter = Failing(0, Crash())
    with on(counter):
        save_arrays(directory, NEW, {"age": "new"})
    return counter.count


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name])
        for name in left
    )


def holds_old_or_new(directory: Path) -> str:
    arrays, metadata = load_arrays(directory)
    assert same(arrays, OLD if metadata["age"] == "old" else NEW)
    return str(metadata["age"])


@pytest.mark.parametrize("mmap", [False, True])
def test_what_is_saved_is_loaded(tmp_path: Path, mmap: bool) -> None:
    arrays = {
        "empty": np.zeros((0, 4)),
        "scalar": np.array(3, dtype=np.uint8),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(10)[::2],
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j], dtype=np.complex64),
    }
    save_arrays(tmp_path / "a" / "b", arrays, {"x": [1, None, "é"]})
    loaded, metadata = load_arrays(tmp_path / "a" / "b", mmap=mmap)
    assert same(loaded, arrays)
    assert metadata == {"x": [1, None, "é"]}
    assert isinstance(loaded["fortran"], np.memmap) is mmap


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_]{1,9}", fullmatch=True),
        hnp.arrays(
            hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(),
            hnp.array_shapes(min_dims=0, min_side=0),
        ),
        max_size=3,
    )
)
def test_any_arrays_survive_the_disk(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray]
) -> None:
    directory = tmp_path_factory.mktemp("any") / "set"
    save_arrays(directory, arrays)
    loaded, _ = load_arrays(directory)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].tobytes() == array.tobytes()


def test_threads_load_at_the_same_time(tmp_path: Path) -> None:
    save_arrays(tmp_path / "set", NEW)

    def load(frames: int) -> None:  # Python's parser compares how deep its callers are.
        if frames:
            return load(frames - 1)
        for _ in range(300):
            assert np.array_equal(load_array(tmp_path / "set" / "values.npy"), NEW["values"])
        return None

    def other_threads_turn(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    thresholds = gc.get_threshold()
    gc.callbacks.append(other_threads_turn)
    gc.set_threshold(1)  # Collections come while a head is parsed, too.
    try:
        with ThreadPoolExecutor(4) as threads:
            for loaded in [threads.submit(load, 20 * number) for number in range(4)]:
                loaded.result()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(other_threads_turn)


def test_equal_sets_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_arrays(tmp_path / name, NEW, {"b": 1, "a": 2})
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_point_leaves_the_old_set_or_the_new_one(
    tmp_path: Path, power_loss: bool
) -> None:
    save_arrays(tmp_path / "count", OLD, {"age": "old"})
    total = operations(tmp_path / "count")
    assert total > 8
    ages = []
    for fail_at in range(1, total + 1):
        directory = tmp_path / str(fail_at)
        save_arrays(directory, OLD, {"age": "old"})
        disk = Failing(fail_at, Crash())
        with pytest.raises(Crash), on(disk):
            save_arrays(directory, NEW, {"age": "new"})
        if power_loss:
            disk.lose_power(random.Random(fail_at))
        ages.append(holds_old_or_new(directory))
        save_arrays(directory, NEW, {"age": "new"})  # What was left behind is no hindrance.
        assert holds_old_or_new(directory) == "new"
        assert not (tmp_path / f".{fail_at}.new").exists()
        assert not (tmp_path / f".{fail_at}.old").exists()
    assert set(ages) == {"old", "new"}
    assert ages == sorted(ages, reverse=True)  # Never back from new to old.


def test_a_crash_of_the_first_save_leaves_nothing_that_loads(tmp_path: Path) -> None:
    total = operations(tmp_path / "count")
    for fail_at in range(1, total):
        with pytest.raises(Crash), on(Failing(fail_at, Crash())):
            save_arrays(tmp_path / "set", NEW, {"age": "new"})
        if not (tmp_path / "set").exists():
            with pytest.raises(StorageError, match="No such file"):
                load_arrays(tmp_path / "set")
        else:
            assert holds_old_or_new(tmp_path / "set") == "new"
            shutil.rmtree(tmp_path / "set")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_refuses_is_named_and_the_old_set_stays(tmp_path: Path, code: int) -> None:
    directory = tmp_path / "set"
    save_arrays(tmp_path / "count", OLD, {"age": "old"})
    total = operations(tmp_path / "count")
    for fail_at in range(1, total + 1):
        shutil.rmtree(directory, ignore_errors=True)
        save_arrays(directory, OLD, {"age": "old"})
        error = OSError(code, os.strerror(code))
        with (
            pytest.raises(StorageError, match=rf"set: .*written: .*errno {code}"),
            on(Failing(fail_at, error)),
        ):
            save_arrays(directory, NEW, {"age": "new"})
        # The three last operations come after the new set is in place.
        assert holds_old_or_new(directory) == ("old" if fail_at <= total - 2 else "new")
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_random_byte_flips_are_noticed(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    save_arrays(directory, NEW, {"age": "new", "beta": 0.1})
    expected = load_arrays(directory)[1]
    files = sorted(directory.iterdir())
    rng, refused = random.Random(0), 0
    for _ in range(200):
        file = rng.choice(files)
        good = file.read_bytes()
        place = rng.randrange(len(good))
        if rng.random() < 0.2:
            file.write_bytes(good[:place])
        else:
            damaged = bytearray(good)
            damaged[place] ^= 1 << rng.randrange(8)
            file.write_bytes(damaged)
        try:
            arrays, metadata = load_arrays(directory)
        except StorageError:
            refused += 1
        else:  # Only the spaces between the words of the manifest mean nothing.
            assert file.name == "manifest.json"
            assert same(arrays, NEW)
            assert metadata == expected
        file.write_bytes(good)
    assert refused > 150


def forge(directory: Path, **changes: Any) -> None:
    """Rewrite the manifest with a correct sha256 of its own, as an attacker would."""
    from empo_core.runs.atomic import digest

    manifest = json.loads((directory / "manifest.json").read_text())
    entry = manifest["body"]["arrays"].pop("values")
    name = changes.pop("name", "values")
    manifest["body"]["arrays"][name] = entry | changes
    manifest["sha256"] = digest(manifest["body"])
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    save_arrays(tmp_path / "set", OLD, {"age": "old"})
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "../values"}, "not in manifest|not allowed"),
        ({"name": "/etc/passwd"}, "not allowed"),
        ({"name": "..\\values"}, "not allowed"),
        ({"name": ".hidden"}, "not allowed"),
        ({"shape": [10**9, 10**9]}, "truncated"),
        ({"shape": [-1]}, "equal.*0"),
        ({"shape": [2.0, 3]}, "valid integer"),
        ({"shape": [3, 2]}, r"holds <f8 \[2, 3\]"),
        ({"shape": [1] * 33}, "at most 32"),
        ({"dtype": "|O"}, "boolean"),
        ({"dtype": "<f4"}, "holds <f8"),
        ({"dtype": "{x"}, "exist"),
        ({"bytes": 10**15}, "truncated"),
        ({"sha256": "0" * 64}, "sha256"),
        ({"code": "print(1)"}, "not permitted"),
    ],
)
def test_a_forged_manifest_is_refused(stored: Path, changes: dict[str, Any], reason: str) -> None:
    forge(stored, **changes)
    with pytest.raises(StorageError, match=reason):
        load_arrays(stored)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not ours"),
        (b"\xff\xfe", "not ours"),
        (b"[]", "not ours"),
        (b'{"format": "other"}', "not ours"),
        (
            b'{"format": "empo-arrays", "version": 2, "sha256": "", "body": {}}',
            "version 2",
        ),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -1e400}', "-1e400"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b"[" * 100_000, "not ours"),
        (b"9" * 5000, "not ours"),
    ],
)
def test_a_foreign_manifest_is_refused(stored: Path, text: bytes, reason: str) -> None:
    (stored / "manifest.json").write_bytes(text)
    with pytest.raises(StorageError, match=reason):
        load_arrays(stored)


def test_an_array_file_with_pickled_objects_is_refused(stored: Path) -> None:
    import hashlib

    path = stored / "values.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.array([{}], dtype=object), allow_pickle=True)
    raw = path.read_bytes()
    forge(stored, shape=[1], bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())
    with pytest.raises(StorageError, match=r"Python objects"):
        load_arrays(stored)


def test_links_pipes_and_strangers_are_refused(stored: Path) -> None:
    path = stored / "values.npy"
    path.rename(stored.parent / "elsewhere.npy")
    path.symlink_to(stored.parent / "elsewhere.npy")
    with pytest.raises(StorageError, match=r"values\.npy:"):
        load_arrays(stored)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="regular file"):
        load_arrays(stored)
    path.unlink()
    with pytest.raises(StorageError, match=r"values\.npy:"):
        load_arrays(stored)
    (stored / "extra.npy").write_bytes(b"")
    with pytest.raises(StorageError, match=r"extra\.npy:"):
        load_arrays(stored)


def test_only_numbers_and_good_names_can_be_saved(tmp_path: Path) -> None:
    for arrays, reason in [
        ({"x": np.array([{}], dtype=object)}, "booleans"),
        ({"x": np.array(["a"])}, "booleans"),
        ({"../x": np.zeros(1)}, "letters, digits"),
        ({"": np.zeros(1)}, "letters, digits"),
    ]:
        with pytest.raises(StorageError, match=reason):
            save_arrays(tmp_path / "set", arrays)
    with pytest.raises(StorageError, match="not strict JSON"):
        save_arrays(tmp_path / "set", {}, {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("dear")
    with pytest.raises(StorageError, match="other files"):
        save_arrays(tmp_path / "home", NEW)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "dear"
    with pytest.raises(StorageError, match="directory"):
        save_arrays(tmp_path / "home" / "thesis.tex", NEW)


def test_a_small_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    counter = Failing(0, Crash())
    with on(counter):
        write_file(path, "old")
    for fail_at in range(1, counter.count + 1):
        write_file(path, "old")
        with pytest.raises(Crash), on(Failing(fail_at, Crash())):
            write_file(path, "new!")
        assert path.read_text() in ("old", "new!")
        write_file(path, "old")
        with (
            pytest.raises(StorageError, match=r"status\.json:"),
            on(Failing(fail_at, OSError(errno.ENOSPC, "full"))),
        ):
            write_file(path, "new!")


def test_json_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    assert read_json(path) == [1, 2]
    with pytest.raises(StorageError, match="larger than 3 bytes"):
        read_json(path, max_bytes=3)
