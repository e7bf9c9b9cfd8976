"""CPU time and memory of learning in a room of 12 x 12 cells with two humans and a robot.

Run ``python tests/benchmarks/bench_large_world.py``: what ``empo check`` announces, and what 30
training steps of ``phase2`` with networks then take, with state rows and with compact ones.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Collector
from empo_core.threads import torch_threads
from empo_learning.allocator import keep_freed_memory
from empo_learning.timers import Timers
from empo_phase2.algorithm import Phase2
from empo_phase2.experience import Block
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem

SIZE, STEPS, WARM = 12, 30, 5
THINGS = {(1, 1): "Ay", (10, 10): "Ay", (6, 5): "Ae", (5, 5): "Ro", (4, 3): "Bl"}
CORNERS = ("1,1", "10,1", "1,10", "10,10")
GOALS = ("1,1, 5,5", "6,1, 10,5", "1,6, 5,10", "6,6, 10,10", *CORNERS)


def world_file() -> str:
    """The room: walls around it, a rock, a block, quarters and corners as goals."""
    edge = (0, SIZE - 1)
    cells = [
        [THINGS.get((x, y), "We" if x in edge or y in edge else "..") for x in range(SIZE)]
        for y in range(SIZE)
    ]
    rows = "".join(f"  {' '.join(row)}\n" for row in cells)
    goals = "".join(f'  - "{goal}"\n' for goal in GOALS)
    return f"metadata: {{name: Room}}\nmap: |\n{rows}max_steps: 100\npossible_goals:\n{goals}"


def measured(file: Path, store: str) -> tuple[float, float]:
    """CPU seconds of a training step, the median, and bytes of a transition in the replay."""
    params = Phase2Params.model_validate(
        {
            "human_prior": "path-heuristic",
            "values": {"q_r": "mlp", "v_h_e": "mlp"},
            "replay": {"store": store},
        }
    )
    ref = WorldModelRef.model_validate({"name": "multigrid", "params": {"file": str(file)}})
    world = build(ref)
    announced = Phase2(params).check(world)
    print(store, {name: size for name, size in announced.items() if "MiB" in name})
    problem = Problem.of(params, world, ref)
    replay = problem.replay()
    collector: Collector = build(params.collector)
    explorers, timers = ExplorerSet(params.exploration, problem.spec), Timers(enabled=False)
    learner = Learner(params, problem.quantities(), replay, collector, explorers, timers, 0)
    collector.start(problem.factory)
    collector.publish(learner.quantities.published(), 0)
    took = []
    with torch_threads(params.compute.threads):  # Further ones take time even where they wait.
        for step in range(STEPS):
            began = time.process_time()
            for experience in collector.collect(step):
                replay.add(Block.from_arrays(experience.arrays), training_step=step)
            learner.train(learner.schedule.at(learner.steps))
            took.append(time.process_time() - began)
    seconds = statistics.median(took[WARM:])  # Kernels are there after so many.
    each = replay.bytes_per_transition()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds:.3f} CPU s per training step, {len(replay):,} transitions")
    print(f"{each:,.0f} bytes per transition in the replay, of which")
    print(f"{replay.items / len(replay):.1f} successors, {replay.distinct_states:,} states in all")
    print(f"{psutil.Process().memory_info().rss / 2**20:.0f} MiB held, {peak:.0f} MiB at most")
    return seconds, each


def main() -> None:
    file = Path(tempfile.mkdtemp()) / "room.yaml"
    file.write_text(world_file())
    keep_freed_memory()
    table = Table(
        "store", "CPU ms a step", "bytes a transition", title=f"A room of {SIZE} x {SIZE}"
    )
    for store in ("rows", "compact"):
        seconds, each = measured(file, store)
        table.add_row(store, f"{1e3 * seconds:.0f}", f"{each:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
