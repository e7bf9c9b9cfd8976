"""Pages by the rules of axe-core: nothing serious; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import pytest
from pages import Learned, Open, Opened, Solved

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

VIOLATIONS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`)"""


def serious(opened: Opened, views: Sequence[str] = ()) -> list[str]:
    """Serious findings in some views of a page, or all."""
    opened.ask(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found = []
    tabs = opened.tab.query_selector_all(".tab:visible")
    for view in views or [tab.get_attribute("data-view") for tab in tabs]:
        opened.show(view=view)
        found += [f"{view}: {each}" for each in opened.ask(VIOLATIONS)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_nothing_serious(
    open_page: Open, free_the_human: Solved, learned: Learned, width: int, scheme: str
) -> None:
    for file in (free_the_human.file, learned.file):
        size = {"width": width, "height": 800}
        opened = open_page(file, viewport=size, color_scheme=scheme, bypass_csp=True)
        opened.ask("() => inspector.assume({beta_r: 2})")
        opened.ask("() => { document.querySelectorAll('details').forEach((e) => e.open = true); }")
        assert serious(opened) == []
        opened.ask("() => { inspector.startGame(); }")
        assert opened.ask(VIOLATIONS) == []


def test_axe_sees_what_is_wrong(open_page: Open, free_the_human: Solved) -> None:
    """A page without names for its controls would be found out."""
    opened = open_page(free_the_human.file, bypass_csp=True)
    assert serious(opened, views=["robot"]) == []
    opened.ask("() => document.getElementById('slider').removeAttribute('aria-label')")
    assert any("label" in each for each in opened.ask(VIOLATIONS))
