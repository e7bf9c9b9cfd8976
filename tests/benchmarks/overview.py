"""All tables of the page on speed, measured again: what the page says, and what was found now.

Runs scripts of this folder one after the other, and reads numbers from the tables that they print.
Peers (``requirements-peers.txt``) that are not installed are left out. With ``--against`` the
script of the same name in another tree, e.g. of an older commit, runs right before each.

    python tests/benchmarks/overview.py [--only bench_graph.py bench_ppo.py ...]
        [--against TREE --python TREE/.venv/bin/python]
"""

from __future__ import annotations

import argparse
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paired import HERE, number, output, rows
from rich.console import Console
from rich.progress import track
from rich.table import Table

PAGE = HERE.parents[1] / "docs/explanation/speed.md"


@dataclass(frozen=True)
class Figure:
    """Where a script prints the numbers of a row of the page.

    Attributes:
        row: The first cell of the row of the page.
        cells: Regular expressions of the first cells of the rows that the script prints them in;
            they know what older versions of the scripts call these rows.
        column: The heading of their column.
        only_first: Only the first such row counts.
    """

    row: str
    cells: tuple[str, ...]
    column: str
    only_first: bool = False

    def numbers(self, text: str) -> list[float]:
        """The numbers in what the script printed."""
        matching = [
            number(row[self.column])
            for row in rows(text)
            if self.column in row
            and all(map(re.fullmatch, self.cells, row.values()))
            and len(row) > len(self.cells)
        ]
        numbers = [each for each in matching if each is not None]
        return numbers[:1] if self.only_first else numbers


@dataclass(frozen=True)
class PageRow:
    """A row of a table of the page.

    Attributes:
        now: What the page says.
        aim: ``≤`` or ``≥`` and a number; empty where there is no aim.
        command: The script and its arguments, where the row has them.
    """

    now: str
    aim: str
    command: str

    def verdict(self, numbers: list[float]) -> str:
        """Whether all numbers reach the aim."""
        if not numbers:
            return "left out"
        if not self.aim:
            return ""
        aim = number(self.aim[1:].strip())
        assert aim is not None
        reaches = {"≤": operator.le, "≥": operator.ge}[self.aim[0]]
        return "reached" if all(reaches(each, aim) for each in numbers) else "missed"


def page_rows() -> Iterator[tuple[str, PageRow]]:
    """All rows of all tables of the page, by their first cell."""
    headings: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            headings = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not headings:
            headings = cells
        elif not set(line) <= set("|-:"):
            row = dict(zip(headings[1:], cells[1:], strict=True))
            now = next(row[heading] for heading in ("now", "ms", "CPU s") if heading in row)
            command = next((row[h] for h in row if h.startswith("script")), "")
            yield cells[0], PageRow(now.replace("**", ""), row.get("aim", ""), command.strip("`"))


