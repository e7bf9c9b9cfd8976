"""Memory, descriptors and threads of a learner that trains for long."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from fault_children import spawn
from fault_kinds import Trial, chosen
from small_runs import CONFIGS

from empo_core.config.yaml import dump_yaml

STEPS = 10**9
TOLERANCE = 0.02
"""The growth of memory that is allowed."""
WARM_UP = 1 / 3
"""The part of the time in which what is kept fills: replays, caches, logs of numbers."""
EVERY_S = 0.25
SAMPLES = 600
"""Most of them: to read the list of all memory takes as long as many steps."""


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Each learner trains for so many seconds."""
    for name in chosen(CONFIGS):
        folder = place / name
        folder.mkdir(parents=True)
        (folder / "run.yaml").write_text(dump_yaml(_config(name, seed)))
        child = spawn(folder, "run", "run.yaml", "--quiet")  # A fork shares memory, less and less.
        samples, end = list[tuple[int, int, int]](), time.monotonic() + count
        while time.monotonic() < end and not child.is_over():
            process = child.process
            samples.append((_anonymous(process), process.num_fds(), process.num_threads()))
            time.sleep(max(EVERY_S, count / SAMPLES))
        if child.is_over():
            yield Trial(name, f"ended early: {child.end().output[-1000:]}")
            continue
        child.send(signal.SIGINT)
        ended = child.end()
        problem = ended.fault or _growth(samples)
        steady = samples[int(len(samples) * WARM_UP) :]
        memory = [sample[0] / 2**20 for sample in steady]
        change = f"{memory[0]:.1f} to {memory[-1]:.1f} MiB after {_lines(folder)} lines of its log"
        print(f"{name}: {change}", flush=True)
        yield Trial(f"{name}, {count} s", problem)


def _anonymous(process: psutil.Process) -> int:
    """Bytes of memory that no file stands behind.

    Pages of libraries are private or shared according to what other processes run at the time.
    """
    return sum(area.anonymous for area in process.memory_maps())


def _config(name: str, seed: int) -> dict[str, Any]:
    """A run without end."""
    config = {**CONFIGS[name], "trackers": ["jsonl"], "seed": seed}
    algorithm = config["algorithm"]
    params = {**algorithm["params"], "total_steps": STEPS}
    if name == "phase2":
        params["replay"] = {**params["replay"], "capacity": 500}
    return {**config, "algorithm": {**algorithm, "params": params}}


def _lines(folder: Path) -> int:
    """How many lines of metrics there are."""
    (path,) = folder.glob("runs/*/metrics.jsonl")
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _growth(samples: list[tuple[int, int, int]]) -> str:
    """What has grown from the second third of the time to the last one; empty: nothing."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    if not middle:
        return "too short"
    before, after = (sorted(each[0] for each in part)[len(part) // 2] for part in (middle, last))
    if after > before * (1 + TOLERANCE):
        return f"memory grew from {before / 2**20:.1f} to {after / 2**20:.1f} MiB"
    for place, name in ((1, "descriptors"), (2, "threads")):
        if last[-1][place] > max(sample[place] for sample in middle):
            return f"{name} grew to {last[-1][place]}"
    return ""
