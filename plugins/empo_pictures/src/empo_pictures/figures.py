"""Figures of runs, as PNG and as SVG; they need no window. Matplotlib is imported on first use."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

from empo_core.errors import ConfigError
from empo_pictures.pictures import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# By Okabe and Ito: told apart with any colour vision. Line styles tell them apart in grey.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 6, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches with its panels row by row; it shares no state with others.

    Raises:
        ConfigError: if matplotlib is not installed; the message names the extra that has it.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"figures need matplotlib ({error}): pip install 'empo-pictures[figures]'"
        ) from error

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_prop_cycle(color=COLOURS, linestyle=LINE_STYLES)
        axes.grid(alpha=0.3)
    return figure, panels


def write_figure(figure: Figure, path: Path) -> None:
    """Write ``path`` with suffix ``.png`` and with suffix ``.svg``; this fixes the layout."""
    import matplotlib as mpl

    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        # Texts stay texts, and equal figures give equal files.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "empo"}):
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(buffer, format=kind, dpi=240, metadata=metadata)
        replace_file(path.with_suffix(f".{kind}"), buffer.getvalue())
        # The layout costs as much as drawing, and one serves both kinds.
        figure.set_layout_engine("none")
