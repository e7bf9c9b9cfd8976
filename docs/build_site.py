"""Builds the docs as a site: ``python docs/build_site.py [FOLDER]``, by default into ``site``.

The Markdown files of the repository are its pages. They are copied with their places relative to
each other, so that their links work in the repository and in the site; pages of linked sources and
of docstrings, the navigation from ``docs/README.md``, and inspectors of solved worlds are added.
Pages in a folder ``NAME`` beside a page ``NAME.md`` are below that page in the navigation.
Warnings, e.g. of links that lead nowhere, are errors. No page asks anything of the network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from api_reference import api_list, api_pages
from build_pictures import INSPECTORS, draw

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "distribution/*.md", "docs/**/*.md", "plugins/*/README.md", "examples/**/*.md")
PICTURES = ("docs/**/*.png", "docs/**/*.gif")
LINK = re.compile(r"(?<!!)\]\(([^)#\s]+)(#[^)\s]*)?\)")
SECTION = re.compile(r"^\*\*(\w[\w -]*)\*\*", re.MULTILINE)
INSPECTOR = re.compile(r"^<!-- inspector: (\w+) -->$", re.MULTILINE)
ORPHAN = "---\norphan: true\n---\n\n"
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".cff": "yaml",
    ".json": "json",
    ".csv": "text",
    ".ipynb": "",
    "": "text",
}


def build(target: Path) -> None:
    """Put the pages together and make HTML of them."""
    if (target / ".buildinfo").exists():  # Nothing of an earlier site stays.
        shutil.rmtree(target)
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        settings = ROOT / "docs/sphinx"
        options = ["-q", "-W", "--keep-going", "-E", "-d", f"{folder}/.doctrees", "-c", settings]
        command = [sys.executable, "-m", "sphinx", *options, folder, target]
        subprocess.run([str(part) for part in command], check=True)
    inspectors = target / "docs/inspectors"
    inspectors.mkdir(exist_ok=True)
    draw([*INSPECTORS], inspectors)


def stage(folder: Path) -> None:
    """Write every page of the site as Markdown."""
    found = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    pages = {_uri(path): path.read_text(encoding="utf-8") for path in found}
    for uri in sorted({uri for page, text in pages.items() for uri in sources(page, text)}):
        pages[f"{uri}.md"] = source_page(uri)
    # As parts of the navigation, the many headings of these pages would treble the time it takes.
    pages |= {f"docs/reference/{name}": ORPHAN + text for name, text in api_pages().items()}
    pages["docs/reference/api.md"] += api_list()
    pages = {uri: adapted(text) for uri, text in pages.items()}
    pages["README.md"] += navigation(pages["docs/README.md"])
    for uri in {os.path.dirname(_uri(path)) for path in found} & {uri[:-3] for uri in pages}:
        below = [_uri(path) for path in found if os.path.dirname(_uri(path)) == uri]
        pages[f"{uri}.md"] += toctree("", below)
    contents = {uri: text.encode("utf-8") for uri, text in pages.items()}
    pictures = [path for pattern in PICTURES for path in ROOT.glob(pattern)]
    contents |= {_uri(path): path.read_bytes() for path in pictures}
    for uri, content in contents.items():
        (folder / uri).parent.mkdir(parents=True, exist_ok=True)
        (folder / uri).write_bytes(content)


def sources(page: str, text: str) -> list[str]:
    """The files that are no pages to which a page links."""
    links = [link for link, _ in LINK.findall(text) if is_source(link)]
    return [os.path.normpath(os.path.join(os.path.dirname(page), link)) for link in links]


def is_source(link: str) -> bool:
    """True for a link to a file of which a page is made."""
    return ":" not in link and Path(link).suffix in LANGUAGES


def source_page(uri: str) -> str:
    """A file as a page, to which only links lead."""
    text = (ROOT / uri).read_text(encoding="utf-8")
    if uri.endswith(".ipynb"):
        return ORPHAN + "\n\n".join(cell(found) for found in json.loads(text)["cells"])
    return f"{ORPHAN}# {uri}\n\n````{LANGUAGES[Path(uri).suffix]}\n{text}````\n"


def cell(found: dict[str, Any]) -> str:
    """A cell of a notebook; what it shows as plain text, for the rest needs Jupyter."""
    text = "".join(found["source"])
    if found["cell_type"] == "markdown":
        return text
    outputs = (
        output.get("data", {}).get("text/plain", output.get("text")) for output in found["outputs"]
    )
    shown = "".join(f"\n````text\n{''.join(lines)}\n````\n" for lines in outputs if lines)
    return f"````python\n{text}\n````\n{shown}"


def adapted(text: str) -> str:
    """A page whose links lead to pages of sources, and whose inspectors are frames."""

    def link(match: re.Match[str]) -> str:
        return f"]({match[1]}{'.md' * is_source(match[1])}{match[2] or ''})"

    return INSPECTOR.sub(frame, LINK.sub(link, text))


def frame(match: re.Match[str]) -> str:
    """An inspector in a page, and a link to it alone."""
    file = f"inspectors/{match[1]}.html"
    title = f"Inspector of {match[1]}"
    return (
        f'<iframe class="inspector" src="{file}" title="{title}" loading="lazy"></iframe>\n\n'
        f'<a href="{file}">The same page alone</a>'
    )


def navigation(index: str) -> str:
    """The sections of the index, each with the pages it links to, and the plugins."""
    parts = SECTION.split(index)
    trees = [toctree("", ["docs/README.md"])]
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        listed = [os.path.normpath(f"docs/{link}") for link, _ in LINK.findall(text)]
        trees.append(toctree(title, listed))
    trees.append(toctree("Plugins", sorted(map(_uri, ROOT.glob("plugins/*/README.md")))))
    more = [
        path
        for pattern in ("*.md", "distribution/*.md", "examples/**/*.md")
        for path in ROOT.glob(pattern)
    ]
    return "".join([*trees, toctree("Repository", sorted({*map(_uri, more)} - {"README.md"}))])


def toctree(caption: str, uris: list[str]) -> str:
    """A part of the navigation, which the page itself does not show."""
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    return f"\n```{{toctree}}\n{options}\n" + "".join(f"/{uri}\n" for uri in uris) + "```\n"


def _uri(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve())
