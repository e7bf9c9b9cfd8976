"""A plugin with one quick algorithm, whose runs end in every way, as tests ask for."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from empo_core import Component, Config, hookimpl
from empo_core.errors import SolveError
from empo_core.protocols import Algorithm, RunContext

LEDGER = "ledger.jsonl"


class ToyParams(Config):
    """Score: minus the squared distance of x from 3, and noise by the seed."""

    x: float = 0.0
    noise: float = 0.0
    steps: int = 3
    pause_s: float = 0.0
    ends: Literal["well", "badly", "killed", "killed once", "badly once", "nan"] = "well"
    children: bool = False


def _twice(number: int) -> int:
    return 2 * number


class ToyResult:
    """The score, and how often the run was begun."""

    def __init__(self, score: float, attempts: int) -> None:
        self._summary = {"score": score, "attempts": attempts, "pid": os.getpid()}

    def summary(self) -> dict[str, float]:
        return self._summary

    def report(self) -> str:
        return "done"

    def save(self, directory: Path) -> None:
        pass


class Toy(Algorithm):
    """Counts steps, and goes on with them where it is resumed."""

    def __init__(self, params: ToyParams) -> None:
        if params.steps < 0:
            raise SolveError(f"{params.steps} steps cannot be made")
        self._params = params

    def check(self, world: object) -> Mapping[str, int]:
        return {}

    def run(self, context: RunContext) -> ToyResult:
        params, state = self._params, context.directory / "steps.json"
        progress = json.loads(state.read_text()) if state.exists() else {"step": 0, "attempts": 0}
        progress["attempts"] += 1
        self._end(progress["attempts"], state, progress)
        if params.children:
            from empo_executors.worker_pool import WorkerPool

            with WorkerPool(_twice, 1) as pool:
                assert list(pool.map([1, 2])) == [2, 4]
        noise = params.noise * float(np.random.default_rng(context.seed).normal())
        while progress["step"] < params.steps:
            time.sleep(params.pause_s)
            progress["step"] += 1
            share = progress["step"] / params.steps
            context.tracker.log(progress["step"], {"toy/score": share * -((params.x - 3) ** 2)})
            self._keep(state, progress)
        with (context.directory.parent / LEDGER).open("a") as ledger:
            ledger.write(json.dumps(context.directory.name) + "\n")
        score = -((params.x - 3) ** 2) + noise
        return ToyResult(float("nan") if params.ends == "nan" else score, progress["attempts"])

    def _end(self, attempts: int, state: Path, progress: dict[str, int]) -> None:
        """End before the first step, where that is asked for."""
        ends, once = self._params.ends.removesuffix(" once"), self._params.ends.endswith(" once")
        if ends in ("well", "nan") or (once and attempts > 1):
            return
        self._keep(state, progress)
        if ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise SolveError("the toy fell over\nand broke")

    def _keep(self, state: Path, progress: dict[str, int]) -> None:
        new = state.with_suffix(".new")
        new.write_text(json.dumps(progress))
        new.replace(state)


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the toy."""
    yield Component(
        kind="algorithm", name="toy", params=ToyParams, target="empo_toy_plugin:Toy", api=1
    )
