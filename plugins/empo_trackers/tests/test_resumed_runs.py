"""A run that is stopped and resumed leaves the records of one that never was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from empo_core import Component, Config
from empo_core.config import installed
from empo_core.config.files import load_config
from empo_core.experiment import Experiment, RunInterrupted, run
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import Algorithm, RunContext, Tracker
from empo_core.tracker_group import TrackerGroup
from empo_learning.checkpoint import Checkpoints
from empo_learning.randomness import capture, restore

STEPS, EVERY = 30, 7


class DrawParams(Config):
    """Parameters of a run: the steps at which it is interrupted."""

    stops: list[int] = []  # noqa: RUF012


class Drawn:
    """The numbers that were drawn."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers

    def summary(self) -> dict[str, Any]:
        return {"numbers": self.numbers}

    def report(self) -> str:
        return ""

    def save(self, directory: Path) -> None:
        """Nothing more."""


class Draw(Algorithm):
    """Draws a number a step, with a checkpoint now and then, and dies without one."""

    def __init__(self, params: DrawParams) -> None:
        self.stops = list(params.stops)

    def run(self, context: RunContext) -> Drawn:
        checkpoints = Checkpoints(context.directory / "checkpoints")
        marks = context.directory / "stops"
        stop = int(marks.read_text()) if marks.exists() else 0
        step, numbers = 0, []
        if context.resume:
            if checkpoint := checkpoints.newest():
                step, state = checkpoint
                numbers = state["numbers"]
                restore(state["randomness"])
            context.tracker.truncate(step)
        while step < STEPS:
            if self.stops[stop : stop + 1] == [step]:
                marks.write_text(str(stop + 1))
                raise KeyboardInterrupt
            step += 1
            numbers.append(float(torch.rand(())))
            context.tracker.log(step, {"drawn": numbers[-1]})
            if step % EVERY == 0:
                checkpoints.save(step, {"numbers": numbers, "randomness": capture()})
        return Drawn(numbers)

    def check(self, world: object) -> Mapping[str, Any]:
        return {}


@pytest.fixture
def registry() -> Registry:
    component = Component(
        kind="algorithm", name="draw", params=DrawParams, target=f"{__name__}:Draw", api=1
    )
    provider = Provider("draws", "1", "draws")
    return Registry([*installed().offers, Offer(provider, component)], [provider])


def records(tmp_path: Path, registry: Registry, stops: list[int]) -> tuple[Any, Any, Any]:
    """Result, lines and events of a run that is stopped there."""
    path = tmp_path / f"{len(stops)}.yaml"
    path.write_text(
        f"algorithm: {{name: draw, params: {{stops: {stops}}}}}\n"
        f"trackers: [jsonl, tensorboard, progress]\nseed: 3\nruns: runs{len(stops)}\n"
    )
    config = load_config(path, registry=registry)
    result = None
    try:
        result = run(config, registry=registry)
    except RunInterrupted as stopped:
        directory = stopped.directory
        while result is None:
            try:
                result = Experiment.resume(directory, registry=registry).result
            except RunInterrupted:
                continue
    (directory,) = config.runs.iterdir()
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    drawn = [(event.step, event.value) for event in events.Scalars("drawn")]
    return result.summary(), [(line["step"], line["drawn"]) for line in lines], drawn


@pytest.mark.parametrize("stops", [[3], [7], [20], [3, 12, 29]])
def test_lines_and_curves_have_each_step_once(
    tmp_path: Path, registry: Registry, stops: list[int]
) -> None:
    whole = records(tmp_path, registry, [])
    assert [step for step, _ in whole[1]] == list(range(1, STEPS + 1))
    assert records(tmp_path, registry, stops) == whole


class Deaf(Tracker):
    """A tracker that keeps no records."""


class Listening(Deaf):
    """A tracker that can."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def truncate(self, step: int) -> None:
        self.heard.append(step)


def test_only_those_that_keep_records_are_told_once_they_have_started(tmp_path: Path) -> None:
    listening = Listening()
    trackers = TrackerGroup([Deaf(), listening])
    trackers.truncate(1)
    trackers.start(tmp_path, {})
    trackers.truncate(2)
    assert listening.heard == [2]
