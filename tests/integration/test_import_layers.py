"""Shelves and layers of imports hold, and no package has a circle; for types either."""

import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("importlinter")

ROOT = Path(__file__).parents[2]
PLUGINS = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names in the script that checks the contracts."""
    return runpy.run_path(str(ROOT / "tests" / "quality" / "import_layers.py"))


def test_every_contract_is_kept(script: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert script["main"]() == 0, capsys.readouterr().out


def test_every_plugin_is_on_a_shelf(script: dict[str, Any]) -> None:
    options = script["CompletedOptions"]().read_options(str(ROOT / "pyproject.toml"))
    assert {"empo_core", *PLUGINS} == set(options.session_options["root_packages"])
    assert options.session_options["exclude_type_checking_imports"] == "False"
    contracts = {contract["name"]: contract for contract in options.contracts_options}
    shelves = [name for layer in contracts["shelves"]["layers"] for name in layer.split(" | ")]
    assert sorted(shelves) == sorted({"empo_core", *PLUGINS})
    assert contracts["no circles inside a package"]["ancestors"] == ["*"]
