"""The n-th call of open, write, fsync, rename or mkdir fails, or the process is killed there.

What was told must be a message of ours; what goes on from there must end as if nothing had
happened. Calls are those of files in the folder of the run, of its start and of its resumption.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_children import CALLS, ERRORS, call, failing, library
from fault_kinds import Trial, chosen
from fault_runs import PARTS_FOLDER, Runs, contents, difference

NAMES = ("exact", "parts", "phase2", "rollout", "latent", "certificate")
KILL = 0
NEVER = 10**9


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """So many calls of every kind of run, of its start and of its resumption; all if 0 or fewer."""
    if library() is None:
        return
    runs = Runs(place)
    for name in chosen(NAMES):
        chance = random.Random(f"{seed} {name}")
        for begun in dict.fromkeys((None, _interrupted(runs, name))):
            numbers = _numbers(runs, name, begun)
            points = [(kind, n) for kind, total in numbers.items() for n in range(1, total + 1)]
            how = "start" if begun is None else "resumption"
            print(f"calls: {name} {how} makes {len(points)}: {numbers}", flush=True)
            sample = points if not 0 < count < len(points) else chance.sample(points, count)
            for kind, number in sorted(sample):
                yield _trial(runs, name, begun, kind, number, chance)


def _interrupted(runs: Runs, name: str) -> Path | None:
    """A run that was killed after half of its renames; None: its command knows no resumption."""
    if name == "certificate":
        return None
    whole = _numbers(runs, name, None)["rename"]
    folder = runs.fresh(name)
    begun = call(folder, "run", "run.yaml", "--quiet", prepare=_fault(folder, "rename", whole // 2))
    assert begun.code < 0, begun.output
    return folder


def _numbers(runs: Runs, name: str, begun: Path | None) -> dict[str, int]:
    """How many calls of each kind there are where none fails."""
    folder = _folder(runs, name, begun)
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None

    def report() -> None:
        import atexit

        def write() -> None:
            loaded = library()
            assert loaded is not None
            numbers = [str(loaded.faults_count(number)) for number in CALLS.values()]
            (runs.place / "numbers").write_text(" ".join(numbers))

        failing(folder / "runs", "open", NEVER, KILL, for_good=False)
        atexit.register(write)

    ended = call(folder, *arguments, prepare=report)
    assert ended.code == 0, ended.output
    numbers = map(int, (runs.place / "numbers").read_text().split())
    shutil.rmtree(folder)
    return dict(zip(CALLS, numbers, strict=True))


def _folder(runs: Runs, name: str, begun: Path | None) -> Path:
    """A folder to work in: with a run that was killed, or none."""
    folder = runs.fresh(name)
    if begun is not None:
        shutil.copytree(begun, folder, dirs_exist_ok=True)
    return folder


def _fault(
    folder: Path, kind: str, number: int, code: int = KILL, *, for_good: bool = False
) -> Callable[[], None]:
    return lambda: failing(folder / "runs", kind, number, code, for_good=for_good)


def _left(folder: Path) -> str:
    """What is there of a solve in parts that is over; empty: nothing."""
    left = [str(path) for path in folder.glob(f"runs/*/{PARTS_FOLDER}*")]
    return f"{left} are left over" if left else ""


def _trial(
    runs: Runs, name: str, begun: Path | None, kind: str, number: int, chance: random.Random
) -> Trial:
    """Have one call fail, then go on."""
    code, for_good = chance.choice([KILL, *ERRORS[kind]]), chance.random() < 0.5
    how = "killed" if code == KILL else errno.errorcode[code] + (" for good" if for_good else "")
    title = f"{name} {'start' if begun is None else 'resumption'}, {kind} {number}: {how}"
    folder = _folder(runs, name, begun)
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None
    ended = call(folder, *arguments, prepare=_fault(folder, kind, number, code, for_good=for_good))
    problem = ended.fault
    # A file that was refused, with a warning, is one that was done without.
    if not problem and ended.code == 0 and "refused" not in ended.output:
        expected = runs.undisturbed(name).contents
        problem = difference(expected, contents(folder)) or _left(folder)
        problem = problem and f"it ended well, but {problem}; {ended.output}"
    return Trial(title, runs.drop(folder, problem or runs.verdict(name, folder)))
