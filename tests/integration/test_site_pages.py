"""The pages of the site, before Sphinx makes HTML of them; ``nox -s docs`` checks the rest."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        importlib.import_module("build_site").stage(folder)
    return folder


def test_the_navigation_has_every_page_that_stands_in_the_repository(site: Path) -> None:
    texts = [page.read_text(encoding="utf-8") for page in site.rglob("*.md")]
    trees = "".join(text.partition("```{toctree}")[2] for text in texts)
    named = set(re.findall(r"^/(\S+)$", trees, re.MULTILINE))
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")}
    assert named >= {page.relative_to(ROOT).as_posix() for page in pages} - {"README.md"}


def test_every_installed_plugin_and_every_stable_name_has_docstrings_in_it(site: Path) -> None:
    api = site / "docs/reference/api"
    for plugin in ROOT.glob("plugins/*/pyproject.toml"):
        if importlib.util.find_spec(plugin.parent.name):
            assert "\n## " in (api / f"{plugin.parent.name}.md").read_text(encoding="utf-8")
    for page, heading in [
        ("empo_core.experiment", "## run"),
        ("empo_core.config", "### load_config"),
        ("empo_core.saved_run", "## open_run"),
        ("empo_worlds", "### transition_probabilities"),
        ("empo_worlds", "### enumerate_world"),
        ("empo_exact", "### solve"),
        ("empo_phase2", "### load_policy"),
    ]:
        assert f"\n{heading}\n" in (api / f"{page}.md").read_text(encoding="utf-8"), heading


def test_docstrings_come_with_shapes_ranges_and_equations(site: Path) -> None:
    page = (site / "docs/reference/api/empo_theory.md").read_text(encoding="utf-8")
    section = page.partition("## robot_policy")[2].partition("\n## ")[0]
    assert "q_r: Float[Tensor, '*batch action']," in section
    assert "equation (5)" in section
    assert "* `beta_r`: Exponent, >= 0 and finite." in section


def test_linked_sources_are_pages_and_inspectors_are_frames(site: Path) -> None:
    examples = (site / "examples/README.md").read_text(encoding="utf-8")
    assert "](free_the_human.yaml.md)" in examples
    source = (ROOT / "examples/free_the_human.yaml").read_text(encoding="utf-8")
    assert source in (site / "examples/free_the_human.yaml.md").read_text(encoding="utf-8")
    assert (site / "docs/inspectors.md").read_text(encoding="utf-8").count("<iframe ") == 3
