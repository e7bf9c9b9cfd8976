"""Cost of a training step of ``phase2`` on the trivial world, and its shares by stage.

Run ``python tests/benchmarks/bench_phase2.py``. One core, batches of 64 transitions with all
their successors, CPU time after warm-up, medians over chunks. The floor is the time of as many
trivial tensor operations as the step has: no arrangement of the same operations is faster.
Times depend on the machine and on what else it does; shares and ratios do so less.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Collector
from empo_learning.timers import Timers
from empo_phase2.experience import Block
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_phase2.replay import Replay

AIMS_MS = {"lookup": 3.0, "mlp": 4.5, "grid-conv": 4.0}
COLLECTED, WARM, CHUNKS, CHUNK = 200, 100, 15, 20


def params_for(network: str, steps: int = 100_000) -> Phase2Params:
    """Q_r and V_h^e learned, everything in training from the start, targets as they come."""
    ref = {"name": network, "params": {} if network == "lookup" else {"hidden": 64}}
    return Phase2Params.model_validate(
        {
            "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
            "values": {"q_r": ref, "v_h_e": ref},
            "total_steps": steps,
            "warm_up": dict.fromkeys(("v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp"), 0),
            "optimiser": {"lr": 1.0 if network == "lookup" else 1e-3},
            "replay": {"batch_size": 64},
        }
    )


def prepared(network: str, timers: Timers) -> tuple[Learner, Collector]:
    """A learner with some experience, and what collects more."""
    torch.manual_seed(0)
    params = params_for(network)
    ref = WorldModelRef.model_validate({"name": "multigrid/trivial", "params": {"max_steps": 5}})
    problem = Problem.of(params, build(ref), ref)
    collector: Collector = build(params.collector)
    explorers, replay = ExplorerSet(params.exploration, problem.spec), problem.replay()
    learner = Learner(params, problem.quantities(), replay, collector, explorers, timers, 0)
    collector.start(problem.factory)
    collector.publish(learner.quantities.published(), 0)
    for step in range(COLLECTED):
        remember(collector, replay, step)
    return learner, collector


def train_of(learner: Learner) -> Callable[[int], None]:
    """A training step, whatever its number."""
    return lambda _: learner.train(learner.schedule.at(learner.steps))


def remember(collector: Collector, replay: Replay, step: int) -> None:
    """One step of collection."""
    for experience in collector.collect(step):
        replay.add(Block.from_arrays(experience.arrays), training_step=step)


def chunks_ms(step: Callable[[int], object]) -> float:
    """Median over chunks of the CPU milliseconds of a step."""
    for number in range(WARM):
        step(number)
    found = []
    for chunk in range(CHUNKS):
        before = time.process_time()
        for number in range(CHUNK):
            step(WARM + chunk * CHUNK + number)
        found.append(1e3 * (time.process_time() - before) / CHUNK)
    return statistics.median(found)


class Counting(TorchDispatchMode):
    """Counts tensor operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def floor_ms(operations: int) -> float:
    """CPU milliseconds of so many additions of 64 numbers."""
    numbers, one = torch.zeros(64), torch.ones(64)

    def add(_: int) -> None:
        for _ in range(operations):
            numbers.add_(one)

    return chunks_ms(add)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cprofile", choices=AIMS_MS, help="show which functions take the time")
    chosen = parser.parse_args().cprofile
    torch.set_num_threads(1)
    console = Console()
    if chosen:
        learner, _ = prepared(chosen, Timers(enabled=False))
        chunks_ms(train_of(learner))
        profiler = cProfile.Profile(time.process_time)
        profiler.runcall(chunks_ms, train_of(learner))
        pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        return
    table = Table(title="A training step on the trivial world (T=5), batch 64, one core")
    for column in ("values", "CPU ms", "aim", "with collection", "tensor ops", "floor ms"):
        table.add_column(column, justify="right")
    stages = []
    for network, aim in AIMS_MS.items():
        learner, collector = prepared(network, Timers(enabled=False))
        train = train_of(learner)
        alone = chunks_ms(train)
        with Counting() as counting:
            train(0)
        targets = learner.targets
        assert targets is not None

        def whole(step: int) -> None:
            remember(collector, learner.replay, step)  # noqa: B023
            train(step)  # noqa: B023

        together = chunks_ms(whole)
        collector.stop()
        table.add_row(
            network, f"{alone:.2f}", f"{aim:g}", f"{together:.2f}", f"{counting.count}",
            f"{floor_ms(counting.count):.2f}",
        )  # fmt: skip
        learner, collector = prepared(network, Timers(clock=time.process_time))
        measured = chunks_ms(train_of(learner))
        collector.stop()
        stages.append((network, learner.profile(), measured, targets))
    console.print(table)
    for network, profile, measured, targets in stages:
        stages_table = Table(title=f"{network}: stages of the targets, CPU time")
        stages_table.add_column("stage")
        stages_table.add_column("CPU ms", justify="right")
        for name, milliseconds in profile.items():
            stages_table.add_row(name, f"{milliseconds:.2f}")
        stages_table.caption = (
            f"a step: {measured:.3f} ms; {targets.items:,} successors, {targets.distinct:,} "
            "distinct situations"
        )
        console.print(stages_table)


if __name__ == "__main__":
    main()
