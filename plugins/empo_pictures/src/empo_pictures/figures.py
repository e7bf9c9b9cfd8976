"""Figures of runs, as PNG, SVG and PDF, without a window. Matplotlib is imported on first use."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from empo_pictures.fonts import check_characters, fallbacks
from empo_pictures.pictures import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# By Okabe and Ito: told apart with any colour vision. Line styles tell them apart in grey.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))

_SYMBOL: Final = re.compile(
    r"(?:([vuqx])(?=_[a-z](?:_|$))|(alpha|beta|gamma|zeta|eta|xi|nu|pi|rho)(?=_|$))"
    r"(?:_([a-z])(?=_|$))?(?:_([em])(?=_|$))?",
    re.IGNORECASE,
)
"""A quantity or parameter of the theory at the begin of a name: ``v_h_e``, ``beta_r``, ``zeta``."""
_LONG: Final = {"eval": "evaluation", "collect": "collection", "root": "start"}


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 6, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches with its panels row by row; it shares no state with others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_prop_cycle(color=COLOURS, linestyle=LINE_STYLES)
        axes.grid(alpha=0.3)
    return figure, panels


def write_figure(figure: Figure, path: Path) -> list[Path]:
    """Write ``path`` with suffix ``.png``, ``.svg`` and ``.pdf``; this fixes the layout.

    Texts in SVG are paths, and PDF contains its fonts, so that both look the same everywhere.

    Returns:
        The paths, in this order.

    Raises:
        StorageError: if a file cannot be written.
    """
    import matplotlib as mpl

    _choose_fonts(figure)
    paths = []
    for kind in ("png", "svg", "pdf"):
        buffer = io.BytesIO()
        # Equal figures give equal files.
        options = mpl.rc_context(
            {"svg.fonttype": "path", "svg.hashsalt": "empo", "pdf.fonttype": 42}
        )
        with options, warnings.catch_warnings():
            # ``check_characters`` has warned of them.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            figure.savefig(buffer, format=kind, dpi=240, metadata=metadata)
        paths.append(replace_file(path.with_suffix(f".{kind}"), buffer.getvalue()))
        # The layout costs as much as drawing, and one serves all kinds.
        figure.set_layout_engine("none")
    return paths


def in_words(key: str) -> str:
    """A metric or parameter as a title: ``exact/v_r`` is ``$V_r$ (exact)``.

    Quantities of the theory and Greek letters are symbols, underscores blanks; groups follow in
    parentheses.
    """
    *groups, name = re.split(r"[./]", key)
    context = f" ({' '.join(map(_words, groups))})" if groups else ""
    return _words(name) + context


def literal(text: str) -> str:
    """Text of which matplotlib reads nothing as a formula."""
    return text.replace("$", r"\$")


def _words(name: str) -> str:
    match = _SYMBOL.match(name)
    if match is None:
        return literal(_LONG.get(name, name.replace("_", " ")))
    latin, greek, index, goal = match.groups()
    symbol = latin.upper() if latin else f"\\{greek.lower()}"
    subscript, superscript = f"_{index}" if index else "", f"^{goal}" if goal else ""
    remainder = literal(name[match.end() :].replace("_", " "))
    return f"${symbol}{subscript}{superscript}${remainder}"


def _choose_fonts(figure: Figure) -> None:
    """Give texts the fonts that have their characters, and warn where there is none."""
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    check_characters(text.get_text() for text in texts)
    for text in texts:
        families = [fallback.family for fallback in fallbacks(text.get_text())]
        if families:
            text.set_fontfamily([*dict.fromkeys(["DejaVu Sans", *families])])
