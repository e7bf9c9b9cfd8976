"""Figures of one benchmark in this tree and in another, turn by turn.

Runs the script of the same name in both trees, each with its own interpreter, and reads the
tables that it prints. Shown are the medians of every number and of the ratio this / other of
each turn, and the processor time of the whole script, children included. A machine that others
use, too, slows down both alike, so ratios tell more than times.

    python tests/benchmarks/paired.py bench_ppo.py --against TREE --python TREE/.venv/bin/python
        [--rounds 5] [-- --seeds 1 ...]
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
CPU = ("processor seconds", "")
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")

Figure = tuple[str, str]
"""Name of a row and heading of a column."""


def rows(text: str) -> Iterator[dict[str, str]]:
    """The cells of all rows of all tables in the output of a benchmark, by heading."""
    headings: list[str] = []
    for line in text.splitlines():
        if "┃" in line:
            headings = [cell.strip() for cell in line.strip("┃").split("┃")]
        elif "│" in line:
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            yield dict(zip(headings, cells, strict=True))


def number(cell: str) -> float | None:
    """The number that a cell begins with."""
    value = _NUMBER.match(cell)
    return float(value[0].replace(",", "")) if value else None


def figures(text: str) -> Iterator[tuple[Figure, float]]:
    """The numbers of all tables in the output of a benchmark."""
    for row in rows(text):
        values = {heading: number(cell) for heading, cell in row.items()}
        texts = [row[heading] for heading, value in values.items() if value is None]
        for heading, value in values.items():
            if value is not None:
                yield (" ".join(texts or list(row.values())[:1]), heading), value


def run(python: Path, script: Path, arguments: list[str]) -> dict[Figure, float]:
    """The figures of one run of a script, and its processor time."""
    began = children_s()
    return {**dict(figures(output(python, script, arguments))), CPU: children_s() - began}


def output(python: Path, script: Path, arguments: list[str]) -> str:
    """The text that a script prints."""
    return subprocess.run(
        [python, script, *arguments],
        cwd=script.parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def children_s() -> float:
    """Processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("script", help="name of a file beside this one")
    parser.add_argument("--against", type=Path, required=True, help="the other tree")
    parser.add_argument("--python", type=Path, help="its interpreter; default .venv/bin/python")
    parser.add_argument("--rounds", type=int, default=5)
    # Cut by hand: argparse takes no positional arguments on both sides of the options.
    given = [*sys.argv[1:], "--"]
    cut = given.index("--")
    options, arguments = parser.parse_args(given[:cut]), given[cut + 1 : -1]
    contenders = {
        "this": (Path(sys.executable), HERE),
        "other": (
            options.python or options.against / ".venv/bin/python",
            options.against / "tests/benchmarks",
        ),
    }
    found: dict[str, list[dict[Figure, float]]] = defaultdict(list)
    for turn in range(options.rounds):
        # Each goes first in every other round.
        for name in sorted(contenders, reverse=turn % 2 == 0):
            python, folder = contenders[name]
            found[name].append(run(python.absolute(), folder / options.script, arguments))
    table = Table("row", "figure", title=f"{options.script}: medians of {options.rounds} turns")
    for heading in ("this", "other", "this / other", "least", "greatest"):
        table.add_column(heading, justify="right")
    for figure in found["this"][0]:
        pairs = [
            (ours[figure], theirs[figure])
            for ours, theirs in zip(found["this"], found["other"], strict=True)
            if figure in ours and figure in theirs
        ]
        ratios = [ours / theirs for ours, theirs in pairs if theirs]
        if ratios:
            medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
            ratio = (statistics.median(ratios), min(ratios), max(ratios))
            table.add_row(*figure, *(f"{m:,.3f}" for m in medians), *(f"{r:.3f}" for r in ratio))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
