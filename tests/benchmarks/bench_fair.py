"""What the fair objective costs beside preset ``paper``, turn by turn in one process.

Run ``python tests/benchmarks/bench_fair.py [--rounds 7] [--steps 16]``. Processor time of one
thread: medians, and the median of each round's ratio to ``paper``, with the greatest that is
allowed. Solves count from the graph on; sweeps are all that lies between the end of the first
sweep and that of the last. Of the vulnerability of all humans, the ratio is to the sweeps of
``fair``, by human; what is allowed is one sweep.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from bench_induction import SweepClock
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_worlds.enumeration import EnumeratedWorld

ACTIONS, REPLIES = 3, 4
"""Actions of the human, and of the robot, in random games."""
FAIR: dict[str, Any] = {"preset": "fair"}
CONTENDERS: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    "fair": FAIR,
    "fair, rho 4": {**FAIR, "theory": {"rho": 4}},
    "fair, delta 1/8": {**FAIR, "defunct": {"rate": 0.125}},
}
ONE_SWEEP = 1.0


def random_game(goals: int, successors: int, *, states: int = 600, steps: int = 40) -> WorldModel:
    """A game of a human and a robot, whose joint actions have so many successors each."""
    random = torch.Generator().manual_seed(0)
    pairs = states * ACTIONS * REPLIES
    spec = WorldSpec(
        name=f"{goals} goals, {'chance' if successors > 1 else 'certain'}",
        agents=(
            AgentSpec(name="human", role="human", actions=tuple(map(str, range(ACTIONS)))),
            AgentSpec(name="robot", role="robot", actions=tuple(map(str, range(REPLIES)))),
        ),
        goals=tuple(Goal(human=0, name=str(goal), weight=1.0) for goal in range(goals)),
        state_words=1,
        state_dtype=torch.int32,
        horizon=steps,
    )
    # Distinct successors of each joint action, each of the same probability.
    first = torch.randint(states, (pairs, 1), generator=random)
    others = torch.arange(successors) * (states // successors)
    chosen = ((first + others) % states).to(torch.int32)
    return EnumeratedWorld(
        spec,
        range(states),
        Successors(
            offsets=torch.arange(pairs + 1) * successors,
            states=chosen.reshape(-1, 1),
            prob=torch.full((pairs * successors,), 1.0 / successors, dtype=torch.float64),
            duration=None,
        ),
        available=torch.arange(max(ACTIONS, REPLIES))
        .lt(torch.tensor([[ACTIONS], [REPLIES]]))
        .expand(states, 2, -1)
        .clone(),
        achieved=torch.arange(states)[:, None] % goals == torch.arange(goals),
    )


def spent(world: WorldModel, changes: dict[str, Any]) -> tuple[float, float]:
    """Processor seconds of a solve, and of its sweeps but the first."""
    common = {"compute": {"workers": 1}, "keep": "none", "diagnostics": []}
    params = ExactParams.model_validate({**changes, **common})
    watch, begin = SweepClock(), time.process_time()
    solve(world, params, tracker=watch)
    return time.process_time() - begin, watch.spent[1]


def vulnerability(world: WorldModel) -> tuple[float, float]:
    """Processor seconds of the vulnerability of a human, and of a solve's sweeps."""
    params = ExactParams.model_validate({**FAIR, "compute": {"workers": 1}, "keep": "all"})
    watch = SweepClock()
    result = solve(world, params, tracker=watch)
    begin = time.process_time()
    diagnose(result, ["vulnerability"], penalties=[0.1])
    return (time.process_time() - begin) / len(world.spec.humans), watch.spent[1]


def allowed_of(name: str, spec: WorldSpec) -> float | None:
    """The greatest ratio to ``paper`` of one of the contenders."""
    many = len(spec.goals) >= 16
    return {
        "fair": 1.05,
        "fair, rho 4": 1.3 if many else 2.0,
        "fair, delta 1/8": 1.2 + 2.0 / spec.num_robot_actions,
    }.get(name)


def measure(table: Table, world: WorldModel, rounds: int) -> None:
    """Add what all contenders take in a world."""
    names = list(CONTENDERS)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for params in CONTENDERS.values():  # Loads the kernels.
        spent(world, params)
    vulnerable = [vulnerability(world) for _ in range(rounds + 1)][1:]
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(spent(world, CONTENDERS[name]))

    def ratio(name: str, part: int) -> float:
        return statistics.median(
            mine[part] / usual[part]
            for mine, usual in zip(times[name], times["paper"], strict=True)
        )

    for name in names:
        allowed = allowed_of(name, world.spec)
        table.add_row(
            world.spec.name,
            name,
            *(f"{1e3 * statistics.median(t[part] for t in times[name]):.0f}" for part in range(2)),
            f"{ratio(name, 0):.2f}",
            f"{ratio(name, 1):.2f}",
            "" if allowed is None else f"{allowed:.2f}",
        )
    sweeps = statistics.median(spent / all_sweeps for spent, all_sweeps in vulnerable)
    seconds = statistics.median(spent for spent, _ in vulnerable)
    table.add_row(
        world.spec.name,
        "vulnerability of a human",
        "",
        f"{1e3 * seconds:.0f}",
        "",
        f"{sweeps:.2f}",
        f"{ONE_SWEEP:.2f}",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    reference = {
        "name": "multigrid/asymmetric_freeing_simple",
        "params": {"max_steps": options.steps},
    }
    multigrid: WorldModel = build(WorldModelRef.model_validate(reference))
    columns = ("world", "what", "solve ms", "sweeps ms", "solve ratio", "sweeps ratio", "allowed")
    table = Table(*columns, title=f"Cost beside paper, medians of {options.rounds} turns")
    for successors in (1, 3):
        for goals in (2, 16):
            measure(table, random_game(goals, successors), options.rounds)
    measure(table, multigrid, options.rounds)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
