"""Runs that benchmarks keep: finished ones are read, interrupted ones go on."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_core.runs.atomic import write_file
from empo_core.saved_run import open_run

POLICY = "results/model.safetensors"


def digest(data: object) -> str:
    """A short name of settings."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """A short name of what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def run_file(folder: Path, config: dict[str, Any]) -> tuple[Path, float, int]:
    """The policy file of a run, its processor seconds and steps; finishes the run if need be."""
    folder = folder.with_name(f"{folder.name}_{digest(config)[:8]}")
    cpu, begin = folder / "cpu_seconds.json", time.process_time()
    if not cpu.is_file():
        begun = sorted(path.parent for path in folder.glob("*/config.yaml"))
        if not any((path / POLICY).is_file() for path in begun):
            if begun:
                Experiment.resume(begun[-1])
            else:
                Experiment.start(RunConfig.model_validate({**config, "runs": str(folder)}))
        write_file(cpu, json.dumps(time.process_time() - begin) + "\n")
    (file,) = folder.glob(f"*/{POLICY}")
    summary = open_run(file.parents[1]).summary
    return file, json.loads(cpu.read_text()), int(str(summary.get("env_steps", summary["steps"])))
