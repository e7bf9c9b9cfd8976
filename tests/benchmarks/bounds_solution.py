"""Bounds of the solution itself against the share of pairs that are expanded, in small worlds.

``python tests/benchmarks/bounds_solution.py`` prints a table and writes it as
``docs/explanation/bounds_solution.csv``, with a picture; ``--worlds`` and ``--variants`` compute a
part of it anew, and nothing with ``--worlds`` alone. Variants:

* ``plain``: unexpanded pairs have the bounds that hold anywhere; pairs are expanded by their
  occupancy under the solution, which nobody knows beforehand.
* ``relaxed``: above, V_h^e and V_r have the bounds of a world without obstacles, doors and boxes;
  pairs are expanded by occupancy under the upper bounds' policy times width.
* ``interval humans``: the same, and Phase 1 is bounded by the same pairs. In all other variants
  the humans' policies are known everywhere.
* ``oracle``: the same as ``relaxed`` with the bounds of everybody's best cooperation in the whole
  world, the best relaxation there is; it needs what it is meant to save.
"""

from __future__ import annotations

import argparse
import csv
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from interval_induction import (
    Game,
    Intervals,
    Policies,
    a_priori,
    arrival,
    by_agent,
    expected,
    induce,
    unroll,
)
from interval_rules import Flags, Floats
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from empo_bounds.assumptions import Assumptions
from empo_bounds.power import lack_bounds, power_bounds
from empo_bounds.round_off import Bounds, down, up
from empo_core.config import WorldModelRef
from empo_core.experiment import build
from empo_core.protocols import Located
from empo_exact.plugin import ExactParams
from empo_exact.solver import solve
from empo_theory.parameters import CompleteTheory

WORLDS: dict[str, dict[str, Any]] = {
    "free_the_human": {"name": "multigrid/free_the_human", "params": {"max_steps": 16}},
    "blocks": {"name": "blocks", "params": {"boxes": 2, "max_steps": 20}},
    "asymmetric_freeing_simple": {
        "name": "multigrid/asymmetric_freeing_simple",
        "params": {"max_steps": 12},
    },
}
THEORY = CompleteTheory(
    beta_h=5,
    gamma_h=0.95,
    gamma_r=0.95,
    beta_r=10,
    zeta=2,
    xi=1,
    eta=1.1,
    x_agg="sum",
    u_agg="sum",
)
"""That of the certificates in ``docs/explanation/bounds.md``."""
ASSUMED = Assumptions(min_power=1.0 - 1e-9, never_ends_early=True)
VARIANTS = ("plain", "relaxed", "interval humans", "oracle")
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
NUMBERS = ("share", "low", "high", "of_a_priori", "v_e")
"""Columns of the table that are numbers."""
STEP = 0.05
"""Share of the pairs that are expanded between two inductions, at most."""
FOLDER = Path(__file__).parents[2] / "docs" / "explanation"


@dataclass(frozen=True)
class Row:
    """Widths at the start.

    Attributes:
        world: The world.
        variant: How frontiers are bounded, and pairs chosen.
        share: Share of the pairs that are expanded.
        low: Lower bound of V_r.
        high: Upper bound of V_r.
        of_a_priori: Width of V_r by that before anything is expanded or relaxed.
        v_e: Width of the widest V_h^e.
    """

    world: str
    variant: str
    share: float
    low: float
    high: float
    of_a_priori: float
    v_e: float


def relax(game: Game, intervals: Intervals) -> None:
    """Bound V_h^m, V_h^e and V_r by a world in which nothing is in anybody's way.

    There a goal that is d cells away takes at least d steps, so that V_h^e is at most
    gamma_h^(d - 1), and 0 where fewer steps are left; V_r is at most U_r at these bounds and then
    the best of the cells within one step.

    Raises:
        ValueError: A human moves by more than one cell in one step.
    """
    question, spec = game.question, game.question.spec
    assert isinstance(question.world, Located)
    cells = question.world.positions(torch.from_numpy(game.rows)).numpy()[:, list(spec.humans)]
    moved = np.abs(cells[game.successor] - cells[:, None, None]).sum(-1)
    if moved[game.prob > 0].max() > 1:
        raise ValueError("a human moves by more than one cell in one step")
    distance = np.zeros(game.achieved.shape, np.int64)
    for human in range(len(spec.humans)):
        for goal in range(question.first_goal[human], question.first_goal[human + 1]):
            inside = np.unique(cells[game.achieved[:, goal], human], axis=0)
            if not len(inside):
                inside = np.full((1, 2), 10**6)  # Never attained.
            gap = np.abs(cells[:, human, None] - inside).sum(-1)
            distance[:, goal] = gap.min(1)
    places, place = np.unique(cells.reshape(len(cells), -1), axis=0, return_inverse=True)
    apart = np.abs(places[:, None] - places).reshape(len(places), len(places), -1, 2)
    near = (apart.sum(-1) <= 1).all(-1)
    chance = up(THEORY.gamma_h ** np.maximum(distance - 1.0, 0.0), 8)
    last = game.reached.shape[0] - 1
    floor = np.full(len(places), -game.theory.terminal_value)
    for left in range(1, last + 1):
        most = np.where(distance <= left, chance, 0.0) * (1.0 + 1e-7)
        power = power_bounds(question, Bounds(most, most))
        lack = np.zeros(len(places))
        lack[place.ravel()] = lack_bounds(question, power).low
        ahead = np.where(near, floor, np.inf).min(1)
        floor = down(lack + down(game.theory.gamma_r * ahead, 8), 8) * (1.0 - 1e-7)
        _lower(game, intervals, last - left, (most, floor[place.ravel()]))


