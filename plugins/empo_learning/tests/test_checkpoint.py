"""A checkpoint gives back what was saved, and refuses what was not written by us."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_core.errors import NonFiniteError, StorageError
from empo_core.runs.atomic import digest
from empo_learning.checkpoint import Checkpoints

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equal to the bit, types included."""
    if isinstance(left, Tensor):
        return (
            isinstance(right, Tensor)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and bits(left) == bits(right)
        )
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and list(left) == list(right)
            and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, list | tuple):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(same(*pair) for pair in zip(left, right, strict=True))
        )
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and left == right and str(left) == str(right)


def bits(tensor: Tensor) -> bytes:
    values = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).flatten()
    return values.view(torch.uint8).numpy().tobytes()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def awkward() -> dict[str, Any]:
    """One of everything that a learner may have to keep."""
    base = torch.arange(12.0).reshape(3, 4)
    generator = torch.Generator().manual_seed(3)
    network = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(network.parameters())
    network(torch.ones(3)).sum().backward()
    adam.step()
    return {
        "dtypes": {str(dtype): torch.tensor([[0, 1], [1, 0]]).to(dtype) for dtype in DTYPES},
        "scalars": [torch.tensor(True), torch.tensor(3, dtype=torch.int16), torch.tensor(math.nan)],
        "empty": [torch.zeros(0), torch.zeros(3, 0, 5, dtype=torch.bool)],
        "one": torch.tensor(5, dtype=torch.int16).expand(1, 1),  # Contiguous, with stride 0.
        "strided": {"transposed": base.T, "step": base[:, ::2], "expanded": base[:1].expand(3, 4)},
        "shared": [base, base, base[1:]],
        "network": network.state_dict(),
        "parameter": torch.nn.Parameter(base.clone()),
        "adam": adam.state_dict(),
        "generator": generator.get_state(),
        "numbers": [0, -1, 2**70, 0.1, -0.0, 5e-324, math.nan, math.inf, -math.inf, True, None],
        "words": ["", "é", "\ud800", "</script>", "a/b"],
        "keys": {"": 1, "a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "$tensor": "a/b"},
        "marks": [{"$tensor": "x"}, {"$": 1}, {"$$float": 2}, {3: "three", "3": torch.ones(1)}],
        "__metadata__": torch.ones(2),
        "nothing": [{}, [], ()],
    }


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints")


def test_everything_a_learner_keeps_comes_back(checkpoints: Checkpoints) -> None:
    state = awkward()
    path = checkpoints.save(7, state)
    assert path == checkpoints.directory / "step-7"
    step, found = checkpoints.newest() or (None, None)
    assert step == 7
    expected = state | {"network": dict(state["network"])}
    assert same(expected, found)


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = Checkpoints(tmp_path / "first"), Checkpoints(tmp_path / "second")
    one = first.save(3, awkward(), score=0.5)
    two = second.save(3, first.load(3), score=0.5)
    assert contents(one) == contents(two)


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=4)
    | st.builds(
        lambda dtype, shape, seed: torch.tensor(
            np.random.RandomState(seed).randint(0, 2, shape), dtype=dtype
        ),
        st.sampled_from(DTYPES),
        st.lists(st.integers(0, 3), max_size=3).map(tuple),
        st.integers(0, 9),
    )
)
keys = st.text(max_size=3) | st.sampled_from(["$", "$tensor", "a/b", "__metadata__", "~"])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(state=st.dictionaries(keys, trees, max_size=3))
def test_any_tree_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]
) -> None:
    directory = tmp_path_factory.mktemp("any")
    path = Checkpoints(directory / "a").save(0, state)
    found = Checkpoints(directory / "a").load(0)
    assert same(state, found)
    assert contents(path) == contents(Checkpoints(directory / "b").save(0, found))


def test_other_tools_can_read_the_tensors(checkpoints: Checkpoints) -> None:
    state = {"table": {"values": torch.randn(5, 3), "visits": torch.arange(5)}, "beta": 0.5}
    path = checkpoints.save(0, state)
    tensors = safetensors.torch.load_file(path / "tensors.safetensors")
    assert sorted(tensors) == ["table/values", "table/visits"]
    assert torch.equal(tensors["table/values"], state["table"]["values"])
    plain = json.loads((path / "state.json").read_text())
    assert plain["beta"] == 0.5
    everything = checkpoints.save(1, awkward()) / "tensors.safetensors"
    assert "keys/a/b~" in safetensors.torch.load_file(everything)


