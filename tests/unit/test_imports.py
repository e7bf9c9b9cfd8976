"""``empo --import PACKAGE``: the person at the keyboard may name code, a file may not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.plugins import imports


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(imports, "_imported", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registers_a.py").write_text("DONE = True\n")
    (tmp_path / "registers_b.py").write_text("DONE = True\n")
    (tmp_path / "fails_at_import.py").write_text("raise SystemExit('no')\n")
    (tmp_path / "lacks_a_module.py").write_text("import not_there_at_all\n")
    yield
    installed.cache_clear()
    for name in ("registers_a", "registers_b"):
        sys.modules.pop(name, None)


def empo(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_packages_are_imported_before_the_command_and_remembered() -> None:
    done = empo("--import", "registers_a", "--import", "registers_b", "describe", "x", "y")
    assert done.exit_code == 2  # There is no kind 'x'.
    assert sys.modules["registers_a"].DONE
    assert imports.extra_imports() == ("registers_a", "registers_b")
    imports.import_extra(["registers_a"])
    assert imports.extra_imports() == ("registers_a", "registers_b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os; x", "--import os; x: importing it raises ModuleNotFoundError"),
        ("../a", "--import ../a: importing it raises"),
        ("nowhere_at_all", "--import nowhere_at_all: importing it raises ModuleNotFoundError"),
        ("lacks_a_module", "raises ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("fails_at_import", "--import fails_at_import: importing it calls sys.exit('no')"),
    ],
)
def test_what_cannot_be_imported_is_a_message(name: str, message: str) -> None:
    done = empo("--import", name, "plugins")
    assert done.exit_code == 2
    assert message in done.stderr
    assert imports.extra_imports() == ()


def test_a_file_cannot_name_code_to_import(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("import: registers_a\nalgorithm: x\n")
    done = empo("run", "run.yaml")
    assert done.exit_code == 2
    assert "import: unknown key" in done.stderr
    assert "registers_a" not in sys.modules
