"""Size of each value network, and its time for evaluation and for fitting.

Run ``python tests/benchmarks/bench_networks.py``. Everything uses one thread and counts its CPU
time. The world is ``multigrid/trivial``, with states that can be reached in it. Ratios compare with
``identity``, measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import save

import empo_multigrid
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import load_world
from empo_networks.network import Network, grid_conv, identity, mlp
from empo_networks.plugin import GridConvParams, IdentityParams, MlpParams
from empo_testing.exploration import reachable_states

STATES, BATCH = 1000, 64
CASE_S = 1.0
"""Each contender runs for about this long."""
MAKE: dict[str, Callable[[WorldSpec, Quantity, int], Network]] = {
    "identity": lambda spec, quantity, hidden: identity(
        IdentityParams(hidden=hidden), spec, quantity
    ),
    "mlp": lambda spec, quantity, hidden: mlp(MlpParams(hidden=hidden), spec, quantity),
    "grid-conv": lambda spec, quantity, hidden: grid_conv(
        GridConvParams(hidden=hidden), spec, quantity
    ),
}


def best_ms(call: Callable[[], object]) -> float:
    """The shortest CPU time of a call, after some to warm up."""
    best, begin, rounds = float("inf"), time.perf_counter(), -3
    while rounds < 5 or time.perf_counter() - begin < CASE_S:
        start = time.thread_time()
        call()
        rounds += 1
        if rounds > 0:
            best = min(best, time.thread_time() - start)
    return 1e3 * best


def questions(states: torch.Tensor, spec: WorldSpec, quantity: Quantity) -> ValueQuery:
    """One question per state, or per state and goal."""
    count, goals = len(states), len(spec.goals)
    steps_left = torch.arange(count) % (spec.horizon or 1) + 1
    if quantity != "v_h_e":
        return ValueQuery(states, steps_left)
    return ValueQuery(
        states,
        steps_left,
        goal=torch.arange(goals).repeat(count),
        state=torch.arange(count).repeat_interleave(goals),
    )


def row(spec: WorldSpec, states: torch.Tensor, name: str, quantity: Quantity, hidden: int) -> dict:
    """The figures of one network."""
    torch.manual_seed(0)
    network = MAKE[name](spec, quantity, hidden)
    if quantity != "v_h_e":
        network.share(MAKE[name](spec, "v_h_e", hidden))
    many, few = questions(states, spec, quantity), questions(states[:BATCH], spec, quantity)
    with torch.no_grad():
        answer_ms = best_ms(lambda: network(many))
        target = network(few) * 0.5
    regression = network.regression(weight_decay=0.0, max_grad_norm=10.0)
    weight = torch.ones_like(target)
    fit_ms = best_ms(lambda: regression.fit(few, target, weight, lr=1e-4))
    return {"bytes": len(save(network.state_dict())), "answer": answer_ms, "fit": fit_ms}


def main() -> None:
    """Print one table per quantity."""
    torch.set_num_threads(1)
    worlds = Path(empo_multigrid.__file__).parent / "worlds"
    world = load_world(MultigridParams(file=worlds / "trivial.yaml"))
    distinct = reachable_states(world, limit=STATES)
    states = distinct[torch.arange(STATES) % len(distinct)]
    console = Console()
    for quantity in ("q_r", "v_h_e"):
        each = "" if quantity == "q_r" else f" and {len(world.spec.goals)} goals"
        table = Table(title=f"{quantity}: {STATES} states{each}; fitting {BATCH} of them")
        for heading in (
            "network",
            "hidden",
            "bytes",
            "ratio",
            "answers ms",
            "ratio",
            "fit ms",
            "ratio",
        ):
            table.add_column(heading, justify="left" if heading == "network" else "right")
        for hidden in (64, 256):
            base = row(world.spec, states, "identity", quantity, hidden)
            for name in MAKE:
                own = (
                    base if name == "identity" else row(world.spec, states, name, quantity, hidden)
                )
                cells = [f"{own['bytes']:,}", f"{own['bytes'] / base['bytes']:.1f}"]
                for key in ("answer", "fit"):
                    cells += [f"{own[key]:.2f}", f"{own[key] / base[key]:.1f}"]
                table.add_row(name, str(hidden), *cells)
        console.print(table)


if __name__ == "__main__":
    main()
