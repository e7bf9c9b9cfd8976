"""Reports, worlds and states as notebooks show them."""

from __future__ import annotations

import html
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from nbformat import NotebookNode
from rich.text import Text

import empo_core
import empo_inspector
from empo_core.components import build
from empo_core.config import RunConfig, WorldModelRef
from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_pictures.notebooks import MOST_BYTES, NotebookReport, NotebookState, as_html

ROOT = Path(__file__).parents[2]
BUILDER = runpy.run_path(str(ROOT / "docs/build_notebooks.py"))


def world(name: str) -> WorldModel:
    built: WorldModel = build(WorldModelRef.model_validate(name))
    return built


def as_words(text: str) -> str:
    """What HTML says, without tags and blanks."""
    return re.sub(r"\s+", "", html.unescape(re.sub(r"<[^>]*>", "", text)))


def shown(thing: object) -> str:
    bundle: dict[str, str] = DisplayFormatter().format(thing)[0]
    text = bundle["text/html"]
    assert sum(len(each.encode()) for each in bundle.values()) <= 200_000
    assert re.sub(r"\s+", "", bundle["text/plain"]) in as_words(text)
    assert not re.search(r"<(?!/?(pre|span|img)\b)|https?:|<script| on\w+=", text)
    return text


def test_a_result_is_its_report_and_picture() -> None:
    result = solve(world("multigrid/trivial"), ExactParams())
    assert "Robot" in shown(result)
    assert "Robot's policy at the start" in str(result)
    assert "-0.000" not in str(result)  # A maximum of 0 bits.
    assert "data:image/png;base64," in shown(result)
    assert "rather than" in shown(empo_inspector.explain(result))


@pytest.mark.parametrize(
    ("name", "is_drawn"), [("multigrid/trivial", True), ("table/belief", False)]
)
def test_worlds_and_states_are_pictures_or_else_text(name: str, is_drawn: bool) -> None:
    built = world(name)
    assert ("data:image/png" in shown(built)) is is_drawn
    assert ("data:image/png" in shown(NotebookState(built, built.initial_state()))) is is_drawn
    assert built.spec.name in shown(built)


def test_names_are_text() -> None:
    hostile = NotebookReport()
    hostile.report = lambda: "a\x1b[31mb"  # type: ignore[method-assign]
    assert hostile._repr_mimebundle_()["text/plain"] == r"a\x1b[31mb"
    assert "&lt;img src=x onerror=alert(1)&gt;" in as_html("<img src=x onerror=alert(1)>")


def test_what_is_too_large_is_cut() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3)).astype(np.uint8)
    assert "<img" not in as_html("a large picture", noise)
    many = Text("many words & more\n" * 10_000)
    assert len(as_html(many)) <= MOST_BYTES
    assert "(and more)" in as_html(many)


def test_a_page_can_be_written_where_there_is_no_notebook(tmp_path: Path) -> None:
    page = empo_inspector.inspect(solve(world("table/belief"), ExactParams()))
    assert ".write('inspector.html')" in repr(page)
    assert page.write(tmp_path / "own.html").read_text("utf-8") == page.text


def test_widgets_have_a_page_and_a_selection(tmp_path: Path) -> None:
    config = {"world_model": "table/belief", "algorithm": "exact", "runs": str(tmp_path)}
    result = empo_core.run(RunConfig.model_validate(config))
    assert isinstance(result, ExactResult)
    page = empo_inspector.inspect(result, height=300)
    (directory,) = tmp_path.iterdir()
    of_result, of_run = empo_inspector.widget(page), empo_inspector.widget(directory)
    assert (of_result.height, of_result.selection) == (300, {})
    assert directory.name not in of_result.page
    assert of_run.page == (directory / "inspector.html").read_text("utf-8")
    synced = of_run.get_state(("page", "height", "selection"))
    assert synced["page"] == of_run.page
    assert {"_esm"} < set(of_run.traits(sync=True))


def test_a_widget_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "empo_inspector.page_widget", raising=False)
    monkeypatch.setitem(sys.modules, "anywidget", None)  # Then it cannot be imported.
    with pytest.raises(ConfigError, match=r"empo-inspector\[notebook\]"):
        empo_inspector.widget("nowhere")


def printed(notebook: NotebookNode) -> list[list[tuple[str, list[str], str]]]:
    """Of each cell's outputs the type, the formats, and what is plain text."""
    return [
        [
            (
                output.output_type,
                sorted(output.get("data", ())),
                output.get("text") or output.get("data", {}).get("text/plain", ""),
            )
            for output in cell.get("outputs", ())
        ]
        for cell in notebook.cells
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", BUILDER["NOTEBOOKS"], ids=lambda path: path.stem)
def test_notebooks_run_and_print_what_they_show(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    executed: Callable[[Path], NotebookNode] = BUILDER["executed"]
    shown = nbformat.read(path, as_version=4)
    assert printed(executed(path)) == printed(shown), "python docs/build_notebooks.py writes it"
    assert sum(map(len, printed(shown))) >= 5
    assert path.stat().st_size <= 400_000
    assert not re.search(r"/(home|root|tmp|work|Users)/| at 0x", path.read_text("utf-8"))