def test_loaded_tensors_have_memory_of_their_own(checkpoints: Checkpoints) -> None:
    base = torch.zeros(4)
    checkpoints.save(0, {"a": base, "b": base})
    found = checkpoints.load(0)
    found["a"] += 1
    assert found["b"].tolist() == [0, 0, 0, 0]
    assert checkpoints.load(0)["a"].tolist() == [0, 0, 0, 0]


# What is kept.


def test_the_newest_and_the_best_are_kept(checkpoints: Checkpoints) -> None:
    for step, score in [(1, 0.1), (2, 0.9), (3, None), (4, 0.9), (5, 0.2), (6, None), (7, -1.0)]:
        checkpoints.save(step, {"step": step}, score=score)
    assert checkpoints.steps() == [4, 6, 7]  # Of equally good ones the newest.
    assert checkpoints.newest() == (7, {"step": 7})
    assert checkpoints.best() == (4, {"step": 4})
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == [
        "step-4",
        "step-6",
        "step-7",
    ]


def test_one_may_be_kept_or_many(tmp_path: Path) -> None:
    for keep in (1, 3):
        checkpoints = Checkpoints(tmp_path / str(keep), keep=keep)
        for step in range(5):
            checkpoints.save(step, {})
        assert checkpoints.steps() == list(range(5 - keep, 5))
    with pytest.raises(ValueError, match="at least 1 checkpoint"):
        Checkpoints(tmp_path, keep=0)


def test_steps_are_compared_as_numbers(checkpoints: Checkpoints) -> None:
    for step in (9, 10, 100):
        checkpoints.save(step, {})
    assert checkpoints.steps() == [10, 100]


def test_a_step_saved_again_replaces_the_first(checkpoints: Checkpoints) -> None:
    checkpoints.save(5, {"which": "first"}, score=1.0)
    checkpoints.save(5, {"which": "second"})
    assert checkpoints.newest() == (5, {"which": "second"})
    assert checkpoints.best() is None


def test_steps_after_a_new_one_are_of_an_abandoned_past(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        checkpoints.save(step, {"from": "before"}, score=1.0)
    checkpoints.save(15, {"from": "after"})
    assert checkpoints.newest() == (15, {"from": "after"})
    assert checkpoints.best() == (10, {"from": "before"})


def test_without_checkpoints_there_is_no_newest(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() is None
    assert checkpoints.best() is None
    assert checkpoints.steps() == []
    with pytest.raises(StorageError, match=r"checkpoint .*step 3"):
        checkpoints.load(3)
    checkpoints.save(1, {})
    assert checkpoints.best() is None
    with pytest.raises(StorageError, match=r"checkpoint .*step 3"):
        checkpoints.load(3)


# What cannot be saved.


class Odd:
    pass


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"a": [Odd()]}, "a/0: .*Odd"),
        ({"a": {"b": np.zeros(3)}}, "a/b: .*ndarray"),
        ({"a": {1.5: 2}}, "a: .*key is 1.5"),
        ({"a": {True: 2}}, "a: .*key is True"),
        ({"a": {(1, 2): 2}}, r"a: .*key is \(1, 2\)"),
        ({"a": torch.zeros(2).to_sparse()}, "'a' is torch.float32 in layout torch.sparse_coo"),
        ({"a": torch.zeros(2, device="meta")}, "'a' is torch.float32 .* on meta"),
        ({"a\ud800": torch.zeros(2)}, "surrogates"),
        ({"a": 10**5000}, "not strict JSON"),
        ({"a": "x" * 2**26}, "long lists"),
    ],
)
def test_what_cannot_be_stored_is_named_and_leaves_nothing(
    checkpoints: Checkpoints, state: dict[str, Any], reason: str
) -> None:
    checkpoints.save(1, {"good": 1})
    with pytest.raises(StorageError, match=reason):
        checkpoints.save(2, state)
    assert [path.name for path in checkpoints.directory.iterdir()] == ["step-1"]


def test_a_state_that_contains_itself_is_refused(checkpoints: Checkpoints) -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(StorageError, match="contains itself"):
        checkpoints.save(0, state)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_must_be_finite(checkpoints: Checkpoints, score: float) -> None:
    with pytest.raises(NonFiniteError, match=f"step 4 is {score}"):
        checkpoints.save(4, {}, score=score)


def test_a_negative_step_is_refused(checkpoints: Checkpoints) -> None:
    with pytest.raises(ValueError, match="step is -1"):
        checkpoints.save(-1, {})


# What is refused on reading.


@pytest.fixture
def stored(checkpoints: Checkpoints) -> Path:
    checkpoints.save(1, {"which": "previous"})
    return checkpoints.save(2, {"values": torch.arange(4.0), "flag": torch.tensor([True, False])})


