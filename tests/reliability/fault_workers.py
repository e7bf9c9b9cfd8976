"""SIGKILL and SIGSTOP of actors and workers: exact accounts, and nothing is left of them."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import async_learner
import cloudpickle
import psutil
from fault_kinds import Trial, chosen

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.config import RunConfig

RUNS = 25
PAYLOADS = (0, 100, 20_000, 200_000, 2_000_000)
"""Bytes of an experience, by turns."""
HEARTBEAT_S = 1.0
PATIENCE_S = 300


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Runs in which so many processes are killed or stopped, each once."""
    place.mkdir(parents=True, exist_ok=True)
    cloudpickle.register_pickle_by_value(async_learner)  # Actors cannot import it.
    kinds = {"transport": _transport, "phase2": _phase2, "rollout": _rollout}
    cases = [name for number in range(RUNS) for name in [[*kinds][min(2, number % 5 // 2)]]]
    _transport(1, random.Random(0), place)  # Starts what stays: the fork server.
    for number, name in enumerate(cases):
        if name in chosen(kinds):
            before = handles(place)
            chance = random.Random(f"{seed} {number}")
            try:
                problem = kinds[name](count, chance, place / str(number))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"[-1000:]
            problem = problem or leaks(before, place)
            yield Trial(f"{name}, run {number}", problem, count)


def handles(place: Path) -> dict[str, set[str]]:
    """Descriptors, child processes and shared memory of now."""
    descriptors = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            descriptors.add(f"{path.name} {path.readlink()}")
        except FileNotFoundError:  # That of this very listing.
            continue
    return {
        "descriptors": descriptors,
        "processes": {str(child.pid) for child in psutil.Process().children(recursive=True)},
        "shared memory": {path.name for path in Path("/dev/shm").iterdir() if path.is_file()},
    }


def leaks(before: dict[str, set[str]], place: Path) -> str:
    """What is there that was not before, and does not go; empty: nothing."""
    deadline = time.monotonic() + 20
    while True:
        gc.collect()
        left = {key: now - before[key] for key, now in handles(place).items()}
        if not any(left.values()):
            return ""
        if time.monotonic() > deadline:
            return f"left over: { {key: names for key, names in left.items() if names} }"
        time.sleep(0.1)


def _strike(chance: random.Random, pid: int) -> None:
    """Kill a process, or stop it, so that it is found out by its heartbeat."""
    os.kill(pid, signal.SIGKILL if chance.random() < 0.7 else signal.SIGSTOP)


def _transport(count: int, chance: random.Random, place: Path) -> str:
    """Actors that only number what they send, to a learner that only counts."""
    params = AsyncParams(
        actors=3, min_env_steps=1, queue_size=1000, max_restarts=1000, heartbeat_s=HEARTBEAT_S,
        max_env_steps_per_training_step=None,
    )  # fmt: skip
    collector = AsyncCollector(params)
    try:
        collector.start(async_learner.counting(payload=chance.choice(PAYLOADS)))
        learner = async_learner.Learner(collector)
        async_learner.kill_at_random(learner, count, chance, lambda pid: _strike(chance, pid))
        _await(lambda: collector.counters()["restarts"] >= count, learner.learn)
    finally:
        collector.stop()
    return "; ".join([*learner.wrong, *learner.imbalance()])


def _await(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("not all actors are replaced")
        if not step():
            time.sleep(0.001)


def _phase2(count: int, chance: random.Random, place: Path) -> str:
    """A whole run of ``phase2`` whose actors are killed: every experience is where it should be."""
    import test_phase2_kills as kills

    left = count
    while left:  # On a busy machine a run may be over before all were killed.
        folder = place / str(left)
        folder.mkdir(parents=True)
        done = kills.run(folder, left, chance.randrange(10**6))
        kills.check_accounts(done)
        if done.step != kills.STEPS_PER_KILL * left or not done.tracker.hit:
            return f"{done.step} steps, {len(done.tracker.hit)} kills"
        if (folder / "actors").exists():
            return f"{folder / 'actors'} is left"
        left -= len(done.tracker.hit)
    return ""


def _rollout(count: int, chance: random.Random, place: Path) -> str:
    """A run of ``rollout`` whose workers with environments are killed, and replaced."""
    import test_rollout_faults as faults

    from empo_core.experiment import run

    total = 0
    while total < count:  # Each worker may be replaced three times.
        places = sorted(chance.sample(range(2, 18), min(6, count - total)))
        watcher, iterations = faults.KillAt(*places), places[-1] + 20
        folder = place / str(total)
        config: dict[str, Any] = faults.config(folder, iterations, "restart")
        result: Any = run(RunConfig.model_validate(config), watchers=[watcher])
        total += len(places)
        if len(watcher.killed) != len(places):
            return f"{len(watcher.killed)} killed of {len(places)}"
        if result.record.history[-1].steps < iterations * faults.ROLLOUT:
            return "steps are missing"
    return ""
