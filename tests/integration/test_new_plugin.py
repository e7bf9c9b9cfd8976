"""``empo new-plugin`` writes, for every kind, a plugin that installs and passes its tests."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer

from empo_core.plugins.hookspecs import KINDS, Kind
from empo_testing.new_plugin import write_plugin

EMPO = "from empo_core.cli import main; main()"


def component(kind: Kind) -> str:
    return f"sample-{kind.replace('_', '-')}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Kind, Path]:
    """One new plugin per kind."""
    directory = tmp_path_factory.mktemp("new")
    return {kind: write_plugin(component(kind), kind, directory) for kind in KINDS}


@pytest.fixture(scope="module")
def environment(
    folders: Mapping[Kind, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Variables under which Python finds the new plugins, installed from their folders."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--target", str(target), *map(str, folders.values())], check=True)
    return os.environ | {"PYTHONPATH": str(target)}


@pytest.fixture(scope="module")
def outcomes(
    folders: Mapping[Kind, Path],
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Counter[str]]:
    """Counts of passed, failed and skipped tests of each new plugin.

    One process runs them all, because importing torch for each would take most of the time.
    """
    directory = tmp_path_factory.mktemp("tests")
    for kind, folder in folders.items():
        # Apart from the packages, or pytest would take their folders for the packages.
        shutil.copytree(folder / "tests", directory / kind)
    shutil.copy(folders["tracker"] / "pyproject.toml", directory)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report"]
    subprocess.run([*command, "."], cwd=directory, env=environment, stdout=subprocess.DEVNULL)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case in ElementTree.parse(directory / "report").iter("testcase"):
        name = (case.attrib["classname"] or case.attrib["name"]).partition(".")[0]
        found[name][case[0].tag if len(case) else "passed"] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_own_tests(
    outcomes: Mapping[str, Counter[str]], kind: Kind
) -> None:
    counts = outcomes[kind]
    assert counts["passed"] > 5, counts
    assert not counts["failure"] + counts["error"], counts


def test_empo_lists_every_new_plugin(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", EMPO, "plugins"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    for kind in KINDS:
        assert component(kind) in found.stdout
    assert "unusable" not in found.stdout


def test_nothing_is_left_to_fill_in(folders: Mapping[Kind, Path]) -> None:
    files = [path for folder in folders.values() for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix == ".tmpl"]
    assert not [path for path in files if "${" in path.read_text() or "$p" in path.read_text()]


@pytest.mark.parametrize("name", ["gentle-robot", "gentle_robot", "empo-gentle-robot"])
def test_names_are_understood_in_every_spelling(tmp_path: Path, name: str) -> None:
    folder = write_plugin(name, "tracker", tmp_path)
    assert folder == tmp_path / "empo_gentle_robot"
    source = (folder / "src" / "empo_gentle_robot" / "plugin.py").read_text()
    assert 'name="gentle-robot"' in source
    assert "class GentleRobotParams(Config)" in source


def test_the_wheel_of_the_kits_ships_templates(tmp_path: Path) -> None:
    root = Path(__file__).parents[2] / "plugins" / "empo_testing"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(root)], check=True)
    (wheel,) = tmp_path.glob("empo_testing-*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    sources = [path for path in (root / "src").rglob("*") if path.suffix in (".py", ".tmpl")]
    assert any(path.suffix == ".tmpl" for path in sources)
    assert {path.relative_to(root / "src").as_posix() for path in sources} <= shipped
    assert "empo_testing/py.typed" in shipped


BAD_NAMES = ["", "Gentle", "gentle robot", "2nd", "gentle--robot", "-x", "x-", "../x", "x/y", "é"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(typer.BadParameter, match="a name"):
        write_plugin(name, "tracker", tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_of_the_core_are_reserved(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="empo-core"):
        write_plugin("empo-core", "tracker", tmp_path)


def test_a_name_that_an_installed_plugin_provides_is_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"empo-trackers .*tracker 'jsonl'"):
        write_plugin("jsonl", "tracker", tmp_path)
    with pytest.raises(typer.BadParameter, match="empo-trackers"):
        write_plugin("trackers", "algorithm", tmp_path)


def test_an_unknown_kind_gets_the_closest_one_and_the_list(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        write_plugin("gentle", "traker", tmp_path)
    assert "'tracker'?" in str(caught.value)
    assert all(kind in str(caught.value) for kind in KINDS)


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    folder = write_plugin("gentle", "tracker", tmp_path)
    (folder / "README.md").write_text("mine")
    with pytest.raises(typer.BadParameter, match="exists"):
        write_plugin("gentle", "aggregator", tmp_path)
    assert (folder / "README.md").read_text() == "mine"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"nowhere"):
        write_plugin("gentle", "tracker", tmp_path / "nowhere")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder without room for files")
def test_a_directory_that_takes_no_files_is_named() -> None:
    with pytest.raises(typer.BadParameter, match=r"/proc/empo_gentle"):
        write_plugin("gentle", "tracker", Path("/proc"))


def test_the_command_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EMPO, "new-plugin", "gentle", "--kind", "tracker"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "pip install -e 'empo_gentle[testing]'" in found.stdout
    assert (tmp_path / "empo_gentle" / "pyproject.toml").is_file()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists" in again.stderr
    assert "Traceback" not in again.stderr
