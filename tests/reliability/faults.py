"""Hard use: runs that are killed, interrupted, poisoned and starved, kind by kind; prints a table.

    python tests/reliability/faults.py [KIND ...] [--count N] [--seed N] [--into FOLDER]

Without kinds all are tried; ``--list`` names them. ``--count`` takes the place of a kind's own
number of trials; ``--quick`` tries a few of each. With ``--into`` what is finished is noted in
that folder, and the same command goes on from there. The exit code is 1 if a trial did not hold.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import psutil
from fault_children import LIBRARY, preload, warm_up
from fault_kinds import KINDS, ONLY, Kind, Trial

NOTES = "faults.json"
MEMORY = Path("/dev/shm")
PREFIX = "empo-faults-"
"""Of folders that programmes work in; their process's number follows."""
KEPT = "kept"
"""A file in a folder of trials that did not hold, which later programmes leave alone."""
PROGRESS_S = 20
"""Seconds between signs of progress."""


@dataclass
class Outcome:
    """How a kind went.

    Attributes:
        kind: Its name.
        title: What was tried.
        command: What tries it again.
        tried: The number of faults.
        held: Of those, what ended as promised.
        seconds: How long all of it took.
        cpu_s: Processor time of it and of what it started and waited for.
        problems: What did not hold.
    """

    kind: str
    title: str
    command: str
    tried: int = 0
    held: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Count a trial."""
        self.tried += trial.faults
        if trial.problem:
            self.problems.append(f"{trial.name}: {trial.problem}")
        else:
            self.held += trial.faults


def tried(kind: Kind, count: int, seed: int, place: Path) -> Outcome:
    """All trials of a kind."""
    command = f"python tests/reliability/faults.py {kind.name} --count {count} --seed {seed}"
    if only := os.environ.get(ONLY):
        command += f" --only {only}"
    outcome = Outcome(kind.name, kind.title, command)
    began = shown = time.monotonic()
    used = _cpu_s()
    module, _, function = kind.target.partition(":")
    trials = getattr(importlib.import_module(module), function)
    for trial in trials(count, seed, place):
        outcome.add(trial)
        if trial.problem:
            print(f"{kind.name}: {outcome.problems[-1]}", flush=True)
            (place.parent / KEPT).touch()
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            print(f"{kind.name}: {outcome.tried} tried, {outcome.held} held", flush=True)
    outcome.seconds, outcome.cpu_s = time.monotonic() - began, _cpu_s() - used
    print(f"{kind.name}: {outcome.seconds:.0f} s, {outcome.cpu_s:.0f} CPU s", flush=True)
    return outcome


def _cpu_s() -> float:
    """Processor time of this process and of children that are over."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def clean_up(*folders: Path) -> None:
    """Remove what programmes that were killed have left, but what did not hold."""
    for folder in folders:
        for left in folder.glob(f"{PREFIX}*"):
            number = left.name.removeprefix(PREFIX).partition("-")[0]
            is_over = number.isdigit() and not psutil.pid_exists(int(number))
            if is_over and not (left / KEPT).exists():
                shutil.rmtree(left, ignore_errors=True)


def _place() -> Path:
    """A folder to work in."""
    if path := os.environ.get(LIBRARY):  # This process made it, before it started anew.
        return Path(path).parent
    elsewhere = Path(tempfile.gettempdir())
    clean_up(MEMORY, elsewhere, Path("/var/tmp"))
    # Disks take milliseconds for each of thousands of files that are synchronised.
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**32
    prefix = f"{PREFIX}{os.getpid()}-"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if has_room else elsewhere))


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown."""
    rows: list[tuple[str, ...]] = [("kind", "tried", "held", "s", "CPU s", "command")]
    for each in outcomes:
        times = (f"{each.seconds:.0f}", f"{each.cpu_s:.0f}")
        rows.append((each.title, str(each.tried), str(each.held), *times, f"`{each.command}`"))
    if len(outcomes) > 1:
        sums = [
            sum(getattr(each, name) for each in outcomes)
            for name in ("tried", "held", "seconds", "cpu_s")
        ]
        rows.append(("all", *(f"{number:.0f}" for number in sums), ""))
    rows.insert(1, ("---", "---:", "---:", "---:", "---:", "---"))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str]) -> int:
    """Try kinds and print the table; 1 if a trial did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="all, unless named")
    parser.add_argument("--count", type=int, help="trials of each kind")
    parser.add_argument("--only", default="", help="of the runs, e.g. phase2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few trials of each")
    parser.add_argument("--into", type=Path, help="a folder for notes, to go on from")
    parser.add_argument("--list", action="store_true", help="name the kinds")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - KINDS.keys():
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    chosen = [KINDS[name] for name in options.kinds or KINDS]
    if options.list:
        for kind in chosen:
            print(f"{kind.name}: {kind.title}; {kind.count} trials, {kind.quick} of a quick look")
        return 0
    place = _place()
    preload(place, [__file__, *arguments])
    os.environ[ONLY] = options.only
    warm_up()
    try:
        return _all(chosen, options, place)
    finally:
        if not (place / KEPT).exists():
            shutil.rmtree(place, ignore_errors=True)


def _all(chosen: Sequence[Kind], options: argparse.Namespace, place: Path) -> int:
    """Try kinds in a folder; 1 if a trial did not hold."""
    notes = None if options.into is None else options.into / NOTES
    outcomes = {}
    if notes is not None and notes.exists():
        outcomes = {key: Outcome(**each) for key, each in json.loads(notes.read_text()).items()}
    print(f"in {place}, seed {options.seed}", flush=True)
    for kind in chosen:
        count = options.count or (kind.quick if options.quick else kind.count)
        key = f"{kind.name} {count} {options.seed} {options.only}"
        if key in outcomes or count == 0:
            continue
        outcomes[key] = tried(kind, count, options.seed, place / kind.name)
        if notes is not None:
            notes.parent.mkdir(parents=True, exist_ok=True)
            notes.write_text(json.dumps({key: asdict(each) for key, each in outcomes.items()}))
    print(table(list(outcomes.values())))
    problems = [problem for each in outcomes.values() for problem in each.problems]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    # The same for every process that is started: see conftest.py.
    for name, value in {"OMP_NUM_THREADS": "1", "EMPO_BLOCK_PLUGINS": "empo-pictures"}.items():
        os.environ.setdefault(name, value)
    sys.exit(main(sys.argv[1:]))
