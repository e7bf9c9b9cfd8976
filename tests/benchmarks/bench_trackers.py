"""Cost per step of tracking episodes, against adding up the same tensors.

Run ``python tests/benchmarks/bench_trackers.py``. The baseline is the least that a tracker can
do, two operations in place: ``episode_rewards.add_(rewards)`` and ``episode_lengths.add_(1)``.
``x bare`` is the time as a multiple of it, by medians of processor time over many rounds in which
all contenders take turns, so that it carries over between machines better than microseconds do.

In the last rows one in a hundred environments completes its episode, at least one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from empo_trackers import EpisodicEMATracker, EpisodicEMATrackerWithHistogram
from empo_trackers.episodes import EpisodicHistogram
from empo_trackers.plugin import EpisodicHistogramParams

NUM_ENVS = (64, 4_096, 65_536)
ROUNDS = 60
CALLS_S = 0.004
"""A contender's turn takes about this long, so that a switch of tasks spoils few turns."""
Contenders = dict[str, Callable[[], object]]


def typical_s(contenders: Contenders) -> dict[str, float]:
    """The median processor time of one call of each contender."""
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    calls = dict.fromkeys(contenders, 10)
    for turn in range(ROUNDS):
        for name, call in contenders.items():
            start = time.process_time()
            for _ in range(calls[name]):
                call()
            cost = (time.process_time() - start) / calls[name]
            if turn:  # The first one warms up.
                costs[name].append(cost)
            calls[name] = max(10, int(CALLS_S / max(cost, 1e-9)))
    return {name: median(found) for name, found in costs.items()}


def contenders_for(num_envs: int) -> Contenders:
    """Everything that is timed, as calls without arguments."""
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(num_envs, generator=generator)
    none = torch.zeros(num_envs, dtype=torch.bool)
    some = torch.rand(num_envs, generator=generator) < 0.01
    some[num_envs // 2] = True
    all_of_them, half = ~none, torch.arange(num_envs) < num_envs // 2
    reasons = torch.randint(3, (num_envs,), generator=generator)
    total, length = torch.zeros(num_envs), torch.zeros(num_envs, dtype=torch.int64)
    tracker = EpisodicEMATracker(num_envs)
    each = EpisodicEMATracker(num_envs, ema_update="per_episode")
    histogram = EpisodicEMATrackerWithHistogram(num_envs)
    component = EpisodicHistogram(EpisodicHistogramParams())
    component.start_episodes(num_envs, ("terminated", "truncated", "lost"))
    disabled = EpisodicEMATracker(num_envs, disable=True)

    def bare() -> None:
        total.add_(rewards)
        length.add_(1)

    return {
        "bare": bare,
        "no episode ends": lambda: tracker.step_update(rewards, none),
        "the same, with reasons": lambda: histogram.step_update(rewards, none, reasons),
        "as a component of a run": lambda: component.step_episodes(
            rewards, none, reasons, all_of_them
        ),
        "half of them step": lambda: component.step_episodes(rewards, none, reasons, half),
        "disabled": lambda: disabled.step_update(rewards, some, reasons),
        "1 % end": lambda: tracker.step_update(rewards, some),
        "the same, each averaged": lambda: each.step_update(rewards, some),
        "with reasons and histograms": lambda: histogram.step_update(rewards, some, reasons),
        "the same, sync=False": lambda: histogram.step_update(rewards, some, reasons, sync=False),
    }


def main() -> None:
    """Print one table."""
    torch.set_num_threads(1)
    table = Table("environments", "step", title=f"Following episodes, torch {torch.__version__}")
    for heading in ("us", "x bare"):
        table.add_column(heading, justify="right")
    for num_envs in NUM_ENVS:
        typical = typical_s(contenders_for(num_envs))
        for name, cost in typical.items():
            ratio = cost / typical["bare"]
            table.add_row(f"{num_envs:,}", name, f"{1e6 * cost:.2f}", f"{ratio:.2f}")
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
