"""Extensions of ``empo`` by plugins: commands, default trackers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.plugins.discovery import discover

Install = Callable[[str, str], None]

COMMAND = """
from empo_core import Command, hookimpl

@hookimpl
def empo_commands():
    yield Command(name="{name}", help="Greets somebody.", target="{target}", api=1)
"""
GREET = '''
from typing import Annotated
import typer
from empo_core.errors import ConfigError

def greet(name: str, loudly: Annotated[bool, typer.Option("--loudly", help="Shout.")] = False):
    """Say hello to NAME."""
    if name == "me":
        raise ConfigError("greet somebody else")
    print(f"hello {name}".upper() if loudly else f"hello {name}")
'''
ALGORITHM = """
from typing import ClassVar
from empo_core import Component, Config, hookimpl

class Params(Config):
    first: bool = False
    second: bool = False

class Notes(Config):
    default_in: ClassVar = "config"

class Bar(Config):
    default_in: ClassVar = "terminal"

@hookimpl
def empo_components():
    yield Component(kind="algorithm", name="{name}", params=Params, target="nowhere:X", api=1)
    yield Component(kind="tracker", name="{name}-notes", params=Notes, target="nowhere:X", api=1)
    yield Component(kind="tracker", name="{name}-bar", params=Bar, target="nowhere:X", api=1)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution for one test: real metadata on disk, no pip and no mocks."""
    monkeypatch.delenv("EMPO_BLOCK_PLUGINS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def install(name: str, source: str) -> None:
        module = f"{name.replace('-', '_')}_{abs(hash(tmp_path)) % 10**9}"
        (tmp_path / f"{module}.py").write_text(source.replace("HERE", module))
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[empo]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        installed.cache_clear()

    return install


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    installed.cache_clear()


def empo(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def greeting(tmp_path: Path, name: str = "greet") -> str:
    module = f"greetings_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{module}.py").write_text(GREET)
    return COMMAND.format(name=name, target=f"{module}:greet")


def problem(distribution: str) -> str:
    (found,) = (p for p in discover().providers if p.distribution == distribution)
    return found.problem


def test_a_command_is_listed_without_being_imported_and_runs(
    install: Install, tmp_path: Path
) -> None:
    install("empo-hello", greeting(tmp_path))
    assert re.search(r"greet +Greets somebody\.", empo("--help").stdout)
    module = f"greetings_{abs(hash(tmp_path)) % 10**9}"
    assert module not in sys.modules
    assert empo("greet", "you", "--loudly").stdout == "HELLO YOU\n"
    assert "Shout." in empo("greet", "--help").stdout
    listed = json.loads(empo("plugins", "--json").stdout)["plugins"]
    (hello,) = (plugin for plugin in listed if plugin["distribution"] == "empo-hello")
    assert hello["commands"] == [{"name": "greet", "summary": "Greets somebody."}]
    assert re.search(
        r"empo-hello +1\.2 +\d+ ms +command greet +Greets somebody\.", empo("plugins").stdout
    )


def test_errors_of_a_command_are_messages_and_promised_exit_codes(
    install: Install, tmp_path: Path
) -> None:
    install("empo-hello", greeting(tmp_path))
    done = empo("greet", "me")
    assert (done.exit_code, done.stderr) == (2, "greet somebody else\n")
    assert empo("greet").exit_code == 2
    assert "'greet'" in empo("gret", "you").stderr


def test_a_command_that_does_not_import_costs_only_itself(install: Install) -> None:
    install("empo-hello", COMMAND.format(name="greet", target="not_there:greet"))
    assert "greet" in empo("--help").stdout
    done = empo("greet", "you")
    assert done.exit_code == 3
    assert "'not_there:greet'" in done.stderr


def test_two_plugins_with_one_command_are_both_named(install: Install, tmp_path: Path) -> None:
    install("empo-hello", greeting(tmp_path))
    install("empo-hi", greeting(tmp_path))
    message = (
        "command 'greet' is provided by both empo-hello and empo-hi. "
        "Uninstall all but one, or set EMPO_BLOCK_PLUGINS=empo-hi. "
        "If one of them is yours, rename what it offers."
    )
    done = empo("greet", "you")
    assert (done.exit_code, done.stderr) == (2, message + "\n")
    assert json.loads(empo("plugins", "--json").stdout)["clashes"] == [message]
    assert f"name clash: {message}" in empo("plugins").stdout


def test_a_plugin_with_a_command_of_the_core_is_named(install: Install, tmp_path: Path) -> None:
    install("empo-hello", greeting(tmp_path, "check"))
    message = (
        "command 'check' is provided by both empo-core and empo-hello. "
        "Uninstall all but one, or set EMPO_BLOCK_PLUGINS=empo-hello. "
        "If one of them is yours, rename what it offers."
    )
    done = empo("check", "x.yaml")
    assert (done.exit_code, done.stderr) == (2, message + "\n")
    assert json.loads(empo("plugins", "--json").stdout)["clashes"] == [message]
    assert empo("worlds").exit_code == 0


def test_blocking_one_of_two_providers_settles_it(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-hello", greeting(tmp_path))
    install("empo-hi", greeting(tmp_path))
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-hi")
    installed.cache_clear()
    assert empo("greet", "you").stdout == "hello you\n"


GOOD = COMMAND.format(name="greet", target="a:b")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (GOOD.replace('"greet"', '"Greet me"'), "command 'Greet me' is badly named; .*"),
        (GOOD.replace("a:b", "a.b"), "command 'greet' has the target 'a.b'; write 'package.*"),
        (GOOD.replace("api=1", "api=2"), "command 'greet' is for plugin API 2; .*empo-core."),
        (GOOD + "    yield 5", "its empo_commands yields 5, not a Command"),
        (GOOD + GOOD.split("empo_commands():")[1], "its empo_commands yields command .* twice"),
        (GOOD.replace("yield", "return"), "its empo_commands .* not iterable"),
        (GOOD.replace("commands()", "commands(app)"), "its empo_commands .* missing .* 'app'"),
    ],
)
def test_a_bad_command_is_a_line_about_its_plugin(
    install: Install, source: str, reason: str
) -> None:
    install("empo-hello", source)
    assert re.fullmatch(reason, problem("empo-hello")), problem("empo-hello")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('target="nowhere:X"', 'target="nowhere"', "algorithm 'x' has the target 'nowhere'; .*"),
        ('target="nowhere:X"', "target=Params", "algorithm 'x' has the target <class .*"),
    ],
)
def test_targets_that_are_no_places_are_refused(
    install: Install, old: str, new: str, reason: str
) -> None:
    source = ALGORITHM.format(name="x")
    install("empo-x", source.replace(old, new))
    assert re.fullmatch(reason, problem("empo-x")), problem("empo-x")


def test_trackers_declare_themselves_defaults(install: Install, tmp_path: Path) -> None:
    install("empo-x", ALGORITHM.format(name="x"))
    from empo_core.config.files import load_config

    (tmp_path / "run.yaml").write_text("algorithm: x\n")
    assert "x-notes" in [ref.name for ref in load_config("run.yaml").trackers]
    assert load_config("run.yaml", ["trackers=[]"]).trackers == []
    assert "x-bar" in installed().default_trackers("terminal")
