"""SVG pictures on disk, for slides and papers: with texts as paths, and as PDF."""

from __future__ import annotations

import functools
import io
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from empo_core.errors import ConfigError, StorageError
from empo_pictures.fonts import runs
from empo_pictures.pictures import replace_file

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

_SPACE: Final = "http://www.w3.org/2000/svg"
_SIZE: Final = 100
"""Font size at which glyphs are taken; paths scale."""
_COMMANDS: Final = {1: ("M", 1), 2: ("L", 1), 3: ("Q", 2), 4: ("C", 3), 79: ("Z", 0)}
"""SVG's command and its number of points by matplotlib's code."""


def write_svg(document: str, path: Path) -> None:
    """Write an SVG document; its texts as paths where ``empo-pictures[figures]`` is installed.

    Raises:
        StorageError: if the file cannot be written.
    """
    if find_spec("matplotlib"):
        document = outlined(document)
    replace_file(path, document.encode())


def write_pdf(path: Path) -> Path:
    """Write the picture in an SVG file of a run as PDF, beside it; returns the path.

    Runs leave this out, since it takes as long as all their other pictures.

    Raises:
        ConfigError: if ``empo-pictures[figures]`` is not installed.
        StorageError: if a file cannot be read or written, or the picture has no size.
    """
    if not find_spec("fpdf"):
        raise ConfigError("PDF needs fpdf2: pip install 'empo-pictures[figures]'")
    try:
        content = pdf_bytes(path.read_text("utf-8"))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        raise StorageError(f"{path}: is no picture that can be a PDF: {error}") from error
    return replace_file(path.with_suffix(".pdf"), content)


def outlined(document: str) -> str:
    """An SVG document that looks the same wherever it is opened: its texts are paths.

    Texts with other elements within stay as they are. What a path says is its ``aria-label``.
    """
    ElementTree.register_namespace("", _SPACE)
    root = ElementTree.fromstring(document)
    for parent in root.iter():
        for index, element in enumerate(parent):
            if element.tag == f"{{{_SPACE}}}text" and not len(element):
                parent[index] = _outlines(element)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def pdf_bytes(document: str) -> bytes:
    """The contents of a PDF file with one page, which shows an SVG document.

    A unit of the document is a point of the page. Equal documents give equal files.

    Raises:
        ValueError: if the document has no width and height in numbers.
    """
    from fpdf import FPDF
    from fpdf.svg import SVGObject

    drawing = SVGObject(document)
    width, height = drawing.width, drawing.height
    if not (isinstance(width, float | int) and isinstance(height, float | int)):
        raise ValueError(f"the SVG document is {width} by {height}: it needs a size in numbers")
    page = FPDF(unit="pt", format=(width, height))
    page.set_margin(0)
    page.set_auto_page_break(False)
    page.set_creation_date(datetime.fromtimestamp(0, UTC))
    page.add_page()
    # A drawing is shown once, so that it needs no copy, which takes as long as everything else.
    page.draw_path = functools.partial(page.draw_path, copy=False)  # type: ignore[method-assign]
    drawing.draw_to_page(page)
    return bytes(page.output())


def _outlines(element: Element) -> Element:
    """A text element as a group of paths: its halo, if it has one, and its letters."""
    text, size = element.text or "", float(element.get("font-size", 16))
    letters, width = _path(text)
    length = float(element.get("textLength", width * size / _SIZE))
    x = float(element.get("x", 0))
    x -= {"middle": length / 2, "end": length}.get(element.get("text-anchor", ""), 0)
    # Letters of small pixels are a little wider or narrower than their outlines.
    wide = length / width if width else 1
    place = f"matrix({wide:.6g} 0 0 {size / _SIZE:.6g} {x:.6g} {element.get('y', 0)})"
    fill = {"fill": element.get("fill", "black")}
    group = ElementTree.Element(f"{{{_SPACE}}}g", {"aria-label": text, "transform": place})
    if element.get("stroke"):
        halo = {"stroke": element.get("stroke", ""), "stroke-linejoin": "round"}
        halo["stroke-width"] = f"{float(element.get('stroke-width', 1)) * _SIZE / size:.6g}"
        ElementTree.SubElement(group, f"{{{_SPACE}}}path", {"d": letters, **fill, **halo})
    ElementTree.SubElement(group, f"{{{_SPACE}}}path", {"d": letters, "stroke": "none", **fill})
    return group


@functools.lru_cache(maxsize=1024)
def _path(text: str) -> tuple[str, float]:
    """The outline of a text at size 100 as the data of an SVG path, and its width."""
    from matplotlib.textpath import text_to_path

    line, width = runs(text, _SIZE)
    parts: list[str] = []
    for run in line:
        glyphs, shapes, _ = text_to_path.get_glyphs_with_font(_face(run.font), run.text)
        scale = run.font.size / text_to_path.FONT_SCALE
        for name, left, up, _ in glyphs:
            points, codes = shapes[name]
            index = 0
            while index < len(codes):
                command, count = _COMMANDS[int(codes[index])]
                corners = points[index : index + count]
                parts.append(command)
                parts += [
                    f"{run.x + scale * (left + x):.4g} {run.y - scale * (up + y):.4g}"
                    for x, y in corners
                ]
                index += max(1, count)
    return " ".join(parts), width


@functools.lru_cache(maxsize=64)
def _face(font: ImageFont.FreeTypeFont) -> FT2Font:
    from matplotlib.ft2font import FT2Font
    from matplotlib.textpath import text_to_path

    face = FT2Font(font.path if isinstance(font.path, str) else io.BytesIO(font.font_bytes))
    face.set_size(text_to_path.FONT_SCALE, text_to_path.DPI)
    return face
