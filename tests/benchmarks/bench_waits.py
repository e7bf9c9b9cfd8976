"""Processor time of what people wait for: commands as a whole, beside the solve alone.

    python tests/benchmarks/bench_waits.py [--rounds 3] [--world multigrid/asymmetric_freeing]
        [--only TEXT ...]

Each row is a command in a process of its own, with kernels that are compiled already, in turns;
medians. What reads a run reads one that kept nothing, and one that kept the values of all times.
A first run on a machine is ``bench_first_run.py``'s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from paired import children_s
from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parents[2] / "examples" / "free_the_human.yaml"
SOLVE = """
import sys, time
from empo_core.documents import build_named, library_world
from empo_exact.solve import load_kernels, solve

world = build_named(*library_world(sys.argv[1]))
load_kernels(world, has_prior=False)
begin = time.process_time()
solve(world)
print(time.process_time() - begin)
"""
PICTURE = """
import sys, time
import empo_core

result = empo_core.open_run(sys.argv[1]).result
begin = time.process_time()
assert "<img" in result._repr_html_()
print(time.process_time() - begin)
"""


def cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Processor time of Python in a process of its own; what it prints, where that is a number."""
    began = children_s()
    process = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"{arguments} failed: {process.stderr or process.stdout}")
    if arguments[0] == "-c" and process.stdout:
        return float(process.stdout)
    return children_s() - began


def empo(*arguments: str) -> tuple[str, ...]:
    """The command line of ``empo``."""
    return "-m", "empo_core", *arguments


def cases(world: str, folder: Path) -> Iterator[tuple[str, Callable[[], tuple[str, ...]]]]:
    """What people wait for, by its name; its runs are made when its command is asked for."""
    runs, example = str(folder / "runs"), str(EXAMPLE)

    @cache
    def solved(keep: str, beta_r: int) -> str:
        """The directory of a run that kept so much."""
        name = folder / f"{keep}-{beta_r}"
        options = (f"algorithm.params.keep={keep}", f"algorithm.params.theory.beta_r={beta_r}")
        cpu_seconds(empo("run", world, "algorithm=exact", *options, f"runs={name}", "--quiet"))
        return str(next(name.iterdir()))

    @cache
    def main_example() -> str:
        """The directory of a run of the main example."""
        cpu_seconds(empo("run", example, f"runs={folder / 'example'}", "--quiet"))
        return str(next((folder / "example").iterdir()))

    def about(command: str, keep: str, *beta_r: int) -> tuple[str, ...]:
        """A command about runs that kept so much."""
        return empo(command, *(solved(keep, beta) for beta in beta_r))

    minigrid = ("MiniGrid-DoorKey-5x5-v0", "-o", str(folder / "key.yaml"))
    yield "import torch", lambda: ("-c", "import torch")
    yield "empo plugins", lambda: empo("plugins")
    yield "empo worlds", lambda: empo("worlds")
    yield "empo check, main example", lambda: empo("check", example)
    yield "empo run, main example", lambda: empo("run", example, f"runs={runs}", "--quiet")
    yield "its picture in a notebook", lambda: ("-c", PICTURE, main_example())
    yield "empo from-minigrid", lambda: empo("from-minigrid", *minigrid)
    yield "empo play, first picture", lambda: empo("play", "multigrid/trivial")
    yield "the solve alone", lambda: ("-c", SOLVE, world)
    yield "empo run", lambda: empo("run", world, "algorithm=exact", f"runs={runs}", "--quiet")
    for keep in ("auto", "all"):
        note = ", keep: all" if keep == "all" else ""
        yield f"empo explain{note}", partial(about, "explain", keep, 10)
        yield f"empo inspect{note}", partial(about, "inspect", keep, 10)
        yield f"empo compare of two{note}", partial(about, "compare", keep, 10, 20)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--world", default="multigrid/asymmetric_freeing")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name has such a text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = dict(cases(options.world, Path(folder)))
        chosen = [name for name in rows if any(text in name for text in options.only)]
        chosen = [*dict.fromkeys([*chosen, "the solve alone"])]
        seconds: dict[str, list[float]] = {name: [] for name in chosen}
        for _ in range(options.rounds):
            for name in chosen:
                seconds[name].append(cpu_seconds(rows[name]()))
                print(name, f"{seconds[name][-1]:.2f}", file=sys.stderr, flush=True)
                (Path(folder) / "key.yaml").unlink(missing_ok=True)
    table = Table(title=f"{options.world}; medians of {options.rounds} rounds")
    for heading in ("what", "CPU s", "times the solve alone"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    solve = statistics.median(seconds["the solve alone"])
    for name, measured in seconds.items():
        median = statistics.median(measured)
        table.add_row(name, f"{median:.2f}", f"{median / solve:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
