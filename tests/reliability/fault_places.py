"""Full disks, folders that are closed, moved or removed, tight limits, no home, clocks set back."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_children import Child, Ended, begin, call, failing, library, spawn
from fault_kinds import Trial, chosen
from fault_runs import Runs, contents, difference, runs_of, scenarios

LEARNERS = ("exact", "parts", "phase2", "rollout", "latent")
NOBODY = 65534
DAYS = 3 * 24 * 3600
KIB = 1024
LIMITS_KIB = (1, 8, 40, 100)
"""How much a run may write into one file, or on a whole disk."""


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Every case, for every kind of run."""
    runs = Runs(place)
    names = chosen(scenarios())
    for case, applies in _CASES.items():
        for name in names:
            if name in applies:
                chance = random.Random(f"{seed} {case.__name__} {name}")
                folder = runs.fresh(name)
                problem = case(runs, name, folder, chance)
                title = f"{(case.__doc__ or '').rstrip('.')}: {name}"
                yield Trial(title, runs.drop(folder, problem))


def _started(runs: Runs, name: str, folder: Path, prepare: Callable[[], object]) -> Child:
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None
    return begin(folder, *arguments, prepare=prepare)


def _refused(ended: Ended, *words: str) -> str:
    """What is wrong with how a command refused, with all of these words; empty: nothing."""
    if ended.fault or ended.code == 0:
        return ended.fault or f"it ended well: {ended.output[-500:]}"
    missing = [word for word in words if word not in ended.output]
    return f"nothing about {missing}: {ended.output[-800:]}" if missing else ""


