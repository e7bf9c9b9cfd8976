"""Cost of storing and sampling sequences, against lists of episodes and a bare copy.

``python tests/benchmarks/bench_latent_replay.py`` fills the replay of algorithm ``latent`` and
the plain one (lists of episodes, one tensor per row) with the same episodes, and draws batches
from both. The baseline copies as many bytes as a batch has in one piece, from memory that is as
cold. Times are processor time of one thread, the least of several rounds in turns.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_latent.replay import Replay
from empo_latent.types import MultiTaskSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "empo_latent" / "tests"))

from reference_latent_replay import PlainReplay, Row

BATCH = 256
HORIZON = 3


@dataclass(frozen=True)
class Case:
    """Sizes of the experience in one replay benchmark."""

    name: str
    words: int
    actions: int
    envs: int
    rows: int
    episode: int
    pictures: bool = False

    def spec(self) -> MultiTaskSpec:
        """Of one task."""
        return MultiTaskSpec(
            words=self.words,
            pictures=self.pictures,
            shape=(9, 64, 64) if self.pictures else (self.words,),
            actions=self.actions,
            active=((True,) * self.actions,),
            tasks=("any",),
            action_repeats=(1,),
            episode_lengths=(self.episode,),
        )

    def bytes_of_batch(self) -> int:
        """Bytes of the sequences of a batch."""
        seen = (HORIZON + 1) * self.words * (1 if self.pictures else 4)
        return BATCH * (seen + HORIZON * 4 * (self.actions + 2))


CASES = (
    Case("vectors", 24, 6, envs=1, rows=100_000, episode=500),
    Case("vectors, 8 envs", 24, 6, envs=8, rows=100_000, episode=500),
    Case("short episodes", 24, 6, envs=1, rows=100_000, episode=7),
    Case("pictures", 9 * 64 * 64, 6, envs=1, rows=8_000, episode=500, pictures=True),
)


def filled(case: Case) -> tuple[Replay, PlainReplay, float]:
    """Both replays with the same episodes, and microseconds per step to fill the first."""
    fast = Replay(case.spec(), envs=case.envs, capacity=case.rows, horizon=HORIZON)
    plain = PlainReplay(case.rows, HORIZON)
    dtype = np.uint8 if case.pictures else np.float32
    seen = np.ones((case.envs, case.words), dtype)
    action, reward = torch.zeros(case.envs, case.actions), np.zeros(case.envs, np.float32)
    never = np.zeros(case.envs, bool)
    steps = int(1.2 * case.rows / case.envs)
    began = time.process_time()
    for t in range(steps):
        if t % case.episode == 0:
            fast.begin(seen, ~never)
        fast.add(action, reward, never, seen)
    spent = time.process_time() - began
    step = torch.zeros(case.actions + 2)
    row = torch.from_numpy(seen[0])
    # Some episodes are enough for pictures, since lists do not get slower with more.
    for episode in range(case.rows // case.episode if not case.pictures else 4):
        env = episode % case.envs
        plain.begin(env, row.clone())
        # Not by ``add``, which looks each time whether there is too much; there is not.
        plain.episodes[env][-1] += [Row(row.clone(), step) for _ in range(case.episode)]
    return fast, plain, 1e6 * spent / steps


def drawn_plainly(plain: PlainReplay, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch from lists, put together as the other is."""
    sequences = plain.sample(BATCH, rng)
    seen = torch.stack([torch.stack([row.seen for row in rows]) for rows in sequences], 1)
    steps = torch.stack(
        [torch.stack([row.step for row in rows[1:] if row.step is not None]) for rows in sequences],
        1,
    )
    return seen, steps


def best_us(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least processor time of each, in turns, after one to warm up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        for name, call in contenders.items():
            began = time.process_time()
            for _ in range(10):
                call()
            if turn:
                best[name] = min(best[name], 1e5 * (time.process_time() - began))
    return best


def copying(case: Case) -> Callable[[], object]:
    """Copies as many bytes as a batch has, from a new place each time."""
    size = case.bytes_of_batch()
    pool = torch.ones(max(4 * size, 2**28), dtype=torch.uint8)
    places = iter(range(10**9))

    def copy() -> object:
        start = (next(places) * 7919 * 4096) % (len(pool) - size)
        return pool[start : start + size].clone()

    return copy


def main() -> None:
    """Print what a batch takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of ten batches each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"Batches of {BATCH} sequences of {HORIZON} steps, one thread")
    headings = ("what", "KB", "add µs", "draw µs", "lists µs", "lists / draw", "copy µs")
    for heading in (*headings, "draw / copy"):
        table.add_column(heading, justify="right")
    for case in CASES:
        fast, plain, add = filled(case)
        generator, rng = torch.Generator().manual_seed(0), random.Random(0)
        best = best_us(
            {
                "draw": lambda fast=fast, generator=generator: fast.sample(BATCH, generator),
                "lists": lambda plain=plain, rng=rng: drawn_plainly(plain, rng),
                "copy": copying(case),
            },
            options.rounds,
        )
        draw, lists, copy = best["draw"], best["lists"], best["copy"]
        table.add_row(
            case.name, f"{case.bytes_of_batch() / 1024:,.0f}", f"{add:.1f}", f"{draw:,.0f}",
            f"{lists:,.0f}", f"{lists / draw:.1f}", f"{copy:,.0f}", f"{draw / copy:.2f}",
        )  # fmt: skip
        del fast, plain
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
