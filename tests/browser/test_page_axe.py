"""Pages by the rules of axe-core: nothing serious; skipped where it is not installed."""

from __future__ import annotations

from importlib import resources

import pytest
from pages import Learned, Open, Opened, Solved

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

VIOLATIONS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`)"""


def serious(opened: Opened) -> list[str]:
    """Serious findings in all views of a page."""
    opened.ask(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found = []
    for tab in opened.tab.query_selector_all(".tab:visible"):
        view = tab.get_attribute("data-view")
        opened.show(view=view)
        found += [f"{view}: {each}" for each in opened.ask(VIOLATIONS)]
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_nothing_serious(
    open_page: Open, free_the_human: Solved, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 800}
    opened = open_page(free_the_human.file, viewport=size, color_scheme=scheme, bypass_csp=True)
    assert serious(opened) == []
    opened.ask("() => { inspector.startGame(true); }")
    assert opened.ask(VIOLATIONS) == []


def test_axe_finds_nothing_serious_in_learned_runs(open_page: Open, learned: Learned) -> None:
    assert serious(open_page(learned.file, bypass_csp=True)) == []


def test_axe_sees_what_is_wrong(open_page: Open, free_the_human: Solved) -> None:
    """A page without names for its controls would be found out."""
    opened = open_page(free_the_human.file, bypass_csp=True)
    opened.ask("() => document.getElementById('slider').removeAttribute('aria-label')")
    assert any("label" in each for each in serious(opened))
