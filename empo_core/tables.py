"""Tables for terminals of any width: names in them are never cut off or broken."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich import box
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
            words = [f"{h} {c}".strip() for h, c in named if c and (h or not any(headings))]
            yield Padding(Text(", ".join(words), overflow="fold"), (0, 0, 0, 2))


BAR = 10
"""Characters of a bar that stands for 1."""


def report_table(title: str, *columns: str, texts: Collection[str] = ()) -> FittingTable:
    """An empty table whose first column is text, as are those named by ``texts``; else numbers."""
    table = FittingTable(title=title, title_justify="left", title_style="bold", box=box.ROUNDED)
    for position, column in enumerate(columns):
        if position == 0 or column in texts:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def bar(share: float, style: str) -> Text:
    """A share in [0, 1] as a bar; the column of bars has no heading."""
    return Text("█" * round(BAR * min(1.0, share)) or "▏", style=style)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table of any width, for thousands of rows, which rich would take seconds for."""
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    rule = ["\N{BOX DRAWINGS LIGHT HORIZONTAL}" * width for width in widths]
    for row in (columns, rule, *rows):
        cells = zip(row, widths, strict=True)
        yield "  " + "   ".join(text + " " * (width - cell_len(text)) for text, width in cells)
