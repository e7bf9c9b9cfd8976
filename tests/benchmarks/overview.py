"""Every comparison that has an aim, in one table: what was found, and the script that tells more.

Runs scripts of this folder one after the other, and reads numbers from the tables that they print.
Peers (``requirements-peers.txt``) that are not installed are left out.

    python tests/benchmarks/overview.py [--only bench_graph.py bench_ppo.py ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paired import HERE, number, output, rows
from rich.console import Console
from rich.progress import track
from rich.table import Table


@dataclass(frozen=True)
class Comparison:
    """A number that a script prints, and its aim.

    Attributes:
        title: What is measured, with its unit.
        cells: The first row that begins with these cells has the number.
        column: The heading of its column.
        aim: The least number that is wanted; the greatest where ``at_most``.
        at_most: Less is better.
    """

    title: str
    cells: tuple[str, ...]
    column: str
    aim: float
    at_most: bool = False

    def found(self, text: str) -> float | None:
        """The number in what the script printed; None where it is not there."""
        for row in rows(text):
            if tuple(row.values())[: len(self.cells)] == self.cells and self.column in row:
                return number(row[self.column])
        return None

    def verdict(self, value: float | None) -> str:
        """Whether the aim is reached."""
        if value is None:
            return "left out"
        reached = value <= self.aim if self.at_most else value >= self.aim
        return "reached" if reached else "missed"


ASYMMETRIC = "Asymmetric freeing, simple"
COMPARISONS: dict[tuple[str, ...], tuple[Comparison, ...]] = {
    ("bench_first_run.py",): (
        Comparison("first run of the main example, CPU s", ("first run",), "seconds", 15, True),
        Comparison("later runs of it, CPU s", ("later run",), "seconds", 2, True),
    ),
    ("bench_graph.py",): (
        Comparison("building a graph, times Storm", ("walkers, 4",), "ratio", 5),
        Comparison("two threads for it", ("walkers, 4 of 4 cells",), "two / one", 1.7),
        Comparison("its peak, bytes a transition", ("walkers, 4 of 5 cells",), "peak", 16, True),
    ),
    ("bench_induction.py",): (
        Comparison(
            "sweep, ns a swept transition", ("asymmetric_freeing_simple, T=20",), "ns", 9, True
        ),
        Comparison("two threads for it", ("asymmetric_freeing_simple, T=20",), "two / one", 1.7),
    ),
    ("bench_fair.py",): (
        Comparison(
            "solve with fair, of paper's time",
            (ASYMMETRIC, "fair"),
            "solve ratio",
            1.05,
            True,
        ),
        Comparison("the same, rho 4", (ASYMMETRIC, "fair, rho 4"), "solve ratio", 1.3, True),
        Comparison(
            "the same, robots may fail",
            (ASYMMETRIC, "fair, delta 1/8"),
            "solve ratio",
            1.7,
            True,
        ),
    ),
    ("bench_environments.py",): (
        Comparison("one environment, k agent-steps/s", ("trivial", "2", "environment"), "k/s", 120),
    ),
    ("bench_worlds.py",): (
        Comparison("vector of trivial worlds, M/s", ("trivial", "2", "vector"), "M/s", 2),
        Comparison("vector of warehouses, M/s", ("warehouse", "7", "vector"), "M/s", 1),
    ),
    ("bench_vectors.py",): (
        Comparison(
            "CartPole by its vector class, us/step",
            ("CartPole-v1", "component"),
            "CPU us/step",
            1.15,
            True,
        ),
    ),
    ("bench_phase2.py",): (
        Comparison("step of phase2, tables, ms", ("lookup",), "CPU ms", 0.37, True),
        Comparison("step of phase2, mlp, ms", ("mlp",), "CPU ms", 4, True),
        Comparison("step of phase2, grid-conv, ms", ("grid-conv",), "CPU ms", 4, True),
    ),
    ("bench_large_world.py",): (
        Comparison("step of phase2, 12 x 12 cells, ms", ("rows",), "CPU ms a step", 20, True),
        Comparison("a transition there, bytes", ("rows",), "bytes a transition", 1000, True),
    ),
    ("bench_ppo.py", "--seeds", "3"): (
        Comparison(
            "PPO, times Stable-Baselines3",
            ("32 steps, 10 x 8 minibatches", "EMPO, closed-form"),
            "ratio",
            2.5,
        ),
    ),
    ("bench_latent.py", "--sizes", "tiny"): (
        Comparison("latent update, tiny, ms", ("tiny", "svg"), "ms", 15, True),
    ),
    ("bench_tdmpc2.py", "--sizes", "5M"): (
        Comparison(
            "update as TD-MPC2's, 5M, of its time", ("5M", "tdmpc2"), "of TD-MPC2", 0.6, True
        ),
        Comparison("update of svg, 5M, the same", ("5M", "svg"), "of TD-MPC2", 0.6, True),
    ),
    ("bench_advantages.py",): (
        Comparison("GAE, ms", ("numpy (what is used on the CPU)",), "ms", 0.8, True),
    ),
    ("bench_trackers.py",): (
        Comparison("episode tracker, us", ("64", "1 % end"), "us", 15, True),
        Comparison("with histograms, us", ("64", "with reasons and histograms"), "us", 40, True),
    ),
}
"""By command; each is run once."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="scripts; default all")
    only = parser.parse_args().only
    chosen = {c: a for c, a in COMPARISONS.items() if only is None or c[0] in only}
    table = Table("comparison", title="Comparisons that have an aim")
    for heading in ("found", "aim", "", "script"):
        table.add_column(heading, justify="right" if heading in ("found", "aim") else "left")
    for (script, *arguments), comparisons in track(chosen.items(), "Running scripts"):
        try:
            text = output(Path(sys.executable), HERE / script, arguments)
        except subprocess.CalledProcessError as error:
            text = ""
            Console(stderr=True).print(f"{script} ended with status {error.returncode}")
        for each in comparisons:
            value = each.found(text)
            shown = "" if value is None else f"{value:g}"
            aim = f"{'<=' if each.at_most else '>='} {each.aim:g}"
            table.add_row(
                each.title, shown, aim, each.verdict(value), " ".join([script, *arguments])
            )
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
