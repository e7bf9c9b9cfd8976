"""Sizes of compact states, and speed of computing features from states.

Run ``python tests/benchmarks/bench_codec.py``. Sizes are of a 7 x 7 grid with two agents; dense
means the features as float32. Speeds are of whole batches against the plain reference
(``reference_features`` of its tests), which describes one state after the other, in the same
run. All contenders use one thread and take turns; what counts is processor time, which does not
depend on what else the machine does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_multigrid.world import MultigridWorld, world_from_text

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "empo_multigrid" / "tests"))

import reference_features

WORLD = """
map: |
  We We We We We We We
  We Ay .. Kr Ro .. We
  We .. Lr .. .. Kb We
  We Un .. Bl Gb .. We
  We .. Ps .. Dk Ae We
  We .. Ro .. Bu CB We
  We We We We We We We
goal_coverage: partial
possible_goals: ["1,1"]
"""
SEED_BYTES = {"dense": 7644, "compact": 508}
"""Bytes stated in the design document, for the picture alone and for all compact features."""
BATCHES = (32, 1_000, 10_000)
REFERENCE_STATES = 20
ROUNDS = 10
CALLS = 3


def visited(world: MultigridWorld, count: int) -> Tensor:
    """States that random actions lead to."""
    generator = torch.Generator().manual_seed(0)
    states = world.initial_state().repeat(count, 1)
    for _ in range(30):
        mask = world.available(states).double().flatten(0, 1)
        actions = torch.multinomial(mask, 1, generator=generator).view(count, -1)
        states = world.step(states, actions, generator)
    return states


def best_us(contenders: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """The shortest time per state of each contender, after a call to warm up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, (call, states) in contenders.items():
            # The first of some calls finds caches and freed memory as others left them.
            for _ in range(CALLS):
                start = time.process_time()
                call()
                elapsed = time.process_time() - start
                if turn:
                    best[name] = min(best[name], elapsed / states * 1e6)
    return best


def plain(world: MultigridWorld, rows: list[list[int]]) -> None:
    """The features of some states, one after the other."""
    for row in rows:
        torch.tensor(reference_features.picture(world.layout, row))
        torch.tensor(reference_features.global_features(world.layout))
        torch.tensor(reference_features.agent_features(world.layout, row))
        torch.tensor(reference_features.object_features(world.layout, row))


def sizes(world: MultigridWorld) -> Table:
    """Bytes per state in each form."""
    shape, words = world.spec.featurizer.shape, world.compact_features.words
    picture = 4 * shape.channels * shape.height * shape.width
    table = Table("form", "bytes per state", "dense / form", "seed")
    for name, count, seed in (
        ("dense: picture alone", picture, f"{SEED_BYTES['dense']} (39 channels)"),
        ("dense: all features", 4 * shape.flat, ""),
        ("compressed grid", 4 * shape.height * shape.width, "196"),
        ("compact row", 4 * words, f"{SEED_BYTES['compact']}"),
        ("packed row", 2 * world.spec.state_words, ""),
    ):
        table.add_row(name, f"{count:,}", f"{4 * shape.flat / count:.1f}", seed)
    return table


def speeds(world: MultigridWorld) -> Table:
    """Time per state of each way, by batch size."""
    table = Table("states", "made", "us per state", "plain reference / this")
    for count in BATCHES:
        states = visited(world, count)
        compact, rows = world.compact(states), states[:REFERENCE_STATES].tolist()
        features, decode = world.spec.featurizer, world.compact_features
        found = best_us(
            {
                "features, plain": (partial(plain, world, rows), len(rows)),
                "features": (partial(features, states), count),
                "compact rows": (partial(world.compact, states), count),
                "features (from compact rows)": (partial(decode, compact), count),
            }
        )
        for name, time_us in found.items():
            ratio = found["features, plain"] / time_us
            table.add_row(f"{count:,}", name, f"{time_us:.3f}", f"{ratio:,.0f}")
    return table


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    world = world_from_text(WORLD)
    console = Console()
    console.print(sizes(world))
    console.print(speeds(world))


if __name__ == "__main__":
    main()
