"""Small runs of every kind, what they left, and whether two of them are equal."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_children import Ended, call, call_here
from small_runs import CONFIGS

from empo_core.config.yaml import dump_yaml
from empo_learning.checkpoint import Checkpoints

WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 6}}
COMPUTE: dict[str, Any] = {"workers": 1}
EXACT: dict[str, Any] = {
    "world_model": WORLD,
    "algorithm": {"name": "exact", "params": {"keep": "disk", "rollouts": 2, "compute": COMPUTE}},
}
PARTS: dict[str, Any] = {
    "world_model": WORLD,
    "algorithm": {
        "name": "exact",
        "params": {
            "keep": "disk",
            "rollouts": 2,
            "compute": {**COMPUTE, "graph": "spill", "parts": 2, "checkpoint_s": 0},
        },
    },
}
SWEEP: dict[str, Any] = {
    "base": "run.yaml",
    "over": {"seed": "0..2"},
    "objective": {"key": "root.V_r"},
    "workers": 1,
}
VOLATILE = {
    "seconds", "pid", "peak_memory_bytes", "run_dir", "started", "updated", "attempts", "created",
    "host", "steps_per_second", "sha256", "warnings",
}  # fmt: skip
"""Keys of how a run went: times, place, process, warnings, and seals of files that have these."""


@dataclass(frozen=True)
class Scenario:
    """A run, or what is done with one, that can be broken off and gone on with.

    Attributes:
        name: Of the scenario.
        config: Of the run.
        command: What is called; None: ``empo run``, and then ``empo resume``.
        files: Files besides, by name.
        is_prepared: Whether the command works on a run that is complete.
    """

    name: str
    config: dict[str, Any]
    command: tuple[str, ...] | None = None
    files: dict[str, Any] = field(default_factory=dict)
    is_prepared: bool = False

    def prepare(self, folder: Path, template: Path | None) -> None:
        """Write the inputs; where the command works on a run, copy one."""
        folder.mkdir(parents=True)
        config = {"trackers": ["jsonl"], "seed": 1, **self.config}
        for name, data in {"run.yaml": config, **self.files}.items():
            (folder / name).write_text(dump_yaml(data))
        if self.is_prepared and template is not None:
            shutil.copytree(template / "runs", folder / "runs")

    def next(self, folder: Path) -> tuple[str, ...] | None:
        """The command that goes on with what is there; None: all is done."""
        if self.command is not None:
            runs = sorted(map(str, folder.glob("runs/*")))
            return tuple(runs[-1] if part == "RUN" else part for part in self.command)
        for run in runs_of(folder):
            if (run / "config.yaml").exists():
                status = run / "status.json"
                is_done = status.exists() and json.loads(status.read_text())["status"] == "finished"
                return None if is_done else ("resume", str(run), "--quiet")
        return ("run", "run.yaml", "--quiet")

    def finish(self, folder: Path) -> Ended | None:
        """Go on to the end; the command that failed, or None."""
        for _ in range(3):
            if (arguments := self.next(folder)) is None:
                return None
            # Trials that failed are only run again where somebody asks for it.
            ended = call(folder, *arguments, *(["--retry-failed"] if self.name == "sweep" else []))
            if ended.code:
                return ended
            if self.command is not None:
                return None
        return ended


def runs_of(folder: Path) -> list[Path]:
    """Run directories, the newest first."""
    return sorted(folder.glob("runs/*"), key=lambda path: (len(path.name), path.name), reverse=True)


def scenarios() -> dict[str, Scenario]:
    """All that can be broken off."""
    result = [
        Scenario("exact", EXACT),
        Scenario("parts", PARTS),
        *(Scenario(name, config) for name, config in CONFIGS.items()),
        Scenario("certificate", EXACT, ("certify", "RUN", "--quiet"), is_prepared=True),
        Scenario("sweep", EXACT, ("sweep", "s.yaml", "--quiet"), {"s.yaml": SWEEP}),
    ]
    return {scenario.name: scenario for scenario in result}


def contents(folder: Path) -> dict[str, Any]:
    """What a scenario has left that must not depend on how often it was broken off."""
    result: dict[str, Any] = {}
    for run in [
        *(run for run in runs_of(folder) if is_whole(run)),
        *folder.glob("sweeps/*/trial*"),
    ]:
        name = run.name if "trial" in run.name else "run"
        if name in result:
            continue
        result |= {f"{name}/{key}": value for key, value in contents_of_run(run).items()}
        result[name] = True
    return result


PARTS_FOLDER = "values/parts/"
"""Files of a solve in parts that only going on with it would need."""


def is_whole(run: Path) -> bool:
    """True if a run directory has a config and a status, so that a run can go on there."""
    return (run / "config.yaml").exists() and (run / "status.json").exists()


def contents_of_run(run: Path) -> dict[str, Any]:
    """What a run has left, without times and places."""
    result: dict[str, Any] = {"status": json.loads((run / "status.json").read_text())["status"]}
    metrics = run / "metrics.jsonl"
    if metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        result["metrics"] = [_plain(line) for line in lines]
    for path in files_of(run, ("results", "values", "certificate")):
        name = str(path.relative_to(run))
        if name.startswith(PARTS_FOLDER):  # Removed at the end, unless the disk refuses that.
            continue
        if path.suffix == ".json":
            result[name] = _plain(json.loads(path.read_text().replace(str(run.parent), "PLACE")))
        elif path.suffix in (".npy", ".safetensors"):
            result[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix not in (".png", ".pdf", ".svg"):  # Pictures may fail, with a warning.
            result[name] = "there"
    checkpoints = Checkpoints(run / "checkpoints")
    for step in checkpoints.steps()[-1:]:
        folder = run / f"checkpoints/step-{step}"
        data = (folder / "tensors.safetensors").read_bytes()
        result[f"checkpoint {step}/tensors.safetensors"] = hashlib.sha256(data).hexdigest()
        state = json.loads((folder / "state.json").read_text())
        # Lines that the disk refused when it was written are in metrics.jsonl meanwhile.
        state["tracker"] = {
            key: rest
            for key, part in state["tracker"].items()
            if (rest := {name: value for name, value in part.items() if name != "refused"})
        }
        result[f"checkpoint {step}/state.json"] = state
    return result


def files_of(run: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Files in some folders of a run."""
    for name in folders:
        yield from (path for path in sorted((run / name).rglob("*")) if path.is_file())


