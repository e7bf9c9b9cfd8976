"""Pages of runs in the cells of notebooks: in a frame, and as a widget."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from pages import Open, Opened, world_of

from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_inspector import inspect
from empo_inspector.notebook_page import NotebookPage
from empo_pictures.notebooks import MOST_BYTES

NOTEBOOK = '<!DOCTYPE html><html data-ready><meta charset="utf-8"><p>In [1]</p>{}</html>'

MODEL = """
async ([source, traits]) => {
    const listeners = [], url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
    globalThis.saved = [];
    globalThis.model = {
        get: (name) => traits[name],
        set: (name, value) => {traits[name] = value; listeners.forEach((each) => each());},
        on: (event, listener) => listeners.push(listener),
        off: (event, listener) => listeners.splice(listeners.indexOf(listener), 1),
        save_changes: () => saved.push(JSON.stringify(traits.selection)),
    };
    const widget = (await import(url)).default, el = document.querySelector("div");
    globalThis.remove = widget.render({model, el});
}
"""
"""As anywidget loads a module and gives it a model."""


@pytest.fixture(scope="module")
def page() -> NotebookPage:
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    return inspect(solve(world_of("multigrid/trivial"), params), height=640)


def frame_of(opened: Opened) -> Any:
    """The frame in a page, when it shows its data."""
    frame = opened.tab.frames[1]
    frame.wait_for_selector("html[data-ready=yes]", state="attached")
    return frame


def test_a_page_runs_in_a_cell(page: NotebookPage, tmp_path: Path, open_page: Open) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(NOTEBOOK.format(page._repr_html_()), "utf-8")
    opened = open_page(file)
    frame = frame_of(opened)
    assert opened.tab.locator("iframe").bounding_box()["height"] == 640
    frame.click("[data-view=why]")
    frame.wait_for_selector(".sentence")
    assert frame.evaluate("location.hash") == "#s=0&t=0&h=0&g=0&v=why"
    assert opened.tab.url == file.as_uri(), "a page must not lead the notebook elsewhere"
    assert opened.requests == [file.as_uri()]
    assert opened.said == []


def test_a_page_too_large_for_a_cell_is_shown_from_a_file(
    page: NotebookPage, tmp_path: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    large = NotebookPage(page.text.replace("</title>", "&amp;" * MOST_BYTES + "</title>"), "large")
    html = large._repr_html_()
    assert len(html) < 1000
    (written,) = tmp_path.glob("inspector-*.html")
    assert re.findall(r'(?:src|href)="([^"]*)"', html) == [written.name, written.name]
    file = tmp_path / "notebook.html"
    file.write_text(NOTEBOOK.format(html), "utf-8")
    assert "left" in frame_of(open_page(file)).text_content("#status")


def test_a_widget_and_its_page_have_one_selection(
    page: NotebookPage, tmp_path: Path, open_page: Open
) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(NOTEBOOK.format("<div></div>"), "utf-8")
    opened = open_page(file)
    module = resources.files("empo_inspector").joinpath("page_widget.js").read_text("utf-8")
    opened.ask(MODEL, [module, {"page": page.text, "height": 640, "selection": {"v": "why"}}])
    frame = frame_of(opened)

    def told(**expected: object) -> None:
        opened.tab.wait_for_function(
            "wanted => saved.at(-1) === wanted", arg=json.dumps(expected, separators=(",", ":"))
        )

    told(s=0, t=0, h=0, g=0, v="why")
    frame.click("[aria-label='one step on']")
    later = frame.evaluate("m.number[inspector.s]")
    told(s=later, t=1, h=0, g=0, v="why")
    opened.ask("() => model.set('selection', {s: 0, t: 0, v: 'robot'})")
    frame.wait_for_selector("[data-view=robot][aria-current=page]")
    told(s=0, t=0, h=0, g=0, v="robot")
    opened.ask("() => model.set('selection', {s: 1e6, t: 0})")  # There is no such state.
    told(s=0, t=0, h=0, g=0, v="robot")
    opened.ask("() => {remove(); model.set('selection', {s: 0, t: 0, v: 'next'});}")
    assert frame.evaluate("location.hash").endswith("v=robot")
    assert opened.tab.url == file.as_uri()
    assert opened.said == []
