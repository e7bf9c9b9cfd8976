"""Saved models: what comes back is what was written, or a clear refusal that runs nothing."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import ConfigError, NonFiniteError, StorageError
from empo_core.runs.atomic import DISK
from empo_learning.saved_model import (
    KEY,
    SavedModel,
    load_weights,
    model_bytes,
    read_model,
    rebuilding,
    write_model,
)


@dataclass(frozen=True)
class Sizes:
    """What a model sees and does."""

    words: tuple[int, ...]
    high: float = math.inf


PARAMS: dict[str, Any] = {"hidden": [4]}
STATE = {
    "one": torch.arange(6.0).view(2, 3),
    "two": torch.tensor([True, False]),
    "mean": torch.tensor([0.1], dtype=torch.float64),
}


def saved(path: Path) -> Path:
    write_model(path, "test", PARAMS, Sizes((2, 3)), STATE, world={"name": "here"})
    return path


def read(path: Path) -> SavedModel[Sizes]:
    return read_model(path, "test", Sizes)


def assert_is_what_was_written(saved: SavedModel[Sizes]) -> None:
    assert (saved.params, saved.spec, saved.world) == (PARAMS, Sizes((2, 3)), {"name": "here"})
    torch.testing.assert_close(saved.state, STATE, rtol=0, atol=0)


def test_parameters_sizes_and_state_come_back(tmp_path: Path) -> None:
    found = read(saved(tmp_path / "new folder" / "model"))
    assert_is_what_was_written(found)
    found.state["one"][0, 0] = 7  # Tensors have memory of their own.
    assert_is_what_was_written(read(tmp_path / "new folder" / "model"))


def test_equal_models_are_equal_files_without_a_pickle(tmp_path: Path) -> None:
    assert saved(tmp_path / "a").read_bytes() == saved(tmp_path / "b").read_bytes()
    with safetensors.safe_open(tmp_path / "a", "pt") as file:
        assert set(file.keys()) == set(STATE)


def test_a_full_disk_leaves_the_older_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: Any, data: Any) -> None:
        raise OSError(28, "No space left on device")

    path = saved(tmp_path / "model")
    monkeypatch.setattr(DISK, "write", write)
    with pytest.raises(StorageError, match="No space left"):
        write_model(path, "test", {}, None, {})
    assert_is_what_was_written(read(path))
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_not_saved(tmp_path: Path, bad: float) -> None:
    with pytest.raises(NonFiniteError, match=r"layer\.bias"):
        write_model(tmp_path / "model", "test", {}, None, {"layer.bias": torch.tensor([bad])})
    assert not (tmp_path / "model").exists()


def test_any_flipped_byte_is_noticed(tmp_path: Path) -> None:
    content = saved(tmp_path / "model").read_bytes()
    damaged = tmp_path / "damaged"

    @settings(max_examples=200)
    @given(st.integers(0, len(content) - 1), st.integers(1, 255))
    def check(position: int, change: int) -> None:
        wrong = bytearray(content)
        wrong[position] ^= change
        damaged.write_bytes(wrong)
        try:
            found = read(damaged)
        except StorageError:
            return
        # Blanks between the parts of the header may change without changing anything.
        assert_is_what_was_written(found)

    check()


@pytest.mark.parametrize("length", [0, 4, 8, 100, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, length: int) -> None:
    path = saved(tmp_path / "model")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StorageError, match=r"cut off|damaged"):
        read(path)


def test_a_missing_file_a_link_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="read: No such file"):
        read(tmp_path / "none")
    (tmp_path / "link").symlink_to(saved(tmp_path / "model"))
    with pytest.raises(StorageError, match="symbolic link"):
        read(tmp_path / "link")
    with pytest.raises(StorageError, match=r"be read|regular file"):
        read(tmp_path)


class Canary:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("canary",)


def test_foreign_files_are_refused_and_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, some = tmp_path / "foreign", {"w": torch.zeros(2)}
    for content in (
        pickle.dumps(Canary()),
        b"",
        b"\x10" + bytes(7) + b"{" * 16,
        (2).to_bytes(8, "little") + b"[]",
        (10**12).to_bytes(8, "little") + b"{}",
        safetensors.torch.save(some),
        safetensors.torch.save(some, {KEY: "not json"}),
        safetensors.torch.save(some, {KEY: '{"version": 1}'}),
        safetensors.torch.save(some, {KEY: '{"version": NaN}'}),
    ):
        file.write_bytes(content)
        with pytest.raises(StorageError, match="foreign: "):
            read(file)
    assert not (tmp_path / "canary").exists()


def test_another_learner_or_version_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    with pytest.raises(StorageError, match=r"'test'.*'other'"):
        read_model(path, "other", Sizes)
    path.write_bytes(model_bytes({"learner": "test"}, STATE, version=2))
    with pytest.raises(StorageError, match="version 2"):
        read(path)


@pytest.mark.parametrize("spec", [{"words": [1], "goals": 2}, {"words": "many"}, None])
def test_sizes_that_cannot_be_read_are_refused(tmp_path: Path, spec: Any) -> None:
    body = {"learner": "test", "params": {}, "spec": spec, "world": None}
    (tmp_path / "model").write_bytes(model_bytes(body, STATE))
    with pytest.raises(StorageError, match=r"spec"):
        read(tmp_path / "model")


def test_what_fails_while_a_model_is_built_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    why = r"model: .*here: such sizes; .*empo-x"
    with pytest.raises(StorageError, match=why), rebuilding(path, "empo-x"):
        raise ValueError("such sizes")
    with pytest.raises(StorageError, match="such network"), rebuilding(path, "empo-x"):
        raise ConfigError("no such network")
    with pytest.raises(StorageError, match=r"^unchanged$"), rebuilding(path, "empo-x"):
        raise StorageError("unchanged")


def test_weights_of_another_dtype_or_shape_are_refused() -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(RuntimeError, match=r"weight is torch\.float64, not torch\.float32"):
        load_weights(model, {"weight": torch.zeros(1, 2, dtype=torch.float64)})
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_weights(model, {"weight": torch.zeros(1, 3), "bias": torch.zeros(1)})
    load_weights(model, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    assert bool(model.weight.eq(1).all())
