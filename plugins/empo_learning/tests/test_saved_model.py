"""Saved models: what comes back is what was written, or a clear refusal that runs nothing."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import ConfigError, NonFiniteError, StorageError
from empo_core.runs.atomic import DISK, StrictModel
from empo_learning.saved_model import (
    KEY,
    Format,
    SavedModel,
    load_weights,
    read_model,
    rebuilding,
    write_model,
)

FORMAT = Format("empo-test-model", 1)


class Body(StrictModel):
    sizes: list[int]


WEIGHTS = {"one": torch.arange(6.0).view(2, 3), "two": torch.tensor([True, False])}
STATISTICS = {"mean": torch.tensor([0.1], dtype=torch.float64)}


def saved(path: Path) -> Path:
    write_model(path, FORMAT, Body(sizes=[2, 3]), WEIGHTS, statistics=STATISTICS)
    return path


def read(path: Path) -> SavedModel[Body]:
    return read_model(path, FORMAT, Body)


def assert_is_what_was_written(saved: SavedModel[Body]) -> None:
    assert saved.body == Body(sizes=[2, 3])
    torch.testing.assert_close(saved.weights, WEIGHTS, rtol=0, atol=0)
    torch.testing.assert_close(saved.statistics, STATISTICS, rtol=0, atol=0)


def test_body_weights_and_statistics_come_back(tmp_path: Path) -> None:
    found = read(saved(tmp_path / "new folder" / "model"))
    assert_is_what_was_written(found)
    found.weights["one"][0, 0] = 7  # They have memory of their own.
    assert_is_what_was_written(read(tmp_path / "new folder" / "model"))


def test_equal_models_are_equal_files_without_a_pickle(tmp_path: Path) -> None:
    assert saved(tmp_path / "a").read_bytes() == saved(tmp_path / "b").read_bytes()
    with safetensors.safe_open(tmp_path / "a", "pt") as file:
        assert set(file.keys()) == {"weights/one", "weights/two", "statistics/mean"}


def test_a_full_disk_leaves_the_older_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: Any, data: Any) -> None:
        raise OSError(28, "No space left on device")

    path = saved(tmp_path / "model")
    monkeypatch.setattr(DISK, "write", write)
    with pytest.raises(StorageError, match="No space left"):
        write_model(path, FORMAT, Body(sizes=[]), {})
    assert_is_what_was_written(read(path))
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("group", ["weights", "statistics"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_not_saved(tmp_path: Path, group: str, bad: float) -> None:
    given: dict[str, Any] = {"weights": {}, group: {"layer.bias": torch.tensor([bad])}}
    with pytest.raises(NonFiniteError, match=r"layer\.bias"):
        write_model(tmp_path / "model", FORMAT, Body(sizes=[]), **given)
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


def test_another_sort_or_version_of_model_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    with pytest.raises(StorageError, match=r"'empo-test-model'.*'other'"):
        read_model(path, Format("other", 1), Body)
    with pytest.raises(StorageError, match="version 1"):
        read_model(path, Format("empo-test-model", 2), Body)


def test_what_fails_while_a_model_is_built_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    why = r"model: .*here: sizes: .*empo-x"
    with pytest.raises(StorageError, match=why), rebuilding(path, "empo-x"):
        Body.model_validate({"sizes": 3})
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