def _plain(value: Any) -> Any:
    """Data without what may differ: times, processes, places."""
    if isinstance(value, dict):
        return {
            key: _plain(part)
            for key, part in value.items()
            if not (key in VOLATILE or key.startswith("time/") or key.endswith("seconds"))
        }
    return [_plain(part) for part in value] if isinstance(value, list) else value


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """The first difference between what two runs have left; empty: none."""
    for key in sorted(expected.keys() | actual.keys()):
        if key not in actual:
            return f"{key} is missing"
        if key not in expected:
            return f"{key} is left over"
        if expected[key] != actual[key]:
            return f"{key} differs: {_short(expected[key], actual[key])}"
    return ""


def _short(expected: Any, actual: Any) -> str:
    """Where two values differ first."""
    if isinstance(expected, list) and isinstance(actual, list):
        for number, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if one != other:
                return f"at {number}: {_short(one, other)}"
        return f"{len(expected)} items, {len(actual)} items"
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected:
            if expected[key] != actual.get(key):
                return f"{key}: {_short(expected[key], actual.get(key))}"
    return f"{expected!r:.300} != {actual!r:.300}"


@dataclass
class Undisturbed:
    """A scenario that was not disturbed.

    Attributes:
        contents: What it left.
        seconds: How long its command ran.
        cpu_s: Its processor time.
        folder: Where it is.
    """

    scenario: Scenario
    folder: Path
    contents: dict[str, Any]
    seconds: float
    cpu_s: float


class Runs:
    """Undisturbed runs of scenarios, made when they are asked for, in a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._undisturbed: dict[str, Undisturbed] = {}
        self._number = 0

    def undisturbed(self, name: str) -> Undisturbed:
        """A scenario that was not disturbed, with all kernels compiled."""
        if name not in self._undisturbed:
            scenario = scenarios()[name]
            template = self.undisturbed("exact").folder if scenario.is_prepared else None
            for attempt in range(2):  # The first compiles kernels.
                folder = self.place / f"undisturbed-{name}-{attempt}"
                scenario.prepare(folder, template)
                arguments = scenario.next(folder)
                assert arguments is not None
                if attempt == 0:
                    call_here(folder, *arguments)
                    continue
                ended = call(folder, *arguments)
                assert ended.code == 0, ended.output
            self._undisturbed[name] = Undisturbed(
                scenario, folder, contents(folder), ended.seconds, ended.cpu_s
            )
            other = contents(self.place / f"undisturbed-{name}-0")
            assert not (fault := difference(self._undisturbed[name].contents, other)), fault
        return self._undisturbed[name]

    def fresh(self, name: str) -> Path:
        """A folder with the inputs of a scenario."""
        undisturbed = self.undisturbed(name)
        self._number += 1
        folder = self.place / f"{name}-{self._number}"
        template = self._undisturbed["exact"].folder if undisturbed.scenario.is_prepared else None
        undisturbed.scenario.prepare(folder, template)
        return folder

    def verdict(self, name: str, folder: Path) -> str:
        """Go on to the end, and compare; empty: equal to the undisturbed run."""
        undisturbed = self.undisturbed(name)
        failed = undisturbed.scenario.finish(folder)
        if failed is not None:
            return f"cannot be gone on with: {failed.fault or failed.output[-600:]}"
        try:
            return difference(undisturbed.contents, contents(folder))
        except (OSError, ValueError) as error:
            return f"a file is damaged: {error}"

    def drop(self, folder: Path, problem: str) -> str:
        """Remove the folder of a trial that held; the problem, with the folder where it did not."""
        if not problem:
            shutil.rmtree(folder, ignore_errors=True)
            return ""
        return f"{folder}: {problem}"
