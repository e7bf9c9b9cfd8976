"""Tables of reports on the terminal, and tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from rich.table import Table

from empo_core.tables import report_table


def time_table(shares: Mapping[str, float]) -> Table:
    """Per cent of the time by name of what it was spent on; parts are indented."""
    table = report_table("Where the time went", "part", "%")
    for name, share in shares.items():
        table.add_row("  " * name.count("/") + name.rpartition("/")[2], f"{share:.1f}")
    return table


def csv_text(names: Iterable[str], rows: Iterable[Iterable[str | float | bool | None]]) -> str:
    """A table as CSV, with a line of names."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return stream.getvalue()
