"""Speed-up by batching in the computation of targets, and growth of the cost.

Run ``python tests/benchmarks/bench_targets.py``; ``--plot FILE`` draws the growth. The world has
7x7 cells, two humans and two robots; Q_r and V_h^e are networks ``mlp`` of width 64. All
contenders compute the same targets from the same batch on one core, in turns, so that ratios
carry over between machines better than times do:

- *one by one* calls every network for every state that occurs, and adds up in loops;
- *together, loops* calls every network once, and adds up in loops (``reference_targets``);
- *batched* is ``empo_phase2.targets``.

For the aggregation alone there is a leaner loop too: all values and chances lie ready in lists,
and it does nothing but add up products.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.protocols import Collector
from empo_learning.allocator import keep_freed_memory
from empo_multigrid.world import world_from_text
from empo_phase2.experience import Block, Transitions
from empo_phase2.params import Phase2Params, Phase2Theory
from empo_phase2.problem import Problem
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, policy_of
from empo_phase2.replay import Replay
from empo_phase2.targets import (
    ScheduledTheory,
    TargetComputer,
    aggregate_q_r,
    aggregate_v_h_e,
    collect,
    encode,
)

sys.path.append(str(Path(__file__).parents[2] / "plugins" / "empo_phase2" / "tests"))

from reference_targets import Listed, ReferenceTargets
from reference_values import ReferenceValues

MAP = """
map: |
  We We We We We We We
  We Ay .. .. Ro .. We
  We .. {r2} .. .. .. We
  We .. .. We .. .. We
  We .. Ro .. .. Ae We
  We {h2} .. .. .. .. We
  We We We We We We We
max_steps: 20
possible_goals: ["1,1", "3,1", "5,1", "1,3", "5,3", "3,4", "1,5", "5,5"]
goal_coverage: partial
"""
CASES = {"1 human, 1 robot": ("..", ".."), "2 humans, 1 robot": ("Ay", ".."),
         "2 humans, 2 robots": ("Ay", "Ae")}  # fmt: skip
SIZES = (4, 8, 16, 32, 64, 128)
SETTING = ScheduledTheory(gamma_h=0.95, gamma_r=0.95, beta_r=5.0)
REPEATS = 7


@dataclass(frozen=True)
class Case:
    """A world, experience in it, and what computes targets."""

    problem: Problem
    replay: Replay
    quantities: Quantities

    @classmethod
    def of(cls, second_human: str, second_robot: str) -> Case:
        """Random networks, and what actors did with them."""
        torch.manual_seed(0)
        net = {"name": "mlp", "params": {"hidden": 64}}
        params = Phase2Params.model_validate(
            {"human_prior": "path-heuristic", "values": {"q_r": net, "v_h_e": net}}
        )
        world = world_from_text(MAP.format(h2=second_human, r2=second_robot))
        problem = Problem.of(params, world)
        quantities, replay = problem.quantities(), problem.replay()
        for network in quantities.networks.values():
            assert isinstance(network, torch.nn.Module)
            network.eval()
        collector: Collector = build(params.collector)
        collector.start(problem.factory)
        collector.publish(quantities.published(), 0)
        while len(replay) < 2 * SIZES[-1]:
            for experience in collector.collect(0):
                replay.add(Block.from_arrays(experience.arrays), training_step=0)
        collector.stop()
        return cls(problem, replay, quantities)

    def batch(self, size: int) -> Transitions:
        """Some transitions."""
        generator = torch.Generator().manual_seed(1)
        return self.replay.transitions(self.replay.sample_indices(size, generator))

    def computer(self) -> TargetComputer:
        """The batched computation."""
        return TargetComputer(self.quantities, model_based=True)

    def reference(self) -> ReferenceTargets:
        """The plain computation."""
        problem, theory, networks = self.problem, Phase2Theory(), self.quantities.networks
        equations = ReferenceValues(problem.spec, problem.slots, theory, networks, SETTING)
        return ReferenceTargets(equations, model_based=True)


def cpu_ms(compute: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median CPU milliseconds, after one run that does not count where there are several."""
    if repeats > 1:
        compute()
    found = []
    for _ in range(repeats):
        before = time.process_time()
        compute()
        found.append(1e3 * (time.process_time() - before))
    return statistics.median(found)


Lists = list[Any]


def looped(
    v_r: Lists,
    payoff: Lists,
    items: Lists,
    listed: Listed,
    chance: Lists,
    by_slot: Lists,
    pi: Lists,
) -> tuple[Lists, Lists]:
    """Q_r and V_h^e added up one product after the other, everything else being ready."""
    actions, slots = len(pi[0]), len(payoff[0])
    q_r = [[0.0] * actions for _ in chance]
    v_h_e = [[0.0] * slots for _ in chance]
    for t, profiles in enumerate(chance):
        for p, likely in enumerate(profiles):
            for action in range(actions):
                pair = (t * len(profiles) + p) * actions + action
                for item in range(listed.offsets[pair], listed.offsets[pair + 1]):
                    prob, after = listed.prob[item], items[item]
                    q_r[t][action] += SETTING.gamma_r * likely * prob * v_r[after]
                    for slot in range(slots):
                        v_h_e[t][slot] += (
                            pi[t][action] * by_slot[t][p][slot] * prob * payoff[after][slot]
                        )
    return q_r, v_h_e


