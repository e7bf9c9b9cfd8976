"""Paths in configs: plain files only, and errors quote nothing of files of another kind."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.components import build_world
from empo_core.config.files import load_config
from empo_core.errors import ConfigError

SECRET = "hunter2"


def refusal(tmp_path: Path, world: str, file: str) -> str:
    """The error of a config that names a file as a world."""
    config = tmp_path / "run.yaml"
    config.write_text(
        f"world_model: {{name: {world}, params: {{file: '{file}'}}}}\nalgorithm: exact\n"
    )
    with pytest.raises(ConfigError) as caught:
        build_world(load_config(config))
    return str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such files")
@pytest.mark.parametrize("kind", ["device", "pipe", "socket"])
def test_a_path_of_no_plain_file_is_refused_at_its_key(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "named"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        monkeypatch.chdir(tmp_path)  # A path of a socket has at most some 100 bytes.
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("named")
    error = refusal(tmp_path, "multigrid", str(path))
    assert error.startswith(f"{tmp_path / 'run.yaml'}:1:41: world_model.params.file:")
    assert "plain file" in error


def test_a_url_is_refused_at_its_key(tmp_path: Path) -> None:
    error = refusal(tmp_path, "multigrid", "https://example.org/world.yaml")
    assert error.startswith(f"{tmp_path / 'run.yaml'}:1:41: world_model.params.file: is a URL")


def test_a_path_with_a_nul_character_is_refused_at_its_key(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text('algorithm: exact\nruns: "a\\0b"\n')
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    assert str(caught.value).startswith(f"{config}:2:1: runs: has a NUL character")


@pytest.mark.parametrize("world", ["multigrid", "bushworld", "table"])
@pytest.mark.parametrize(
    "text",
    [
        f"PASSWORD={SECRET}\nUSER=me\n",
        f"password: {SECRET}\nuser: me\n",
        f"name: {SECRET}\npassword: {SECRET}\n",
        f'{{"token": "{SECRET}"}}',
        SECRET,
        f"- {SECRET}\n- {SECRET}\n",
        f"{SECRET}: [1, 2\n",
        f"root:x:0:0:{SECRET}:/root\ndaemon:x:1:1\n",
    ],
)
def test_errors_quote_nothing_of_a_file_that_is_no_world(
    tmp_path: Path, world: str, text: str
) -> None:
    file = tmp_path / "secrets"
    file.write_text(text)
    error = refusal(tmp_path, world, "secrets")
    assert error.startswith(f"{file}:")
    assert SECRET not in error


def test_errors_quote_a_world_with_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_text("map: |\n  We We\nmax_step: 3\n")
    error = refusal(tmp_path, "multigrid", "world.yaml")
    assert "'max_steps'" in error


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"jani-version": 1, "name": "m", "type": "mdp", "automata": []}', "JANI"),
        ("// a model\nmdp\n\nmodule one\n  x : [0..1] init 0;\nendmodule\n", "PRISM"),
        ("gamma_r: 0.99\nzeta: 2\nbeta_r: 10\nepsilon_r_start: 1\n", "public implementation"),
        ('{"gamma_r": 0.99, "num_training_steps": 100000}', "public implementation"),
        ('{"grid": """XXP\n            XXX""", "orders": []}', "Overcooked-AI"),
    ],
)
def test_a_file_of_another_program_is_told_as_such_with_the_kinds_that_were_tried(
    tmp_path: Path, text: str, name: str
) -> None:
    path = tmp_path / "model"
    path.write_text(text)
    for command in ("check", "run"):
        result = CliRunner().invoke(app, [command, str(path)])
        assert result.exit_code == 2
        assert result.stderr.startswith(f"{path}:1:1: ")
        assert "(bushworld, disempower, multigrid, table)" in result.stderr
        assert name in result.stderr


def test_a_mistake_in_a_linked_file_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("a: b\n  c: [")
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    result = CliRunner().invoke(app, ["check", str(link)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{link}:2:4: ")
