"""Processor time per transition of worlds written in Python, by three roads.

Run ``python tests/benchmarks/bench_python_worlds.py [SIZE [BOXES]]``. The world is that of
``blocks_in_python.py``. The contenders take turns, five of each, and medians are shown:

- *the model alone*: its ``transition_probabilities`` for all states and joint actions, in a loop
  that keeps nothing: the least that any search by this method can take, and the baseline;
- *one by one*: ``enumerate_world`` of this model, which is a world with all its arrays;
- *in batches*: ``enumerate_world`` of the model that has ``transitions_batch``;
- *compiled*: the state graph that ``exact`` builds of the world by ``compiled_world``; the time
  that numba takes for the function is not in it, and is shown besides.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from blocks_in_python import Blocks, BlocksInBatches, compiled_blocks
from jaxtyping import Int
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_exact.graph import build_graph
from empo_worlds.enumeration import EnumeratedWorld, enumerate_world

TURNS = 5


def main(size: int = 5, boxes: int = 2) -> None:
    """Measure and show."""
    plain, batched = Blocks(size, boxes), BlocksInBatches(size, boxes)
    world = enumerate_world(batched)
    compiled = compiled_blocks(size, boxes)
    compiling = seconds(lambda: compiled.transitions(compiled.initial_state()[None]))
    build_graph(compiled, compiled.spec.horizon)
    contenders: dict[str, Callable[[], object]] = {
        "the model alone": partial(ask_everything, plain, world),
        "one by one": lambda: enumerate_world(plain),
        "in batches": lambda: enumerate_world(batched),
        "compiled": lambda: build_graph(compiled, compiled.spec.horizon),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, contender in contenders.items():
            times[name].append(seconds(contender))
    transitions = len(world.transitions(all_rows(world)).prob)
    table = Table("road", "µs per transition", "of the model alone", title=f"{transitions:,}")
    baseline = statistics.median(times["the model alone"])
    for name, spent in times.items():
        middle = statistics.median(spent)
        table.add_row(name, f"{1e6 * middle / transitions:.3f}", f"{middle / baseline:.2f}")
    Console().print(table, f"compiling: {compiling:.1f} s of processor time")


def seconds(task: Callable[[], object]) -> float:
    """Processor time of a task."""
    before = time.process_time()
    task()
    return time.process_time() - before


def ask_everything(model: Blocks, world: EnumeratedWorld) -> None:
    """All answers of a model, without keeping them."""
    choices = list(product(*(range(len(agent.actions)) for agent in model.agents)))
    for row in all_rows(world):
        state = world.state_of(row)
        for actions in choices:
            model.transition_probabilities(state, actions)


def all_rows(world: EnumeratedWorld) -> Int[Tensor, "state 1"]:
    """The row of every state."""
    return torch.arange(world.num_states, dtype=torch.int32)[:, None]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