@torch.no_grad()
def aggregations(case: Case, batch: Transitions) -> tuple[float, float]:
    """CPU milliseconds of adding up, in lean loops and in batches."""
    problem = case.problem
    aggregate = build(problem.params.aggregator)
    collected = collect(batch, problem.spec)
    situations = encode(collected.key, problem.spec, case.replay.states)
    sources = situations.at(collected.source)
    values = case.quantities.forward(situations)
    pi_r = policy_of(values["q_r"], situations.available, SETTING.beta_r)
    v_r = case.quantities.closed_form_v_r(situations, values["u_r"], values["q_r"], pi_r)
    profiles = HumanProfiles(problem.spec, problem.slots)
    chance, by_slot = profiles.of(batch, sources.layout)
    pi_r = pi_r[collected.source]
    payoff = torch.where(situations.achieved, 1.0, SETTING.gamma_h * values["v_h_e"])

    def batched() -> tuple[torch.Tensor, torch.Tensor]:
        q_r = aggregate_q_r(v_r[collected.successor], collected, chance, SETTING.gamma_r, aggregate)
        return q_r, aggregate_v_h_e(
            payoff[collected.successor], collected, by_slot, pi_r, aggregate
        )

    lists = (v_r.tolist(), payoff.tolist(), collected.successor.tolist(), Listed.of(batch),
             chance.tolist(), by_slot.tolist(), pi_r.tolist())  # fmt: skip
    for ours, theirs in zip(batched(), looped(*lists), strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs), rtol=1e-3, atol=1e-4)
    return cpu_ms(lambda: looped(*lists), 3), cpu_ms(batched)


def compare(console: Console, case: Case, size: int) -> None:
    """Print what each way of computing targets costs."""
    batch, compute, plain = case.batch(size), case.computer(), case.reference()
    unused = [0.0] * size  # Chances that only targets without a model read.
    look_up = case.replay.states
    batched = cpu_ms(lambda: compute(batch, look_up, SETTING))
    together = cpu_ms(lambda: plain.compute(batch, look_up, unused, together=True), 1)
    alone = cpu_ms(lambda: plain.compute(batch, look_up, unused), 1)
    found = compute(batch, look_up, SETTING)
    torch.testing.assert_close(
        found.v_h_e.double(), plain.compute(batch, look_up, unused, together=True).v_h_e,
        rtol=1e-3, atol=1e-4,
    )  # fmt: skip
    table = Table(title=f"Targets at 7x7, 2 humans, 2 robots, batch {size}")
    for column in ("way", "CPU ms", "times batched", "aim"):
        table.add_column(column, justify="right")
    table.add_row("one by one", f"{alone:,.0f}", f"{alone / batched:,.0f}", ">= 34")
    table.add_row("together, loops", f"{together:,.0f}", f"{together / batched:,.0f}", "")
    table.add_row("batched", f"{batched:,.1f}", "1", "")
    table.add_section()
    lean, scattered = aggregations(case, batch)
    table.add_row("aggregation, lean loops", f"{lean:,.1f}", f"{lean / scattered:,.0f}", ">= 10")
    table.add_row("aggregation, batched", f"{scattered:,.2f}", "1", "")
    console.print(table)


def growth(console: Console, cases: dict[str, Case]) -> dict[str, list[tuple[int, float]]]:
    """Print and return cost against successors, for every case and batch size."""
    table = Table(title="Cost of targets against batch x joint actions x successors")
    for column in ("world", "batch", "pairs", "successors", "distinct", "dedup", "CPU ms",
                   "us per successor", "slope"):  # fmt: skip
        table.add_column(column, justify="right")
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, case in cases.items():
        compute, curve = case.computer(), curves.setdefault(name, [])
        for size in SIZES:
            batch = case.batch(size)
            ms = cpu_ms(lambda b=batch, c=case, f=compute: f(b, c.replay.states, SETTING))  # type: ignore[misc]
            found = compute(batch, case.replay.states, SETTING)
            slope = ""
            if curve:
                slope = f"{math.log(ms / curve[-1][1]) / math.log(found.items / curve[-1][0]):.2f}"
            curve.append((found.items, ms))
            table.add_row(
                name, str(size), f"{len(batch.offsets) - 1:,}", f"{found.items:,}",
                f"{found.distinct:,}", f"{found.items / found.distinct:.1f}x", f"{ms:.2f}",
                f"{1e3 * ms / found.items:.2f}", slope,
            )  # fmt: skip
    console.print(table)
    return curves


def draw(curves: dict[str, Sequence[tuple[int, float]]], file: Path) -> None:
    """Cost against successors, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        items, ms = zip(*curve, strict=True)
        axes.plot(items, ms, marker="o", label=name)
    every = sorted(point for curve in curves.values() for point in curve)
    (last_items, last_ms), first_items = every[-1], every[0][0]
    axes.plot([first_items, last_items], [last_ms * first_items / last_items, last_ms],
              color="black", linewidth=0.8, linestyle="--", label="linear")  # fmt: skip
    axes.set(
        xscale="log", yscale="log", ylabel="CPU ms per update",
        xlabel="successors: batch x joint actions x successors of each",
    )  # fmt: skip
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, help="draw how the cost grows into this file")
    plot = parser.parse_args().plot
    torch.set_num_threads(1)
    keep_freed_memory()  # As a run does.
    console = Console(width=120)
    cases = {name: Case.of(*second) for name, second in CASES.items()}
    compare(console, cases["2 humans, 2 robots"], 32)
    curves = growth(console, cases)
    if plot:
        draw(dict(curves), plot)


if __name__ == "__main__":
    main()