def _small_files(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """Files that may not become large (ulimit -f)."""
    for limit in LIMITS_KIB:
        size = limit * KIB

        def prepare(size: int = size) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        ended = _started(runs, name, folder, prepare).end()
        if ended.fault:
            return f"{limit} KiB: {ended.fault}"
        if ended.code == 0:
            break
    return runs.verdict(name, folder)


def _full_disk(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """A disk that is full, and has room again."""
    disk = folder / "runs"
    disk.mkdir(exist_ok=True)
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        return ""
    for limit in LIMITS_KIB:
        # Mounted where this process and its children see it, and no other.
        mount = f"mount -t tmpfs -o size={limit}k tmpfs {disk}"
        keep = f"cp -a {disk}/. {folder}/runs-after/"
        shutil.rmtree(folder / "runs-after", ignore_errors=True)
        (folder / "runs-after").mkdir()
        script = f'{mount} && "$@"; code=$?; {keep}; exit $code'
        ended = spawn(
            folder, "run", "run.yaml", "--quiet", before=("unshare", "-m", "sh", "-c", script, "sh")
        ).end()
        if ended.fault:
            return f"{limit} KiB: {ended.fault}"
        if ended.code and not any(word in ended.output for word in ("No space", " disk")):
            return f"{limit} KiB: nothing about the disk: {ended.output[-500:]}"
    shutil.rmtree(disk)
    (folder / "runs-after").rename(disk)
    return runs.verdict(name, folder)


def _read_only(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """A folder that nobody may write to."""
    target = folder / "runs"
    target.mkdir(exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777 if path == folder else 0o555 if path.is_dir() else 0o444)

    def prepare() -> None:
        os.environ["HOME"] = str(folder)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    prepared = prepare if os.getuid() == 0 else lambda: None
    for parent in [folder, *folder.parents]:
        if not parent.stat().st_mode & 0o001 and parent.owner() == "root":
            parent.chmod(parent.stat().st_mode | 0o055)
    return _refused(_started(runs, name, folder, prepared).end(), str(folder))


def _descriptors(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """64 descriptors (ulimit -n)."""

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    ended = _started(runs, name, folder, prepare).end()
    if ended.code == 0:
        return difference(runs.undisturbed(name).contents, contents(folder))
    return ended.fault or runs.verdict(name, folder)


def _homeless(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """No HOME, or one that does not exist."""
    environment = {key: value for key, value in os.environ.items() if key != "HOME"}
    if chance.random() < 0.5:
        environment["HOME"] = "/nonexistent"
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None
    ended = spawn(folder, *arguments, environment=environment).end()
    return ended.fault or (
        f"exit code {ended.code}: {ended.output[-800:]}"
        if ended.code
        else difference(runs.undisturbed(name).contents, contents(folder))
    )


def _tiny_shared_memory(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """64 KiB of /dev/shm, for runs with workers."""
    changes = {
        "phase2": "algorithm.params.collector={name: async, params: {actors: 2}}",
        "rollout": "algorithm.params.vectorisation={backend: process, workers: 2}",
    }
    home = Path.home() / ".cache"
    place = Path("/var/tmp") / f"{runs.place.parent.name}-{name}"
    shutil.copytree(folder, place)
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    try:
        ended = spawn(
            place, "run", "run.yaml", "--quiet", changes[name],
            before=("unshare", "-m", "sh", "-c", mount, "sh"),
            environment={**os.environ, "XDG_CACHE_HOME": str(home)},
        ).end()  # fmt: skip
    finally:
        shutil.rmtree(place)
    return ended.fault or ("a signal" if ended.code < 0 else "")


def _two_at_once(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """Two of everything at once."""
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None
    both = [begin(folder, *arguments).end for _ in range(2)]
    ended = [end() for end in both]
    if fault := next((each.fault for each in ended if each.fault), ""):
        return fault
    if name in LEARNERS:  # Each has a directory of its own; an interrupted one is for one of two.
        if [each.code for each in ended] != [0, 0] or len(runs_of(folder)) != 2:
            return f"{[each.output[-500:] for each in ended]}"
        return _resumed_twice(runs, name, folder)
    if 0 not in [each.code for each in ended]:
        return f"none ended well: {ended}"
    return difference(runs.undisturbed(name).contents, contents(folder))


def _resumed_twice(runs: Runs, name: str, folder: Path) -> str:
    for run in runs_of(folder):
        shutil.rmtree(run)
    if library() is None:
        return ""
    killed = call(folder, "run", "run.yaml", "--quiet", prepare=lambda: _kill_at(folder, 12))
    assert killed.code < 0, killed.output
    arguments = runs.undisturbed(name).scenario.next(folder)
    assert arguments is not None
    both = [begin(folder, *arguments) for _ in range(2)]
    ended = [child.end() for child in both]
    if fault := next((each.fault for each in ended if each.fault), ""):
        return fault
    if sorted(each.code for each in ended) != [0, 2]:
        return f"one of two should be refused: {ended}"
    return difference(runs.undisturbed(name).contents, contents(folder))


def _kill_at(folder: Path, number: int) -> None:
    failing(folder / "runs", "rename", number, 0, for_good=False)


def _clock(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """A clock that is set back while a run goes on, and before it goes on."""
    loaded = library()
    if loaded is None:
        return ""
    when = chance.uniform(0, runs.undisturbed(name).seconds)

    def prepare() -> None:
        import threading

        timer = threading.Timer(when, loaded.faults_set_clock_back, (DAYS,))
        timer.daemon = True
        timer.start()
        if name in LEARNERS:
            failing(folder / "runs", "rename", 14, 0, for_good=False)

    ended = _started(runs, name, folder, prepare).end()
    if ended.fault:
        return ended.fault
    again = runs.undisturbed(name).scenario.next(folder)
    if again is not None and name in LEARNERS:
        ended = call(folder, *again, prepare=lambda: loaded.faults_set_clock_back(2 * DAYS))
        if ended.fault or ended.code:
            return f"exit code {ended.code}: {ended.output[-800:]}"
    for run in runs_of(folder):
        seconds = json.loads((run / "status.json").read_text())["seconds"]
        if not 0 <= seconds < 600:
            return f"{seconds} seconds"
    return difference(runs.undisturbed(name).contents, contents(folder))


def _moved(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """A run's folder that is moved away, and one that is removed, while the run goes on."""
    for how in ("moved", "removed"):
        child = _started(runs, name, folder, lambda: None)
        deadline = time.monotonic() + 60
        while not any((run / "status.json").exists() for run in runs_of(folder)):
            if child.is_over() or time.monotonic() > deadline:
                return f"did not begin: {child.end().output[-500:]}"
            time.sleep(0.001)
        time.sleep(chance.uniform(0, runs.undisturbed(name).seconds / 3))
        (run,) = runs_of(folder)
        elsewhere = folder / "elsewhere"
        run.rename(elsewhere)
        if how == "removed":
            shutil.rmtree(elsewhere)
        ended = child.end()
        if ended.code == 0:  # It was over already.
            shutil.rmtree(elsewhere, ignore_errors=True)
            continue
        if problem := _refused(ended, "moved"):
            return problem
        if left := runs_of(folder):
            return f"{left} is a ghost"
        if how == "moved":
            again = call(folder, "resume", str(elsewhere), "--quiet")
            if again.code:
                return f"cannot be gone on with: {again.output[-800:]}"
            shutil.rmtree(elsewhere)
    return ""


def _full_output(runs: Runs, name: str, folder: Path, chance: random.Random) -> str:
    """Standard output that is full (/dev/full)."""

    def prepare() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.__stdout__ = sys.stdout  # type: ignore[misc]

    arguments = runs.undisturbed(name).scenario.next(folder) or ()
    loud = [part for part in arguments if part != "--quiet"]
    ended = begin(folder, *loud, prepare=prepare).end()
    if ended.code != 3 or ended.fault:
        return ended.fault or f"exit code {ended.code}: {ended.output[-500:]}"
    return difference(runs.undisturbed(name).contents, contents(folder))


_CASES = {
    _small_files: LEARNERS,
    _full_disk: LEARNERS,
    _read_only: (*LEARNERS, "certificate"),
    _descriptors: (*LEARNERS, "certificate", "sweep"),
    _homeless: ("exact", "rollout"),
    _tiny_shared_memory: ("phase2", "rollout"),
    _two_at_once: (*LEARNERS, "certificate"),
    _clock: (*LEARNERS, "certificate", "sweep"),
    _moved: LEARNERS,
    _full_output: LEARNERS,
}
