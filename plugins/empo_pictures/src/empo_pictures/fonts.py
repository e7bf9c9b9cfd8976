"""Fonts of pictures: Pillow's own, and installed ones for the characters that it lacks.

Installed fonts are looked up with matplotlib, which comes with DejaVu Sans; without matplotlib
there is Pillow's font alone.
"""

from __future__ import annotations

import functools
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby
from typing import Final, NamedTuple

from PIL import ImageFont, features

log = logging.getLogger(__name__)
# It would tell the log of a run of every table of a font that a PDF embeds.
logging.getLogger("fontTools").setLevel(logging.WARNING)

_SYMBOL: Final = re.compile(r"\$(\w)(?=[_^])(?:_(\w))?(?:\^(\w))?\$")
"""A letter with a subscript, a superscript or both, e.g. ``$V_h^e$``."""
_SCRIPT: Final = 0.64
"""Size of sub- and superscripts, in font sizes."""
_UNASSIGNED: Final = "\U0010ffff"
"""No font has a glyph for this character; what is drawn is the box of missing ones."""


class Font(NamedTuple):
    """An installed font.

    Attributes:
        path: The file.
        family: The name by which matplotlib finds the font.
    """

    path: str
    family: str


class Run(NamedTuple):
    """A part of a line in one font.

    Attributes:
        text: The characters.
        font: The font, in its size.
        x: Where the run begins, in pixels from the start of the line.
        y: How far its baseline lies below that of the line, in pixels.
    """

    text: str
    font: ImageFont.FreeTypeFont
    x: float
    y: float


@functools.lru_cache(maxsize=256)
def font(size: int, path: str | None = None) -> ImageFont.FreeTypeFont:
    """The font of a file; without a file Pillow's own, the same on every machine."""
    loaded = ImageFont.truetype(path, size) if path else ImageFont.load_default(size)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return loaded


@functools.lru_cache(maxsize=4096)
def runs(text: str, size: int) -> tuple[Sequence[Run], float]:
    """The runs of a line of text, and its width in pixels.

    ``$V_h^e$``, a letter with one letter below or above it, is typeset; other dollars are dollars.
    """
    line: list[Run] = []
    x, start = 0.0, 0
    for match in _SYMBOL.finditer(text):
        x = _append(line, text[start : match.start()], size, x)
        letter, below, above = match.groups()
        x = _append(line, letter, size, x)
        small = max(1, round(_SCRIPT * size))
        ends = [x]
        for script, y in ((below, 0.24 * size), (above, -0.42 * size)):
            ends.append(_append(line, script or "", small, x, y))
        x, start = max(ends), match.end()
    return line, _append(line, text[start:], size, x)


def text_width(text: str, size: int) -> float:
    """The width of a line of text, in pixels."""
    return runs(text, size)[1]


def fallbacks(text: str) -> list[Font]:
    """Installed fonts that have the characters of a text which Pillow's own font lacks."""
    fonts = dict.fromkeys(_fallback(character) for character in text if not _is_usual(character))
    return [fallback for fallback in fonts if fallback is not None]


def check_characters(texts: Iterable[str]) -> None:
    """Warn of characters that no installed font has; of the same characters only once."""
    characters = sorted({character for text in texts for character in text})
    missing = [c for c in characters if not _is_usual(c) and _fallback(c) is None]
    if missing:
        _warn(" ".join(missing))


@functools.cache
def _warn(missing: str) -> None:
    advice = "install a font of that script, such as Noto Sans"
    if not find_spec("matplotlib"):
        advice = "pip install 'empo-pictures[figures]', which finds the fonts that are installed"
    log.warning("no font has %s: pictures show a box for each; %s", missing, advice)


def _append(line: list[Run], text: str, size: int, x: float, y: float = 0.0) -> float:
    """Append the runs of a text without symbols to a line, and return where they end."""
    for path, part in _by_font(text):
        run = Run(part, font(size, path), x, y)
        line.append(run)
        x += run.font.getlength(part)
    return x


def _by_font(text: str) -> Iterator[tuple[str | None, str]]:
    """Parts of a text with the path of their font.

    A word has one font if one has all of its characters; so have words in a row, so that scripts
    from right to left keep their order.
    """
    paths: list[str | None] = []
    for word in re.findall(r"\s+|\S+", text):
        fonts = [None if _is_usual(c) else _fallback(c) for c in word]
        shared = next(
            (f for f in fonts if f is not None and all(_can_draw(f, c) for c in word)), None
        )
        paths += [
            entry.path if entry else None for entry in ([shared] * len(word) if shared else fonts)
        ]
    for gap in re.finditer(r"(?<=\S)\s+(?=\S)", text):
        if paths[gap.start() - 1] == paths[gap.end()]:
            paths[gap.start() : gap.end()] = [paths[gap.end()]] * len(gap[0])
    places = groupby(range(len(text)), key=paths.__getitem__)
    return ((path, "".join(text[index] for index in group)) for path, group in places)


@functools.lru_cache(maxsize=4096)
def _is_usual(character: str) -> bool:
    """Whether Pillow's own font has a character, or nothing is drawn for it."""
    return _has(font(20), character)


@functools.lru_cache(maxsize=4096)
def _fallback(character: str) -> Font | None:
    """The first installed font that has a character."""
    is_backwards = unicodedata.bidirectional(character) in ("R", "AL")
    if is_backwards and not features.check("raqm"):
        return None  # Letters would be drawn apart and in the wrong order.
    return next((entry for entry in _installed() if _can_draw(entry, character)), None)


def _can_draw(entry: Font, character: str) -> bool:
    try:
        return _has(font(20, entry.path), character)
    except OSError:  # It was removed, or Pillow cannot read it.
        return False


def _has(loaded: ImageFont.FreeTypeFont, character: str) -> bool:
    if unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf"):
        return True  # Blanks and marks that are not drawn.
    return bytes(loaded.getmask(character)) != bytes(loaded.getmask(_UNASSIGNED))


@functools.cache
def _installed() -> Sequence[Font]:
    """Installed fonts: DejaVu Sans of matplotlib, then others, upright ones of usual weight first.

    Fonts of last resort, which have a box for every character, are left out.
    """
    if not find_spec("matplotlib"):
        return ()
    from matplotlib import font_manager

    first = font_manager.findfont("DejaVu Sans")

    def rank(entry: font_manager.FontEntry) -> tuple[bool, bool, int, bool, str]:
        weight = entry.weight if isinstance(entry.weight, int) else 400
        is_upright = entry.style == "normal" and entry.stretch == "normal"
        return (
            entry.fname != first,
            not is_upright,
            abs(weight - 400),
            "Sans" not in entry.name,
            entry.fname,
        )

    entries = sorted(font_manager.fontManager.ttflist, key=rank)
    return [
        Font(entry.fname, entry.name)
        for entry in entries
        if "lastresort" not in entry.name.lower().replace(" ", "")
    ]
