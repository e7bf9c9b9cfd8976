"""A table for terminals of any width: names in it are never cut off or broken."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


class FittingTable(Table):
    """A table that becomes a list, with headings in every line, where its words do not fit."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or the list."""
        for column in self.columns:
            texts = [str(column.header), *map(str, column.cells)]
            words = texts if column.no_wrap else " ".join(texts).split()
            column.min_width = max(map(cell_len, words), default=0)
        borders = 3 * len(self.columns) + 1
        if sum(column.min_width or 0 for column in self.columns) + borders <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        headings = [str(column.header) for column in self.columns[1:]]
        if self.title:
            yield Text(str(self.title), self.title_style or "")
        for first, *others in zip(
            *(map(str, column.cells) for column in self.columns), strict=True
        ):
            if first:
                yield Text(first, overflow="fold")
            named = zip(headings, others, strict=True)
            # A column without a heading is a picture, unless none has one.
            said = [f"{h} {c}".strip() for h, c in named if c and (h or not any(headings))]
            yield Padding(Text(", ".join(said), overflow="fold"), (0, 0, 0, 2))


__all__ = ["FittingTable"]
