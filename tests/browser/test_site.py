"""The site that ``nox -s docs`` builds: whole, of this machine alone, and usable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SITE.exists(), reason="no site: run python docs/build_site.py"),
]


@dataclass
class Parts:
    """What a page links to, loads, and offers to links."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def parts_of(page: Path) -> Parts:
    found = Parts()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {name: value or "" for name, value in attrs}
            found.anchors.add(values.get("id", ""))
            if "href" in values:
                (found.links if tag == "a" else found.loads).append(values["href"])
            if "src" in values:
                found.loads.append(values["src"])

    Reader().feed(page.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def pages() -> dict[Path, Parts]:
    paths = SITE.rglob("*.html")
    return {path: parts_of(path) for path in paths if "inspectors" not in path.parts}


def test_every_page_of_the_repository_is_in_it() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("plugins/*/README.md")]
    built = [SITE / page.relative_to(ROOT).with_suffix(".html") for page in pages]
    assert [page for page in built if not page.exists()] == []


def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Parts]) -> None:
    def leads_somewhere(page: Path, link: str) -> bool:
        url = urlsplit(link)
        target = Path(os.path.normpath(page.parent / unquote(url.path))) if url.path else page
        if url.scheme or not url.fragment or target not in pages:
            return bool(url.scheme) or target.is_file()
        return url.fragment in pages[target].anchors

    links = [(page, link) for page, parts in pages.items() for link in parts.links + parts.loads]
    assert len(links) > 1000
    assert [pair for pair in links if not leads_somewhere(*pair)] == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Parts]) -> None:
    loads = {load for parts in pages.values() for load in parts.loads}
    assert len(loads) > 10
    assert [load for load in loads if urlsplit(load).scheme not in ("", "data")] == []


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A tab that keeps the addresses which pages in it ask for, in ``requests``."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.requests = []
    tab.on("request", lambda request: tab.requests.append(request.url))
    yield tab
    foreign = [url for url in tab.requests if urlsplit(url).scheme not in ("file", "data", "blob")]
    assert foreign == []
    context.close()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("empowerment", "explanation/ppo_and_empowerment"),
        ("save", "how-to/export_a_policy"),
        ("GPU", "how-to/train_a_latent_agent"),
        ("publish", "how-to/publish_a_plugin"),
        ("container", "how-to/containers_and_clusters"),
    ],
)
def test_search_finds_pages_from_disk(tab: Any, words: str, page: str) -> None:
    tab.goto((SITE / "README.html").as_uri())
    tab.fill("input[name=q]", words)
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#search-results ul.search li a")
    found = tab.eval_on_selector_all("#search-results li a", "links => links.map(a => a.href)")
    assert any(f"docs/{page}.html" in link for link in found)


@pytest.mark.parametrize("index", range(3))
def test_the_inspectors_work_within_their_page(tab: Any, index: int) -> None:
    tab.goto((SITE / "docs/inspectors.html").as_uri())
    tab.locator("iframe.inspector").nth(index).scroll_into_view_if_needed()
    frame = tab.locator("iframe.inspector").nth(index).element_handle().content_frame()
    frame.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
    before = frame.url
    frame.press("#pause", "End")
    frame.wait_for_url(lambda url: url != before)
