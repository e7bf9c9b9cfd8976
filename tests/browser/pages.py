"""Solved worlds with their pages, and pages that are open in a browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_inspector.page import write_page
from empo_theory.inspection import Inspection, InspectionScope


@dataclass
class Opened:
    """A page in a browser: what it said, and what it asked for.

    Attributes:
        tab: Playwright's page.
        said: Messages on the console and errors.
        requests: Addresses that were requested.
    """

    tab: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str, argument: object = None) -> Any:
        """The value of a function in JavaScript, as JSON data."""
        return self.tab.evaluate(script, argument)

    def show(self, **selection: object) -> None:
        """Choose a view, a state or an action, and wait for everything that is worked out."""
        self.ask("changes => inspector.select(changes)", selection)
        self.tab.wait_for_selector("#panel [data-busy]", state="detached")


Open = Callable[..., Opened]


@dataclass(frozen=True)
class Solved:
    """A solved world, its inspection and its page."""

    result: ExactResult
    inspection: Inspection
    file: Path

    def places(self, number: int, seed: int = 0) -> list[tuple[int, int]]:
        """Random positions of states, with times, at which an episode goes on [number]."""
        kept, spec = self.inspection, self.result.spec
        goes_on = np.diff(kept.offsets[:: spec.num_joint_actions]) > 0
        times, states = np.nonzero(~np.isnan(kept.v_r) & goes_on)
        chosen = np.random.default_rng(seed).integers(len(times), size=number)
        return [(int(states[i]), int(times[i]) + kept.first_time) for i in chosen]


@dataclass(frozen=True)
class Learned:
    """A learned run: its inspection and its page."""

    inspection: Inspection
    file: Path


def solved_page(world: WorldModel, params: ExactParams, directory: Path, **options: Any) -> Solved:
    """Solve a world and write its page."""
    result = solve(world, params)
    asked = InspectionScope(**options)
    inspection = inspect(result, params.theory, asked)
    file = directory / "inspector.html"
    write_page(inspection, world, directory, file, asked)
    return Solved(result, inspection, file)


def world_of(name: str, **params: Any) -> WorldModel:
    """A world of an installed component."""
    built: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return built


ENDS_BY_ITSELF = """\
{name: stairs, initial: low, states: [low, middle, high, left, right], terminal: [left, right],
 agents: [{name: ann, role: human, actions: [stay, climb]},
   {name: bot, role: robot, actions: [wait, help, harm]}],
 transitions: [
   {state: low, actions: [stay, "*"], to: middle},
   {state: low, actions: [climb, wait], to: {middle: 1/3, high: 2/3}},
   {state: low, actions: [climb, help], to: high},
   {state: low, actions: [climb, harm], to: {middle: 9/10, left: 1/10}},
   {state: middle, actions: [stay, "*"], to: {left: 1/2, right: 1/2}},
   {state: middle, actions: [climb, "*"], to: {high: 3/4, left: 1/4}},
   {state: high, actions: ["*", harm], to: left},
   {state: high, actions: [stay, "*"], to: {left: 1/4, right: 3/4}},
   {state: high, actions: [climb, "*"], to: right}],
 goals: {ann: [{name: up, states: high, weight: 0.7}, 
   {name: any, states: [left, right], weight: 2}]}}
"""
