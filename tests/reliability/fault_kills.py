"""kill -9 at random moments: what goes on from there ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from fault_children import begin
from fault_kinds import Trial, chosen
from fault_runs import Runs, scenarios

AGAIN = 0.5
"""The chance that a run that goes on is killed as well."""


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Kill every kind of run so often."""
    runs = Runs(place)
    for name in chosen(scenarios()):
        chance, kills = random.Random(f"{seed} {name}"), 0
        while kills < count:
            folder = runs.fresh(name)
            moments = _killed(runs, name, folder, chance, count - kills)
            problem = runs.drop(folder, runs.verdict(name, folder))
            if moments or problem:
                yield Trial(f"{name}, after {_shown(moments)}", problem, max(1, len(moments)))
            kills += len(moments)


def _killed(runs: Runs, name: str, folder: Path, chance: random.Random, limit: int) -> list[float]:
    """Kill a run, and perhaps what goes on with it; the moments in seconds after the start."""
    undisturbed, moments = runs.undisturbed(name), list[float]()
    while len(moments) < limit:
        arguments = undisturbed.scenario.next(folder)
        if arguments is None:
            break
        child, moment = begin(folder, *arguments), chance.uniform(0, undisturbed.seconds)
        time.sleep(moment)
        family = [] if (is_over := child.is_over()) else child.family()
        child.send(signal.SIGKILL)
        child.end()
        psutil.wait_procs(family, timeout=60)
        if is_over:
            break
        moments.append(moment)
        if chance.random() > AGAIN:
            break
    return moments


def _shown(moments: list[float]) -> str:
    return " and ".join(f"{moment:.3f} s" for moment in moments)
