"""Runs on disk: what is read of them, and what is said of damaged ones."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from pydantic import JsonValue

import empo_core
from empo_core.errors import ConfigError, StorageError
from empo_core.runs.directory import read_config, write_config
from empo_core.runs.metrics import read_metrics
from empo_core.saved_run import read_run
from empo_core.tables import table_lines

CONFIG = "world_model: {name: w, params: {}}\nalgorithm:\n  name: a\nseed: 3\n"
HERE = {"host": socket.gethostname(), "pid": os.getpid()}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a finished run's directory with some files replaced, or left out where None."""

    def written(**files: str | None) -> Path:
        status = {"status": "finished", "task": "t", "seconds": 2.5}
        status |= {"started": "2026-01-01T00:00:00+00:00", "updated": "2026-01-01T00:01:00+00:00"}
        texts: dict[str, str | None] = {
            "config.yaml": CONFIG,
            "status.json": json.dumps(status),
            "results/summary.json": '{"root": {"V_r": -1.5}}',
        }
        texts |= {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
        for name, text in texts.items():
            path = tmp_path / "run" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text)
        return tmp_path / "run"

    return written


def test_an_open_run_says_what_was_asked_how_it_went_and_what_came_of_it(write: Write) -> None:
    found = empo_core.open_run(write(metrics_jsonl='{"step": 1, "m": 2}\n'))
    assert found.config["algorithm"] == {"name": "a"}
    assert (found.status, found.reason, found.seconds) == ("finished", None, 2.5)
    assert (found.task, found.algorithm) == ("t", "a")
    assert found.started == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert found.summary == {"root": {"V_r": -1.5}}
    assert found.metrics["m"].values.tolist() == [2.0]


def test_notebooks_show_an_open_run_as_a_table(write: Write) -> None:
    summary = '{"note": "<b>", "V_r": -1.23456, "root": {}}'
    shown = empo_core.open_run(write(results__summary_json=summary))._repr_html_()
    assert "<th>algorithm</th><td>a</td>" in shown
    assert "<th>V_r</th><td>-1.23</td>" in shown
    assert "<td>&lt;b&gt;</td>" in shown


def test_the_config_of_an_open_run_is_its_own(write: Write) -> None:
    first, second = empo_core.open_run(write()), empo_core.open_run(write())
    assert isinstance(first.config["world_model"], dict)
    first.config["world_model"]["params"] = {"changed": True}
    assert second.config["world_model"] == {"name": "w", "params": {}}


def test_a_changed_yaml_is_read_instead_of_the_json_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"seed": 1, "a": {"b": [1, 2.5, None, True]}, "c": 'x: "y"'}
    write_config(tmp_path, config)
    with monkeypatch.context() as patch:  # What was not changed needs no parser.
        patch.delattr("empo_core.runs.directory.parse_yaml")
        assert read_config(tmp_path) == config
    yaml = tmp_path / "config.yaml"
    yaml.write_text(yaml.read_text().replace("seed: 1", "seed: 2"))
    assert read_config(tmp_path) == config | {"seed": 2}
    (tmp_path / "config.json").write_text("{")
    yaml.write_text("1: {2: .inf}\n")
    assert read_config(tmp_path) == {"1": {"2": math.inf}}


def test_a_config_that_json_cannot_hold_is_read_from_yaml(tmp_path: Path) -> None:
    config: dict[str, JsonValue] = {"most": math.inf}
    write_config(tmp_path, config)
    assert not (tmp_path / "config.json").exists()
    assert read_config(tmp_path) == config


def test_what_a_status_lacks_is_empty(write: Write) -> None:
    path = write(status_json='{"status": "failed", "error": "too bad"}')
    found = read_run(path)
    assert (found.task, found.reason, found.started, found.seconds) == ("", "too bad", None, None)
    (path / "config.yaml").write_text("algorithm: 3\n")
    assert read_run(path).algorithm == ""


