"""Damaged configs, worlds, and files of runs: a sentence within a second, and nothing else."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damaged_files import CANARY, damage
from fault_children import call_here, fork
from fault_kinds import Trial
from fault_runs import EXACT
from small_runs import CONFIGS

from empo_core.config.yaml import dump_yaml

HERE = Path(__file__).parent
WORLDS = HERE.parents[1] / "plugins/empo_multigrid/tests"
MOST_BYTES = 256 * 2**20
MOST_CPU_S = 1.0
MUTANTS = 100
"""Configs and worlds of a trial."""
BATCH = 20
"""Damaged files of a process."""
PICTURES = shutil.ignore_patterns("*.pdf", "*.png", "*.svg", "*.gif", "*.html", "*.txt")
ACTS = {
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect",
}  # fmt: skip
"""Python's audit events of what no file may start."""
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link", "os.truncate"}
"""Audit events of what changes paths, which are their first arguments."""


def configs(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Mutants of configs."""
    import fuzz_configs

    def tried(number: int, chunk: int) -> tuple[list[str], float]:
        _, failures, slowest = fuzz_configs.fuzz(number, chunk, place)
        return failures, slowest

    place.mkdir(parents=True, exist_ok=True)
    yield from _chunks("config", count, seed, tried)


def worlds(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Mutants of worlds of empo-multigrid, of which those that are accepted take a few steps."""
    sys.path.insert(0, str(WORLDS))
    import fuzz_worlds  # type: ignore[import-not-found]

    def tried(number: int, chunk: int) -> tuple[list[str], float]:
        tally = fuzz_worlds.fuzz(number, chunk)
        return tally.failures, tally.slowest_s

    yield from _chunks("world", count, seed, tried)


def _chunks(
    name: str, count: int, seed: int, tried: Callable[[int, int], tuple[list[str], float]]
) -> Iterator[Trial]:
    """A trial for some mutants together, and one for each that was not answered well."""
    for chunk, start in enumerate(range(0, count, MUTANTS)):
        number = min(MUTANTS, count - start)
        before = _peak()
        failures, _ = tried(number, seed * 1_000_000 + chunk)
        title = f"{name}s {start} to {start + number - 1}"
        if chunk and _peak() - before > MOST_BYTES:  # In the first, code is imported.
            failures.append(f"took {_peak() - before:,} bytes")
        yield from (Trial(title, failure[:1500]) for failure in failures)
        if number > len(failures):
            yield Trial(title, faults=number - len(failures))


def _peak() -> int:
    """Most memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True)
class Subject:
    """Files of a run, and a command that reads them.

    Attributes:
        run: The run, by its algorithm.
        files: Patterns of files, in the folder of ``run.yaml`` or, with RUN, in the run's.
        command: Of ``empo``; RUN is the run.
        is_interrupted: Whether the run has to be gone on with.
    """

    run: str
    files: tuple[str, ...]
    command: tuple[str, ...]
    is_interrupted: bool = False


TABLES = ("RUN/results/tables/*.npy", "RUN/results/tables/manifest.json", "RUN/results/*.json")
CHECKPOINT = ("RUN/checkpoints/*/*.json", "RUN/checkpoints/*/*.safetensors")
RECORDS = ("RUN/status.json", "RUN/config.yaml", "RUN/env.json", "RUN/inputs/*", "RUN/*.jsonl")
PROOF = ("RUN/certificate/certificate.json", "RUN/certificate/arrays/*")
SUBJECTS = {
    "inspector data": Subject("exact", (*TABLES, "RUN/inputs/*"), ("explain", "RUN")),
    "tables": Subject("exact", (*TABLES, "RUN/values/*/*"), ("evaluate", "RUN", "--episodes", "1")),
    "certificate": Subject("exact", PROOF, ("certify", "RUN", "--verify", "--quiet")),
    "replay": Subject("exact", ("game.json",), ("play", "RUN", "--replay", "game.json")),
    "sweep": Subject("exact", ("s.yaml",), ("sweep", "s.yaml", "--dry-run")),
    "list of runs": Subject("exact", (*RECORDS, "RUN/results/*.json"), ("runs", "runs")),
    "comparison": Subject("exact", (*RECORDS, *TABLES), ("compare", "RUN", "other")),
    **{
        f"checkpoint of {run}": Subject(run, CHECKPOINT, ("resume", "RUN", "--quiet"), True)
        for run in CONFIGS
    },
    **{
        f"status of {run}": Subject(run, RECORDS, ("resume", "RUN", "--quiet"), True)
        for run in CONFIGS
    },
    **{
        f"model of {run}": Subject(
            run, ("RUN/results/model.safetensors",), ("evaluate", "RUN", "--episodes", "1")
        )
        for run in CONFIGS
    },
}
SWEEP: dict[str, Any] = {
    "base": "run.yaml",
    "over": {"seed": "0..1", "algorithm.params.theory.zeta": [1, 2]},
    "objective": {"key": "root.V_r"},
    "workers": 1,
}


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Damaged files, as many of each kind."""
    templates = _templates(place)
    for name, subject in SUBJECTS.items():
        if not any(_paths(templates[subject.run], subject)):
            raise FileNotFoundError(f"{name}: none of {subject.files}")
        done = 0
        while done < count:
            done += yield from _batch(name, range(done, min(done + BATCH, count)), seed, templates)


def _templates(place: Path) -> dict[str, Path]:
    """A folder with a run of each algorithm, and what is made of it."""
    result = {}
    for name, config in {"exact": EXACT, **CONFIGS}.items():
        folder = place / f"made-{name}"
        folder.mkdir(parents=True)
        data = {"trackers": ["jsonl"], "seed": 1, **config}
        (folder / "run.yaml").write_text(dump_yaml(data))
        # As JSON, which is YAML as well, so that its values can be changed.
        (folder / "s.yaml").write_text(json.dumps(SWEEP, indent=1))
        call_here(folder, "run", "run.yaml", "--quiet")
        (run,) = (folder / "runs").iterdir()
        if name == "exact":
            call_here(folder, "certify", str(run), "--quiet")
            _record(folder, run)
        for older in sorted(run.glob("checkpoints/step-*"), key=_step)[:-1]:
            shutil.rmtree(older)
        result[name] = place / name
        shutil.copytree(folder, place / name, ignore=PICTURES)
        if name == "exact":  # For comparisons.
            shutil.copytree(place / name / "runs" / run.name, place / name / "other")
    return result


def _step(path: Path) -> int:
    return int(path.name.partition("-")[2])


def _record(folder: Path, run: Path) -> None:
    """A game of the run's human, who does the first action always."""
    from empo_core.runs.atomic import write_file
    from empo_inspector.game import Game
    from empo_inspector.game_record import record_of
    from empo_inspector.play_commands import _opened

    world, policies, theory = _opened(str(run))
    human = world.spec.humans[0]
    game = Game(world, policies, [human], seed=3)
    while not game.now.is_over:
        game.step({human: 0})
    write_file(folder / "game.json", record_of(game, theory).model_dump_json() + "\n")


def _paths(folder: Path, subject: Subject) -> list[Path]:
    """The files of a subject in a folder."""
    (run,) = (folder / "runs").iterdir()
    patterns = [pattern.replace("RUN", f"runs/{run.name}") for pattern in subject.files]
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def _batch(name: str, numbers: range, seed: int, templates: dict[str, Path]) -> Iterator[Trial]:  # type: ignore[misc]
    """Damage files in one process after another; returns how many were tried."""
    subject = SUBJECTS[name]
    place = templates[subject.run].parent / "tried"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    verdicts = place / "verdicts.jsonl"
    verdicts.touch()

    def command() -> None:
        sys.dont_write_bytecode = True  # What a command compiles beside its code is no finding.
        reader = Reader(subject, templates[subject.run], place / "work")
        with verdicts.open("a") as file:
            for number in numbers:
                problem = reader.verdict(random.Random(f"{seed} {name} {number}"))
                print(json.dumps(problem), file=file, flush=True)

    ended = fork(place, command).end()
    results = [json.loads(line) for line in verdicts.read_text().splitlines()]
    if len(results) < len(numbers):
        results.append(f"its process ended with {ended.code}: {ended.output[-800:]}")
    for number, problem in zip(numbers, results, strict=False):
        yield Trial(f"{name} {number}", problem)
    return len(results)


class Reader:
    """Has a command read damaged files, and judges how it answers."""

    def __init__(self, subject: Subject, template: Path, folder: Path) -> None:
        self._subject, self._template, self._folder = subject, template, folder
        self._acts: set[str] = set()
        self._is_recording = False
        sys.addaudithook(self._heard)
        code, _, output, self._usual_cpu_s, _ = self._called(None)
        # What the command does with the files as they are is nothing that files start.
        self._usual = set(self._acts)
        if code != 0:
            raise RuntimeError(f"{subject.command} ends with {code}: {output}")

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what is started, and what is written outside the folder."""
        if not self._is_recording:
            return
        if event in ACTS:
            self._acts.add(f"{event} {arguments[0]!r}")
        elif event in CHANGES or (
            event == "open"
            and isinstance(arguments[2], int)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            self._note_path(event, arguments[0])

    def _note_path(self, event: str, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            absolute = os.path.normpath(os.path.join(self._folder, os.fsdecode(path)))
            if not absolute.startswith(f"{self._folder}{os.sep}") and absolute != os.devnull:
                # Names of caches have random parts.
                self._acts.add(f"{event} in {os.path.dirname(absolute)}")

    def _called(self, rng: random.Random | None) -> tuple[int, str, str, float, int]:
        """Exit code, damage, output, CPU seconds and bytes of the command in a fresh copy."""
        from typer.testing import CliRunner

        from empo_core.cli.app import app

        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._template, self._folder)
        (run,) = (self._folder / "runs").iterdir()
        if self._subject.is_interrupted:
            status = json.loads((run / "status.json").read_text())
            (run / "status.json").write_text(json.dumps(status | {"status": "interrupted"}))
        done = "nothing"
        if rng is not None:
            done = damage(rng.choice(_paths(self._folder, self._subject)), rng)
        arguments = [part.replace("RUN", f"runs/{run.name}") for part in self._subject.command]
        os.chdir(self._folder)
        memory, started = _peak(), time.process_time()
        self._is_recording = True
        try:
            result = CliRunner().invoke(app, arguments)
        finally:
            self._is_recording = False
        seconds, output = time.process_time() - started, result.output + result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            output += "".join(traceback.format_exception(result.exception))
        return result.exit_code, done, output, seconds, _peak() - memory

    def verdict(self, rng: random.Random) -> str:
        """What was wrong with the answer to a damaged file; empty: nothing."""
        self._acts.clear()
        code, done, output, seconds, memory = self._called(rng)
        problem = ""
        if "Traceback (most recent call last)" in output:
            problem = f"a traceback: {output[-1200:]}"
        elif "This should not happen" in output or code not in (0, 2, 3):
            problem = f"exit code {code}: {output[-800:]}"
        elif code and not output.strip():
            problem = f"exit code {code} without a word"
        elif seconds > self._usual_cpu_s + MOST_CPU_S:
            problem = f"took {seconds:.2f} CPU s, and {self._usual_cpu_s:.2f} before"
        elif memory > MOST_BYTES:
            problem = f"took {memory:,} bytes"
        elif (self._folder / CANARY).exists() or Path(CANARY).exists():
            problem = "executed what is in a file"
        elif more := self._acts - self._usual:
            problem = f"did {sorted(more)}"
        return f"{done}: {problem}" if problem else ""