FREEING = "Asymmetric freeing, simple"
FIGURES: dict[str, tuple[Figure, ...]] = {
    "bench_first_run.py": (
        Figure("first run of the main example on a machine, CPU s", ("first run",), "seconds"),
        Figure("later runs of it, CPU s", ("later run",), "seconds"),
    ),
    "bench_induction.py": (
        Figure("sweep, ns per swept transition (24 columns)", (".*, T=20",), "ns"),
        Figure("the same sweep, two threads over one", (".*, T=20",), "two / one"),
    ),
    "bench_fair.py": (
        Figure(
            "solving with preset `fair`, of the time with `paper`, five worlds",
            (".*", "fair"),
            "solve ratio",
        ),
        Figure("the same, `rho: 4`, 2 goals", ("2 goals, .*", "fair, rho 4"), "solve ratio"),
        Figure(
            "the same, `rho: 4`, 16 to 22 goals",
            (f"16 goals, .*|{FREEING}", "fair, rho 4"),
            "solve ratio",
        ),
        Figure(
            "the same, `defunct.rate: 1/8`, a robot of four actions",
            (".*", "fair, delta 1/8"),
            "solve ratio",
        ),
        Figure(
            "vulnerability of a human, of all sweeps of the solve",
            (".*", "vulnerability of a human"),
            "sweeps ratio",
        ),
    ),
    "bench_graph.py": (
        Figure("building a graph, times Storm 2.0.0", ("walkers, .*",), "ratio"),
        Figure("the same graph, two threads over one", ("walkers, .*",), "two / one"),
        Figure("peak bytes per stored transition", ("walkers, .*",), "peak"),
    ),
    "bench_environments.py": (
        Figure(
            "one multigrid environment, k agent-steps/s", ("trivial", "2", "environment"), "k/s"
        ),
    ),
    "bench_worlds.py": (
        Figure("vector of trivial worlds, M agent-steps/s", ("trivial", "2", "vector"), "M/s"),
        Figure("vector of warehouses (7 agents), the same", ("warehouse", "7", "vector"), "M/s"),
        Figure(
            "vectors of five worlds by Gymnasium and PettingZoo, the same",
            (".*", ".*", "Gymnasium|PettingZoo"),
            "M/s",
        ),
    ),
    "bench_vectors.py": (
        Figure(
            "CartPole by its vector class, us/step",
            ("CartPole-v1", "component( gymnasium)?"),
            "CPU us/step",
        ),
    ),
    "bench_phase2.py": (
        Figure("training step of `phase2`, tables, ms", ("lookup",), "CPU ms"),
        Figure("the same, `mlp`, ms", ("mlp",), "CPU ms"),
        Figure("the same, `grid-conv`, ms", ("grid-conv",), "CPU ms"),
    ),
    "bench_large_world.py": (
        Figure("the same in 12 × 12 cells with 3 agents, ms", ("rows",), "CPU ms a step"),
        Figure("a transition there, bytes in the replay", ("rows",), "bytes a transition"),
    ),
    "bench_ppo.py --seeds 3 --steps 65536": (
        Figure(
            "PPO, times Stable-Baselines3 at equal returns, `gradient: closed-form`",
            (".*", "EMPO(, closed-form)?"),
            "ratio",
        ),
        Figure("the same, `gradient: autograd`", (".*", "EMPO, autograd"), "ratio"),
    ),
    "bench_latent.py --sizes tiny": (Figure("latent update, `tiny`, ms", ("tiny", "svg"), "ms"),),
    "bench_tdmpc2.py --sizes 5M": (
        Figure(
            "latent update, `5M`, of TD-MPC2's time: `preset: tdmpc2`",
            ("5M", "tdmpc2"),
            "of TD-MPC2",
        ),
        Figure("the same: `preset: svg`", ("5M", "svg"), "of TD-MPC2"),
    ),
    "bench_advantages.py": (
        Figure(
            "GAE of 64 × 8,192, ms",
            ("advantages|numpy .*",),
            "ms",
            only_first=True,
        ),
    ),
    "bench_trackers.py": (
        Figure("episode tracker, 1 % of 64 episodes end, us", ("64", "1 % end"), "us"),
        Figure(
            "the same with reasons and histograms, us",
            ("64", "with reasons and histograms"),
            "us",
        ),
    ),
    "bench_latent.py --sizes 1M 5M": (
        Figure("update, `1M`, `svg`, 1 candidate", ("1M", "svg", "1"), "ms"),
        Figure("update, `1M`, `awr`, 16 candidates", ("1M", "awr", "16"), "ms"),
        Figure("update, `5M`, `svg`, 1 candidate", ("5M", "svg", "1"), "ms"),
        Figure("update, `5M`, `awr`, 16 candidates", ("5M", "awr", "16"), "ms"),
        Figure("plan, `1M`", ("1M", "all"), "ms"),
        Figure("plan, `5M`", ("5M", "all"), "ms"),
        Figure("plan, `5M`, `planner.value_heads: 2`", ("5M", "2"), "ms"),
    ),
    "bench_waits.py --rounds 1": tuple(
        Figure(row, (re.sub("[`]", "", row),), "CPU s")
        for row in (
            "the solve alone",
            *(
                f"`empo {command}`{of}{keep}"
                for keep in ("", ", `keep: all`")
                for command, of in (("explain", ""), ("inspect", ""), ("compare", " of two"))
            ),
            "`import torch`",
            *(f"`empo {command}`" for command in ("plugins", "worlds", "run", "from-minigrid")),
            *(f"`empo {command}`, main example" for command in ("check", "run")),
            "its picture in a notebook",
            "`empo play`, first picture",
        )
    ),
}
"""By command; each is run once."""


def printed(python: Path, script: Path, arguments: list[str]) -> str:
    """The text that a script prints; empty where the script fails."""
    try:
        return output(python, script, arguments)
    except (OSError, subprocess.CalledProcessError) as error:
        Console(stderr=True).print(f"{script}: {error}")
        return ""


def span(numbers: list[float]) -> str:
    """The least and the greatest number."""
    return "-".join(f"{end:g}" for end in sorted({min(numbers), max(numbers)})) if numbers else ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", help="scripts; default all")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another tree")
    parser.add_argument("--python", type=Path, help="its interpreter; default .venv/bin/python")
    options = parser.parse_args()
    chosen = {c: f for c, f in FIGURES.items() if not options.only or c.split()[0] in options.only}
    trees = {"now": (Path(sys.executable), HERE)}
    if options.against is not None:
        python = options.python or options.against / ".venv/bin/python"
        other = options.against / "tests/benchmarks"
        trees = {"other tree": (python.absolute(), other.absolute()), **trees}
    page = dict(page_rows())
    table = Table("row", "on the page", title="The page on speed, measured again")
    for heading in trees:
        table.add_column(heading, justify="right")
    for heading in ("aim", "", "script"):
        table.add_column(heading)
    for command, figures in track(chosen.items(), "Running scripts"):
        script, *arguments = command.split()
        texts = [printed(python, folder / script, arguments) for python, folder in trees.values()]
        for figure in figures:
            numbers, row = [figure.numbers(text) for text in texts], page[figure.row]
            cells = [figure.row, row.now, *map(span, numbers), row.aim, row.verdict(numbers[-1])]
            Console(stderr=True).print(*cells, sep=" | ")
            table.add_row(*cells, command)
        table.add_section()
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
