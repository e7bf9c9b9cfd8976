"""Speed of the exact solver and of multigrid's kernels against another checkout of EMPO.

``python tests/benchmarks/compare_exact.py --against PYTHON``, where ``PYTHON`` is the interpreter
of an environment with the other checkout. Each checkout works in a process of its
own; they take turns call by call, and processor time counts, so that other programs on the
machine disturb both alike. A ratio above 1 means that this checkout is faster. ``--runs`` also
compares ``empo run`` of the main example: the first one, which compiles, and later ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from paired import children_s
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "free_the_human.yaml"
THEORY = {"beta_h": 10.0, "gamma_h": 0.95, "gamma_r": 0.99, "beta_r": 10.0, "zeta": 2.0, "eta": 1.1}
GRAPHS = {"asymmetric_freeing_simple": 12, "asymmetric_freeing": 8}
SOLVES = {"asymmetric_freeing_simple": 20, "simple_circle": 8, "corridor_control": 20}
COPIES = 20_000


def tasks() -> dict[str, Callable[[], object]]:
    """Benchmarked functions of the checkout that this process imports, by name."""
    import torch

    import empo_multigrid
    from empo_exact.graph import build_graph
    from empo_exact.plugin import ExactParams
    from empo_exact.solve import solve
    from empo_multigrid.plugin import MultigridParams
    from empo_multigrid.world import load_world

    # Other checkouts may have these params at other places.
    known = ExactParams.model_fields
    given: dict[str, object] = {"keep": "none"}
    given |= {"theory": THEORY} if "theory" in known else THEORY
    given |= {"compute": {"workers": 1}} if "compute" in known else {"workers": 1}
    params = ExactParams.model_validate(given)
    worlds = Path(empo_multigrid.__file__).parent / "worlds"

    def world(name: str, steps: int):  # noqa: ANN202  The type is the other checkout's, too.
        return load_world(MultigridParams(file=worlds / f"{name}.yaml", max_steps=steps))

    found: dict[str, Callable[[], object]] = {}
    for name, steps in GRAPHS.items():
        made = world(name, steps)
        found[f"graph of {name}, T={steps}"] = partial(build_graph, made, steps, workers=1)
    for name, steps in SOLVES.items():
        found[f"solve {name}, T={steps}"] = partial(solve, world(name, steps), params)
    for name in ("household", "unsteady_room"):
        made, generator = world(name, 100), torch.Generator().manual_seed(0)
        states = made.initial_state().repeat(COPIES, 1)
        agents, options = len(made.spec.agents), made.spec.num_actions[0]
        actions = torch.randint(options, (COPIES, agents), generator=generator)
        for _ in range(5):
            states = made.step(states, actions, generator)
        found[f"step {COPIES:,} copies of {name}"] = partial(made.step, states, actions, generator)
        some = states[: COPIES // 20]
        found[f"successors of {len(some):,} states of {name}"] = partial(made.transitions, some)
    return found


def work() -> None:
    """Answer each line of input, the name of a task, with its processor time."""
    found = tasks()
    for task in found.values():
        task()
    for line in sys.stdin:
        start = time.process_time()
        found[line.rstrip("\n")]()
        sys.stdout.write(f"{time.process_time() - start}\n")
        sys.stdout.flush()


class Worker:
    """A process that measures one checkout."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, task: str) -> float:
        """Processor time of one call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{task}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def in_turn(workers: Sequence[Worker], task: str, round_: int) -> list[float]:
    """Processor time of each worker; who goes first alternates."""
    if round_ % 2:
        return [worker.seconds(task) for worker in workers[::-1]][::-1]
    return [worker.seconds(task) for worker in workers]


def row(name: str, ours: list[float], theirs: list[float]) -> tuple[str, ...]:
    """Medians of both, and the median and the quartiles of the ratios of neighbouring calls."""
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = (f"{1e3 * statistics.median(found):,.1f} ms" for found in (ours, theirs))
    return name, *medians, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"


def run_seconds(python: str, cache: str) -> float:
    """Processor time of ``empo run`` of the main example, with compiled code kept in a folder."""
    with tempfile.TemporaryDirectory() as runs:
        command = [str(Path(python).with_name("empo")), "run", str(EXAMPLE), "--quiet"]
        began = children_s()
        subprocess.run(
            [*command, f"runs={runs}"], check=True, capture_output=True,
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
        )  # fmt: skip
        return children_s() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of the other checkout")
    parser.add_argument("--rounds", type=int, default=11, help="calls of each task")
    parser.add_argument("--runs", action="store_true", help="compare 'empo run', too")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work()
        return
    if chosen.against is None:
        parser.error("--against is needed")
    pythons = [sys.executable, chosen.against]
    table = Table("task", "this", "other", "ratio", "quartiles", title="Processor time")
    workers = [Worker(python) for python in pythons]
    for name in tasks():
        pairs = [in_turn(workers, name, round_) for round_ in range(chosen.rounds)]
        table.add_row(*row(name, *map(list, zip(*pairs, strict=True))))
    if chosen.runs:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            caches = (one, two)
            pairs = [
                [run_seconds(p, c) for p, c in zip(pythons, caches, strict=True)] for _ in range(6)
            ]
        first, *later = pairs
        medians = (f"{1e3 * seconds:,.0f} ms" for seconds in first)
        table.add_row("first empo run", *medians, f"{first[1] / first[0]:.2f}", "")
        table.add_row(*row("later empo run", *map(list, zip(*later, strict=True))))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
