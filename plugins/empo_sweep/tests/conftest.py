"""The toy algorithm, installed as plugins are, and sweeps of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.config.yaml import dump_yaml

sys.path.insert(0, str(Path(__file__).parent))

from toy_sweeps import Cli, install_toy


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with ``run.yaml``, the toy's config."""
    folders = install_toy(tmp_path / "site")
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(dump_yaml({"algorithm": "toy"}))
    installed.cache_clear()
    before = list(logging.getLogger().handlers)
    yield tmp_path
    logging.getLogger().handlers[:] = before
    installed.cache_clear()


@pytest.fixture
def sweep(toy: Path) -> Cli:
    """``empo sweep`` in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["sweep", *arguments], env={"COLUMNS": "200"})

    return call


@pytest.fixture
def write(toy: Path) -> Callable[..., str]:
    """A function that writes a sweep's file ``s.yaml``, of one worker by default, and names it."""

    def write(*, workers: int = 1, **keys: Any) -> str:
        (toy / "s.yaml").write_text(dump_yaml({"base": "run.yaml", **keys, "workers": workers}))
        return "s.yaml"

    return write
