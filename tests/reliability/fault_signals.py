"""INT, TERM and HUP in every stage of a run: a clean end, and the run can be gone on with."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from fault_children import Child, Ended, begin, spawn
from fault_kinds import Trial, chosen
from fault_runs import Runs

STAGES = {
    "start": ("exact", "rollout"),
    "compile": ("exact",),
    "run": ("exact", "phase2", "rollout", "latent"),
    "save": ("exact", "phase2", "rollout", "latent"),
    "evaluate": ("rollout", "latent"),
    "workers": ("phase2", "rollout"),
}
"""Runs by the stage that a signal finds them in."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PLACES = {
    "run": ("empo_learning.loop:Loop._advance", "empo_exact.induction:GraphSweeps.sweep"),
    "save": ("empo_learning.checkpoint:Checkpoints.save", "empo_exact.values:ValueStore.put"),
    "evaluate": ("empo_learning.loop:Loop._evaluate",),
    "compile": ("numba.core.compiler:Compiler.compile_extra",),
}
"""Functions that say that a stage has been entered."""
WITH_WORKERS = {
    "phase2": "algorithm.params.collector={name: async, params: {actors: 2, min_env_steps: 50}}",
    "rollout": "algorithm.params.vectorisation={backend: process, workers: 2}",
}
MARK = "stage"
PATIENCE_S = 120


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """So many trials of each signal, in each stage of each run."""
    runs = Runs(place)
    for stage, names in STAGES.items():
        for name in chosen(names):
            for number in SIGNALS * count:
                chance = random.Random(f"{seed} {stage} {name} {number}")
                folder = runs.fresh(name)
                problem = _interrupted(runs, stage, name, number, folder, chance)
                yield Trial(f"{number.name} in {stage} of {name}", runs.drop(folder, problem))


def _interrupted(
    runs: Runs, stage: str, name: str, number: signal.Signals, folder: Path, chance: random.Random
) -> str:
    """Interrupt a run, and say what is wrong with its end; empty: nothing."""
    before = _segments()
    temporary = folder / "tmp"
    temporary.mkdir()
    changes = ()
    if stage == "workers":
        changes = (WITH_WORKERS[name], "algorithm.params.total_steps=1000000")
    elif stage == "evaluate":
        changes = (
            "algorithm.params.reporting.evaluation_episodes=2",
            "algorithm.params.reporting.evaluation_interval=1",
        )
    child = _begun(stage, folder, temporary, changes)
    if not _awaited(stage, child, folder, chance):
        return f"did not get there: {child.end(1).output[-500:]}"
    family = child.family()
    child.send(number)
    ended = child.end(PATIENCE_S)
    if ended.code == 0 and stage in ("save", "run"):
        return ""  # It was over already.
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    if problem := _fault(stage, number, ended):
        return problem
    if left := [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]:
        return f"processes are left: {left}"
    if left := _segments() - before:
        return f"shared memory is left: {left}"
    if left := [path.name for path in temporary.iterdir() if path.name != "numba"]:
        return f"temporary files are left: {left}"
    if changes:
        return ""  # The undisturbed run is another.
    return runs.verdict(name, folder)


def _segments() -> set[Path]:
    """Segments of shared memory, which are files."""
    return {path for path in Path("/dev/shm").iterdir() if path.is_file()}


def _fault(stage: str, number: signal.Signals, ended: Ended) -> str:
    """What is wrong with the end of a command that was interrupted."""
    if ended.code == -number and stage == "start" and not ended.output:
        return ""  # Python had not begun, or was not as far as our code.
    if ended.code != 130:
        return f"exit code {ended.code}, not 130: {ended.output[-1500:]}"
    return ended.fault


def _begun(stage: str, folder: Path, temporary: Path, changes: tuple[str, ...]) -> Child:
    """A run that begins, in a Python of its own where the start or workers matter."""
    arguments = ("run", "run.yaml", "--quiet", *changes)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    if stage in ("start", "workers"):
        return spawn(folder, *arguments, environment=environment)
    if stage == "compile":
        (temporary / "numba").mkdir(mode=0o700)
        environment["NUMBA_CACHE_DIR"] = str(temporary / "numba")
        script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        script += f"from fault_signals import announce; announce({stage!r})"
        return spawn(folder, *arguments, environment=environment, script=script)
    return begin(folder, *arguments, prepare=lambda: announce(stage))


def announce(stage: str) -> None:
    """Have functions of this process leave a mark when they are called the second time."""
    import importlib

    for target in PLACES[stage]:
        module, _, path = target.partition(":")
        owner_name, _, function = path.partition(".")
        owner = getattr(importlib.import_module(module), owner_name)
        _patch(owner, function)


def _patch(owner: Any, function: str) -> None:
    original, calls = getattr(owner, function), []

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            Path(MARK).touch()
        return original(*args, **kwargs)

    setattr(owner, function, call)


def _awaited(stage: str, child: Child, folder: Path, chance: random.Random) -> bool:
    """Wait until a run is in a stage, and a little longer; False if it ended before."""
    deadline = time.monotonic() + PATIENCE_S
    if stage == "start":  # It is over when the run has a directory.
        sending = time.monotonic() + chance.uniform(0.05, 2.0)
        while time.monotonic() < sending and not any(folder.glob("runs/*")):
            time.sleep(0.001)
        return True
    while not (len(child.family()) >= 3 if stage == "workers" else (folder / MARK).exists()):
        if child.is_over() or time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.5 if stage in ("workers", "compile") else 0.03))
    return True