@pytest.mark.parametrize(
    ("files", "status", "reason"),
    [
        ({"config_yaml": None}, "damaged", r"config\.yaml: cannot be read: No such file"),
        ({"config_yaml": "a: [1"}, "damaged", r"config\.yaml:1:6: what opens in line 1"),
        ({"config_yaml": "a: " + "x" * 2**17}, "damaged", r"is larger than 131,072 bytes"),
        ({"status_json": None}, "damaged", r"status\.json: cannot be read: No such file"),
        ({"status_json": '{"status": "fini'}, "damaged", r"status\.json: is damaged"),
        ({"status_json": "[]"}, "damaged", r"status\.json: is damaged"),
        ({"status_json": "{}"}, "damaged", r"status\.json: has no status"),
        ({"status_json": '{"status": "asleep"}'}, "damaged", r"status\.json: is damaged"),
        ({"status_json": '{"status": ["running"]}'}, "damaged", r"is damaged or not ours: status"),
        ({"results__summary_json": None}, "finished", r"summary\.json: cannot be read"),
        ({"results__summary_json": "{"}, "finished", r"summary\.json: is damaged"),
        ({"results__summary_json": "[" * 9999}, "finished", r"summary\.json: is damaged"),
    ],
)
def test_a_damaged_run_is_read_with_a_reason(
    write: Write, files: dict[str, str | None], status: str, reason: str
) -> None:
    path = write(**files)
    found = read_run(path)
    assert found.status == status
    assert found.reason is not None
    assert re.search(reason, found.reason)
    if status == "damaged":
        with pytest.raises((StorageError, ConfigError), match=re.escape(str(path))):
            empo_core.open_run(path)


def test_bytes_that_are_no_text_are_damage(write: Write) -> None:
    path = write()
    (path / "config.yaml").write_bytes(b"a: \xff\n")
    assert read_run(path).status == "damaged"


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "results"])
def test_links_in_a_run_are_not_followed(write: Write, tmp_path: Path, name: str) -> None:
    path = write()
    (path / name).rename(tmp_path / "elsewhere")
    (path / name).symlink_to(tmp_path / "elsewhere")
    found = read_run(path)
    assert found.summary == {}
    assert "symbolic link" in str(found.reason)
    with pytest.raises((ConfigError, StorageError)):
        empo_core.open_run(path)


def test_a_run_whose_process_is_gone_says_so(write: Write) -> None:
    status = {"status": "running", **HERE, "seconds": 1.0, "updated": "2026-01-01T00:00:00+00:00"}
    alive = read_run(write(status_json=json.dumps(status)))
    assert alive.reason is None
    assert alive.seconds is not None
    assert alive.seconds > 1000
    gone = read_run(write(status_json=json.dumps(status | {"pid": 2**22 + 1})))
    assert gone.seconds == 1.0
    assert "process 4194305 " in str(gone.reason)
    elsewhere = read_run(write(status_json=json.dumps(status | {"pid": 1, "host": "other"})))
    assert elsewhere.reason is None


@pytest.mark.parametrize("started", ["yesterday", [], "9999-99-99", "2026-01-01T00:00:00"])
def test_times_that_make_no_sense_are_damage(write: Write, started: object) -> None:
    found = read_run(write(status_json=json.dumps({"status": "finished", "started": started})))
    assert found.status == "damaged"
    assert "status.json: is damaged or not ours: started" in str(found.reason)


def test_metrics_are_arrays_in_the_order_of_steps(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 2, "a": 1.5, "h": {"edges": [0, 1], "counts": [1]}}\n'
        '{"step": 1, "a": "NaN", "b": "-Infinity"}\n'
        '{"step": 2, "a": 2.5}\n'
        '{"step": 3, "a": 9'
    )
    found = read_metrics(tmp_path)
    assert list(found) == ["a", "b"]
    assert found["a"].steps.tolist() == [1, 2]
    np.testing.assert_array_equal(found["a"].values, [np.nan, 2.5])
    assert found["b"].values.tolist() == [-np.inf]


def test_a_run_may_have_no_metrics(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == {}


@pytest.mark.parametrize(
    "line",
    ["x", "[]", '{"a": 1}', '{"step": "1"}', '{"step": 1, "a": "b"}', f'{{"step": {2**70}}}'],
)
def test_damaged_metrics_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        read_metrics(tmp_path)


def test_without_pandas_a_data_frame_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # Then it cannot be imported.
    with pytest.raises(ConfigError, match="pandas"):
        read_metrics(tmp_path).to_frame()


def test_metrics_become_a_data_frame(tmp_path: Path) -> None:
    pandas: ModuleType = pytest.importorskip("pandas")
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "a": 1}\n{"step": 1, "b": 2}\n')
    frame = read_metrics(tmp_path).to_frame()
    assert frame.index.name == "step"
    expected = pandas.DataFrame({"a": [np.nan, 1.0], "b": [2.0, np.nan]}, index=[1, 2])
    pandas.testing.assert_frame_equal(frame, expected, check_names=False)
    assert read_metrics(tmp_path / "nowhere").to_frame().empty


def test_lines_of_a_long_table_have_their_columns_below_each_other() -> None:
    lines = list(table_lines(("a", "number"), [("x", "1"), ("y\nz", "22"), ("日本", "3")]))
    assert lines == [
        "  a      number",
        "  ────   ──────",
        "  x      1     ",
        "  y z    22    ",
        "  日本   3     ",
    ]