def cooperate(game: Game, intervals: Intervals) -> None:
    """Bound V_h^m, V_h^e and V_r by the best that all agents together could do for each goal."""
    spec, everyone = game.question.spec, np.arange(len(game.rows))
    robots = tuple(range(1, 2 + len(spec.humans)))
    alive = np.asarray(game.alive.any(0))
    possible = by_agent(game, game.prob.sum(2)[:, :, None] > 0)
    most = np.zeros(game.achieved.shape)
    floor = np.full(len(everyone), -game.theory.terminal_value)
    for moment in range(game.reached.shape[0] - 2, -1, -1):
        best = np.where(possible, arrival(game, everyone, most), 0.0).max(robots)
        most = np.where(alive[:, None], up(best, game.terms), 0.0)
        ahead = expected(game, everyone, game.of_robots, floor[:, None])
        ahead = np.where(possible, down(ahead, game.terms), np.inf).min((*robots, -1))
        power = power_bounds(game.question, Bounds(most, most))
        total = down(lack_bounds(game.question, power).low + ahead, game.terms)
        floor = np.where(alive, total, -game.theory.terminal_value)
        _lower(game, intervals, moment, (most, floor))


def _lower(game: Game, intervals: Intervals, time: int, found: tuple[Floats, Floats]) -> None:
    """Narrow bounds of all pairs of a time: chances from above, and -V_r from below."""
    alive = game.alive[time]
    for bounds in (intervals.v_m, intervals.v_e):
        bounds.high[time, alive] = np.minimum(bounds.high[time], found[0])[alive]
    intervals.loss.low[time, alive] = np.maximum(intervals.loss.low[time], found[1])[alive]


def occupancy(game: Game, policies: Policies, expanded: Flags) -> Floats:
    """Chance of each pair under policies that are known in expanded pairs [time state]."""
    spec, mass = game.question.spec, np.zeros(game.reached.shape)
    mass[0, 0] = 1.0
    for time in range(len(mass) - 1):
        part = np.flatnonzero(expanded[time] & game.alive[time] & (mass[time] > 0))
        if not len(part):
            break
        chance = mass[time, part][:, None] * policies.robot[time, part]
        for human, agent in enumerate(spec.humans):
            own = policies.marginal[time, part, human, : spec.num_actions[agent]]
            chance = chance[..., None] * own.reshape(len(part), *[1] * (chance.ndim - 1), -1)
        flow = chance[..., None] * by_agent(game, game.prob[part])
        np.add.at(mass[time + 1], by_agent(game, game.successor[part]), flow)
    return mass


def known(game: Game) -> tuple[Intervals, Policies]:
    """Bounds and policies where everything is expanded."""
    intervals = a_priori(game, ASSUMED)
    return intervals, induce(game, ASSUMED, intervals, game.reached)


def expansions(
    game: Game, variant: str, intervals: Intervals, solution: Policies
) -> Iterator[float]:
    """Narrows bounds step by step, and yields the shares that are expanded."""
    alive, expanded = game.alive, np.zeros_like(game.reached)
    total, given = int(alive.sum()), None if variant == "interval humans" else solution
    yield 0.0
    order = occupancy(game, solution, game.reached)
    count, score = 0, np.where(np.arange(alive.size).reshape(alive.shape) == 0, 1.0, 0.0)
    for share in SHARES[1:]:
        while count < round(share * total):
            aim = round(share * total) - count
            if variant == "plain":
                score = np.where(alive & ~expanded, order + 1e-300, 0.0)
            else:
                aim = min(aim, max(1, int(STEP * total)))
            # Pairs that were never met come last, when nothing else is left.
            met = np.argsort(-score, axis=None, kind="stable")[:aim]
            met = met[score.ravel()[met] > 0]
            if not len(met):
                met = np.flatnonzero(alive & ~expanded)[:aim]
            expanded.ravel()[met] = True
            count += len(met)
            found = induce(game, ASSUMED, intervals, expanded, given)
            width = intervals.loss.high - intervals.loss.low
            reached = occupancy(game, found, expanded)
            score = np.where(alive & ~expanded, reached * width, 0.0)
        yield share


