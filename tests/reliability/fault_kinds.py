"""The kinds of faults that are tried, one line each; a new kind is a module and a line here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

ONLY = "EMPO_FAULTS_ONLY"
"""The environment variable that says which kind of run is tried; empty: all are."""


@dataclass(frozen=True)
class Trial:
    """Faults that were tried together.

    Attributes:
        name: What was done.
        problem: What did not end as promised; empty: all did.
        faults: How many faults there were.
    """

    name: str
    problem: str = ""
    faults: int = 1


@dataclass(frozen=True)
class Kind:
    """A kind of faults.

    Attributes:
        name: Of the kind.
        title: What is tried.
        target: ``module:function``; the function takes a number of trials, a seed and a folder that
            is not there yet, and yields trials.
        count: The number of trials, of each part of the kind, in a programme of half an hour.
        quick: The number in a quick look; 0: none.
    """

    name: str
    title: str
    target: str
    count: int
    quick: int


_ALL = [
    Kind("kills", "kill -9 at random moments, then go on", "fault_kills:trials", 15, 1),
    Kind("signals", "INT, TERM, HUP in every stage", "fault_signals:trials", 1, 0),
    Kind("calls", "the n-th call fails, or kills", "fault_calls:trials", 20, 2),
    Kind("numbers", "NaN and infinity in a learner", "fault_suites:numbers", 1, 0),
    Kind("workers", "SIGKILL and SIGSTOP of workers", "fault_workers:trials", 4, 0),
    Kind("places", "disks, folders, limits and clocks", "fault_places:trials", 1, 0),
    Kind("disks", "crashes and refusals of checkpoints' disks", "fault_suites:disks", 1, 0),
    Kind("soak", "memory of each learner, over time", "fault_soak:trials", 40, 0),
    Kind("configs", "mutants of configs", "fault_files:configs", 20_000, 100),
    Kind("worlds", "mutants of worlds", "fault_files:worlds", 10_000, 0),
    Kind("files", "damaged files of runs", "fault_files:trials", 25, 0),
    Kind("plugins", "many, broken, heavy and hanging plugins", "fault_plugins:trials", 5, 0),
    Kind("numerics", "random games beside 60 digits", "fault_numerics:trials", 500, 20),
]
KINDS = {kind.name: kind for kind in _ALL}


def chosen(names: Iterable[str]) -> list[str]:
    """Names of runs, of which one may have been asked for alone."""
    only = os.environ.get(ONLY)
    return [name for name in names if not only or name == only]
