"""Building state graphs: against Storm, with two threads, and the memory that it takes.

``python tests/benchmarks/bench_graph.py`` prints the tables. Walkers stand in corridors of their
own, so that nobody is in anybody's way: a model that is as short in Storm's language as it is
here. Processor time of one thread, contenders in turns, medians.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from empo_exact.graph import build_graph
from empo_exact.parts.ram import return_freed
from empo_multigrid.world import MultigridWorld, world_from_text

TURNS = 5


def walkers(number: int, cells: int) -> MultigridWorld:
    """Agents in corridors, who stay, turn or walk."""
    wall = " ".join(["We"] * (cells + 2))
    rows = [wall]
    for agent in range(number):
        colour = "e" if agent == number - 1 else "y"
        rows += [" ".join(["We", f"A{colour}", *[".."] * (cells - 1), "We"]), wall]
    lines = "".join(f"  {row}\n" for row in rows)
    return world_from_text(
        f"metadata: {{name: Walkers}}\nmap: |\n{lines}max_steps: 100\n"
        f"orientations: [{', '.join('e' * number)}]\n"
        "goal_coverage: partial\npossible_goals: ['1,1']\n"
    )


def prism(number: int, cells: int) -> str:
    """The same in the language that Storm reads; a module for each walker, who act together."""
    ahead = f"d{{0}}=0 ? min(x{{0}}+1,{cells - 1}) : d{{0}}=2 ? max(x{{0}}-1,0) : x{{0}}"
    moves = ("true", "(d{0}'=mod(d{0}+3,4))", "(d{0}'=mod(d{0}+1,4))", f"(x{{0}}'={ahead})")
    lines = ["mdp"]
    for walker in range(number):
        lines += [f"module w{walker}", f"x{walker}:[0..{cells - 1}] init 0;"]
        lines += [f"d{walker}:[0..3] init 0;"]
        lines += [f"[step] true -> {move.format(walker)};" for move in moves]
        lines += ["endmodule"]
    return "\n".join(lines)


def storm_builder(number: int, cells: int) -> Callable[[], Any] | None:
    """Builds the walkers' model with Storm; None where it is not installed."""
    try:
        import stormpy
    except ImportError:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".prism") as file:
        file.write(prism(number, cells))
        file.flush()
        program = stormpy.parse_prism_program(file.name)
    options = stormpy.BuilderOptions()
    options.set_build_choice_labels(False)
    return lambda: stormpy.build_model(program, options=options)


def against_storm(sizes: list[tuple[int, int]]) -> Table:
    """Seconds of both, and their ratio."""
    table = Table(title="Building a graph (aim: 5 times as fast as Storm)")
    for column in ("graph", "states", "transitions", "ours (s)", "ns each", "Storm (s)", "ratio"):
        table.add_column(column, justify="right")
    for number, cells in sizes:
        world = walkers(number, cells)
        storm = storm_builder(number, cells)
        graph = build_graph(world, None, workers=1)
        turns = TURNS if graph.num_transitions < 10**7 else 3
        tasks = {"ours": lambda world=world: build_graph(world, None, workers=1)}
        if storm is not None:
            if storm().nr_transitions != graph.num_transitions:
                raise SystemExit("Storm's model has other transitions")
            tasks["storm"] = storm
        took: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(turns):
            for name, task in tasks.items():
                took[name].append(_clock(task, time.process_time))
        ours = statistics.median(took["ours"])
        theirs = statistics.median(took["storm"]) if storm else None
        table.add_row(
            f"walkers, {number} of {cells} cells",
            f"{graph.num_states:,}",
            f"{graph.num_transitions:,}",
            f"{ours:.2f}",
            f"{ours / graph.num_transitions * 1e9:.0f}",
            f"{theirs:.2f}" if theirs else "not installed",
            f"{theirs / ours:.1f}" if theirs else "",
        )
    return table


def threads_row(cells: int) -> Table:
    """Two threads against one, on the clock; beside two programs that share nothing."""
    world = walkers(4, cells)
    build_graph(world, 3, workers=2)
    ratios, controls = [], []
    for _ in range(TURNS):
        one = _clock(lambda: build_graph(world, None, workers=1))
        ratios.append(one / _clock(lambda: build_graph(world, None, workers=2)))
        controls.append(control())
    table = Table(title="Two threads (aim: 1.7 times as fast as one, on two idle cores)")
    for column in ("graph", "two / one", "control"):
        table.add_column(column, justify="right")
    table.add_row(
        f"walkers, 4 of {cells} cells",
        f"{statistics.median(ratios):.2f}",
        f"{statistics.median(controls):.2f}",
    )
    return table


def _clock(task: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    begin = clock()
    task()
    return clock() - begin


def control() -> float:
    """How much faster two threads are that only compute, and share nothing."""
    data = bytes(1 << 20)

    def work() -> None:
        for _ in range(300):
            hashlib.sha256(data).digest()

    def both() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2 * _clock(work) / _clock(both)


def memory(cells: int) -> Table:
    """The most that the process grows while it builds a graph, per stored transition."""
    world = walkers(4, cells)
    build_graph(world, 3, workers=1)
    return_freed()
    process, peak, ended = psutil.Process(), [0], threading.Event()
    base = process.memory_info().rss

    def watch() -> None:
        while not ended.wait(0.002):
            peak[0] = max(peak[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    graph = build_graph(world, None, workers=1)
    ended.set()
    watcher.join()
    table = Table(title="Bytes per stored transition (aim: 16 at the peak)")
    for column in ("graph", "transitions", "peak", "kept"):
        table.add_column(column, justify="right")
    each = [size / graph.num_transitions for size in (peak[0] - base, graph.nbytes)]
    name = f"walkers, 4 of {cells} cells"
    table.add_row(name, f"{graph.num_transitions:,}", *(f"{size:.1f}" for size in each))
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small graphs only")
    small = parser.parse_args().quick
    console = Console()
    console.print(memory(3 if small else 5))
    console.print(threads_row(3 if small else 4))
    console.print(against_storm([(4, 3)] if small else [(4, 3), (4, 5)]))


if __name__ == "__main__":
    main()