def study(name: str, variants: tuple[str, ...]) -> Iterator[Row]:
    """Widths in one world.

    Raises:
        AssertionError: The exact solution is not within bounds.
    """
    world = build(WorldModelRef.model_validate(WORLDS[name]))
    exact = -solve(world, ExactParams(theory=THEORY)).at(0).V_r
    game = unroll(world, THEORY)
    closed, solution = known(game)
    rounded = float(closed.loss.high[0, 0] - closed.loss.low[0, 0])
    assert float(closed.loss.low[0, 0]) <= exact <= float(closed.loss.high[0, 0])
    assert rounded < 1e-6 * exact
    print(
        f"{name}: {int(game.alive.sum()):,} pairs, V_r = {-exact:.5f} +- {rounded / 2:.0e}",
        flush=True,
    )
    for variant in variants:
        begun, intervals = clock.process_time(), a_priori(game, ASSUMED)
        before = float(intervals.loss.high[0, 0] - intervals.loss.low[0, 0])
        if variant in {"relaxed", "interval humans"}:
            relax(game, intervals)
        elif variant == "oracle":
            cooperate(game, intervals)
        for share in expansions(game, variant, intervals, solution):
            low, high = -float(intervals.loss.high[0, 0]), -float(intervals.loss.low[0, 0])
            assert low - 1e-9 <= -exact <= high + 1e-9
            v_e = float((intervals.v_e.high[0, 0] - intervals.v_e.low[0, 0]).max())
            yield Row(name, variant, share, low, high, (high - low) / before, v_e)
        print(f"{name}, {variant}: {clock.process_time() - begun:.0f} s of CPU", flush=True)


def table_of(rows: list[Row]) -> Table:
    """The rows for people."""
    table = Table("world", "variant", "expanded", "V_r", "of a priori", "widest V_h^e")
    for row in rows:
        numbers = f"{row.share:.0%}", f"[{row.low:.4g}, {row.high:.4g}]", f"{row.of_a_priori:.1%}"
        table.add_row(row.world, row.variant, *numbers, f"{row.v_e:.3f}")
    return table


def verdict(rows: list[Row]) -> str:
    """Whether half of the pairs are enough, for the best variant that knows no more than a user."""
    half = [row for row in rows if row.share == 0.5 and row.variant in VARIANTS[:3]]
    narrow = {row.world for row in half if row.of_a_priori <= 0.2}
    attained = {row.world for row in half if row.v_e <= 0.2}
    met = len(narrow) >= 1 and len(attained) >= 2
    return (
        f"With half of the pairs V_r is narrowed to 20 % in {len(narrow)} worlds (wanted: 1) and "
        f"V_h^e to 0.2 in {len(attained)} (wanted: 2): the criterion is {'' if met else 'not '}met."
    )


def draw(rows: list[Row], file: Path) -> None:
    """Width against the share expanded."""
    mpl.use("Agg")
    names = list(dict.fromkeys(row.world for row in rows))
    figure, axes = plt.subplots(2, len(names), figsize=(4 * len(names), 6), squeeze=False)
    for column, name in enumerate(names):
        for variant in dict.fromkeys(row.variant for row in rows):
            own = [row for row in rows if (row.world, row.variant) == (name, variant)]
            shares = [100 * row.share for row in own]
            axes[0, column].plot(shares, [100 * r.of_a_priori for r in own], "o-", label=variant)
            axes[1, column].plot(shares, [row.v_e for row in own], "o-", label=variant)
        for axis, limit, label in zip(
            axes[:, column], (20, 0.2), ("width of V_r, % of a priori", "widest V_h^e"), strict=True
        ):
            axis.axhline(limit, color="grey", linestyle=":")
            axis.axvline(50, color="grey", linestyle=":")
            axis.set(xlabel="pairs expanded, %", ylabel=label, ylim=(0, None))
        axes[0, column].set_title(name)
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    plt.close(figure)


def read(file: Path) -> list[Row]:
    """Rows of earlier runs, if there are any."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [
            Row(line["world"], line["variant"], *(float(line[name]) for name in NUMBERS))
            for line in csv.DictReader(lines)
        ]


def write(rows: list[Row], file: Path) -> None:
    """Write rows, those of a world and of a variant side by side."""
    with file.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Row.__dataclass_fields__)
        for row in sorted(rows, key=lambda r: (*WORLDS,).index(r.world) * 9 + _variant(r)):
            writer.writerow(vars(row).values())


def _variant(row: Row) -> int:
    return VARIANTS.index(row.variant)


def main() -> None:
    """Print the table and write it, with a picture; keep what is not asked for anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    file = chosen.out / "bounds_solution.csv"
    for name in chosen.worlds:
        new: list[Row] = []
        for row in study(name, tuple(chosen.variants)):
            new.append(row)
            if row.share == SHARES[-1]:
                done = {(row.world, row.variant) for row in new}
                kept = [row for row in read(file) if (row.world, row.variant) not in done]
                write([*kept, *new], file)
    rows = read(file)
    Console(width=110).print(table_of(rows))
    print(verdict(rows))
    draw(rows, chosen.out / "bounds_solution.png")


if __name__ == "__main__":
    main()