def reseal(path: Path) -> None:
    """Make the manifest agree with the files, as an attacker would."""
    manifest = json.loads((path / "manifest.json").read_text())
    for name in manifest["body"]["files"]:
        raw = (path / name).read_bytes()
        entry = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        manifest["body"]["files"][name] = entry
    forge(path, manifest)


def forge(path: Path, manifest: dict[str, Any]) -> None:
    manifest["sha256"] = digest(manifest["body"])
    (path / "manifest.json").write_text(json.dumps(manifest))


def falls_back(path: Path, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(path.parent)
    with pytest.raises(StorageError, match=reason):
        checkpoints.load(2)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest() == (1, {"which": "previous"})
    assert "checkpoint of step 2 refused, trying the one before" in caplog.text


def framed(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def place(dtype: str = "F32", shape: object = (4,), offsets: object = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


FLAG = place("BOOL", [2], [16, 18])
HOSTILE = {
    "nothing": b"",
    "a short length": b"\x01\x00",
    "a header longer than the file": (2**62).to_bytes(8, "little") + b"{}",
    "a header of no JSON": framed(b"\x80\x05pickle"),
    "a name twice": framed(b'{"a": {"dtype": "F32"}, "a": {}}'),
    "a deep header": framed(b"[" * 100_000),
    "a list": framed([]),
    "metadata": framed({"__metadata__": {"x": "y"}}),
    "an unknown dtype": framed({"values": place("OBJ")}, bytes(16)),
    "a negative axis": framed({"values": place(shape=[-4])}, bytes(16)),
    "a float axis": framed({"values": place(shape=[4.0])}, bytes(16)),
    "a boolean axis": framed({"values": place(shape=[True])}, bytes(16)),
    "too many axes": framed({"values": place(shape=[1] * 99)}, bytes(16)),
    "one offset": framed({"values": place(offsets=[0])}, bytes(16)),
    "a huge shape": framed({"values": place(shape=[10**9, 10**9])}, bytes(16)),
    "a huge empty shape": framed({"values": place(shape=[0, 2**62, 2**62], offsets=[0, 0])}),
    "an end before the start": framed({"values": place(offsets=[16, 0])}, bytes(16)),
    "an end beyond the file": framed({"values": place()}, bytes(8)),
    "an overlap": framed({"values": place(), "flag": place("BOOL", [2], [8, 10])}, bytes(16)),
    "a hole": framed({"values": place(), "flag": place("BOOL", [2], [17, 19])}, bytes(19)),
    "trailing data": framed({"values": place(), "flag": FLAG}, bytes(18) + b"code"),
    "a missing tensor": framed({"values": place()}, bytes(16)),
    "a tensor too many": framed(
        {"values": place(), "flag": FLAG, "z": place("U8", [1], [18, 19])}, bytes(19)
    ),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tensor_file_is_refused(
    stored: Path, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (stored / "tensors.safetensors").write_bytes(raw)
    reseal(stored)
    falls_back(stored, r"(tensors\.safetensors|state\.json): ", caplog)


def test_a_byte_that_is_no_boolean_becomes_one(stored: Path) -> None:
    raw = framed({"values": place(), "flag": FLAG}, bytes(17) + b"\x02")
    (stored / "tensors.safetensors").write_bytes(raw)
    reseal(stored)
    flag = Checkpoints(stored.parent).load(2)["flag"]
    assert flag.view(torch.uint8).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "not a dictionary|belongs nowhere"),
        ('{"$tensor": "values"}', "belongs nowhere|not a dictionary"),
        ('{"a": {"$tensor": "values"}, "b": {"$tensor": "values"}}', r"wrong '\$tensor'"),
        ('{"a": {"$tensor": "/etc/passwd"}}', r"wrong '\$tensor'"),
        ('{"a": {"$tensor": ["values"]}}', r"wrong '\$tensor'"),
        ('{"a": {"$float": "1e999"}}', r"wrong '\$float'"),
        ('{"a": {"$float": NaN}}', "NaN is not JSON"),
        ('{"a": {"$pickle": "gASV"}}', r"wrong '\$pickle'"),
        ('{"a": {"$items": [[1.5, 2]]}}', r"wrong '\$items'"),
        ('{"a": {"$items": [[1, 2], [1, 3]]}}', "a key twice"),
        ('{"a": {"$items": [[[], 2]]}}', r"wrong '\$items'"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"a":' + "[" * 100_000, "not ours"),
        ("\x00", "not ours"),
    ],
)
def test_a_hostile_state_file_is_refused(
    stored: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    (stored / "state.json").write_text(text)
    reseal(stored)
    falls_back(stored, reason, caplog)


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        change(manifest)
        forge(path, manifest)

    return damage


def rename_file(new: str) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        files = manifest["body"]["files"]
        files[new] = files.pop("state.json")

    return change


MANIFESTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another version": (edit(lambda m: m.update(version=2)), "version 2"),
    "another format": (edit(lambda m: m.update(format="empo-arrays")), "format is 'empo-arrays'"),
    "another step": (edit(lambda m: m["body"].update(step=3)), "step 3"),
    "a file elsewhere": (edit(rename_file("../../config.yaml")), "ours: files"),
    "an absolute file": (edit(rename_file("/etc/passwd")), "ours: files"),
    "a file less": (edit(lambda m: m["body"]["files"].pop("state.json")), "files: .*at least 2"),
    "a key more": (edit(lambda m: m["body"].update(code="print(1)")), "code: Extra inputs"),
    "a wrong size": (
        edit(lambda m: m["body"]["files"]["state.json"].update(bytes=10**15)),
        "1,000,000,000,000,000",
    ),
    "a wrong sha256": (
        edit(lambda m: m["body"]["files"]["tensors.safetensors"].update(sha256="0" * 64)),
        "tensors.safetensors: .*sha256",
    ),
    "an edit": (
        lambda path: (path / "manifest.json").write_text(
            (path / "manifest.json").read_text().replace('"step": 2', '"step": 1')
        ),
        "manifest.json: is damaged: its sha256 does not match",
    ),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "manifest.json: cannot be"),
    "no state": (lambda path: (path / "state.json").unlink(), "state.json: cannot be read"),
    "a stranger": (lambda path: (path / "x.py").write_text("1"), "x.py: is not in manifest.json"),
    "an empty file": (lambda path: (path / "state.json").write_text(""), "has 0 bytes where"),
    "a pipe": (
        lambda path: ((path / "state.json").unlink(), os.mkfifo(path / "state.json")),
        "is not a regular file",
    ),
    "a link to a file": (lambda path: link(path / "state.json"), "is a symbolic link"),
    "a link to a directory": (lambda path: link(path), "is a symbolic link"),
}


def link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(("damage", "reason"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_tampered_checkpoint_is_refused(
    stored: Path,
    damage: Callable[[Path], object],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(stored)
    falls_back(stored, reason, caplog)


def test_when_all_are_damaged_each_is_named(stored: Path) -> None:
    checkpoints = Checkpoints(stored.parent)
    checkpoints.save(3, {}, score=1.0)
    (stored.parent / "step-2" / "state.json").write_text("")
    (stored.parent / "step-3" / "manifest.json").write_text("")
    with pytest.raises(StorageError, match="every checkpoint") as caught:
        checkpoints.newest()
    _, third, second = str(caught.value).splitlines()
    assert "step-3/manifest.json" in third
    assert "step-2/state.json" in second


def test_a_damaged_step_can_be_saved_again(stored: Path) -> None:
    checkpoints = Checkpoints(stored.parent)
    (stored / "manifest.json").unlink()
    checkpoints.save(2, {"which": "again"})
    assert checkpoints.newest() == (2, {"which": "again"})
    assert checkpoints.steps() == [1, 2]


def test_a_damaged_best_gives_way_to_the_next(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step, score in ((1, 1.0), (2, 3.0), (3, 2.0)):
        checkpoints.save(step, {"score": score}, score=score)
    (tmp_path / "step-2" / "state.json").write_text("{}")
    assert checkpoints.best() == (3, {"score": 2.0})


def test_damaged_ones_do_not_count_as_kept(stored: Path) -> None:
    checkpoints = Checkpoints(stored.parent)
    (stored / "manifest.json").write_text("")
    checkpoints.save(3, {"which": "third"})
    shutil.rmtree(stored.parent / "step-3")
    assert checkpoints.newest() == (1, {"which": "previous"})


def test_other_files_in_the_folder_are_left_alone(stored: Path) -> None:
    (stored.parent / "notes.txt").write_text("mine")
    (stored.parent / "step-02").mkdir()
    (stored.parent / ".step-x.new").mkdir()
    checkpoints = Checkpoints(stored.parent, keep=1)
    checkpoints.save(3, {})
    assert checkpoints.steps() == [3]
    assert {path.name for path in stored.parent.iterdir()} == {
        "step-3", "notes.txt", "step-02", ".step-x.new",
    }  # fmt: skip


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"written: .*errno {errno.ENOTDIR}"):
        Checkpoints(tmp_path / "file" / "checkpoints").save(0, {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
