"""Certificates of a small run that are changed, and made to agree with themselves again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import (
    ARRAYS,
    FILE,
    FOLDER,
    FORMAT,
    VERSION,
    interval,
    manifest_digest,
    policies_digest,
    start_bounds,
)
from empo_bounds.certified_run import certify_run
from empo_bounds.effort import Effort
from empo_bounds.induction import PairBounds
from empo_bounds.recorded import VALUES, Recorded
from empo_bounds.saved_question import saved_question
from empo_bounds.second_opinion import ExpandedWorld, reference_bounds, vacuous_v_r
from empo_bounds.verification import verify_run
from empo_core.config import RunConfig
from empo_core.errors import StorageError
from empo_core.experiment import Experiment
from empo_core.protocols import Tracker
from empo_core.runs.atomic import read_json, sealed_json, write_file
from empo_worlds.arrays import load_arrays, save_arrays

WORLD = """
{name: two, horizon: 4, initial: a, states: [a, good, bad, over], terminal: [over],
 agents: [{name: ann, role: human, actions: [stay, leave]}, {name: bob, role: human, actions: [be]},
   {name: bot, role: robot, actions: [idle, push]}],
 transitions: [{state: a, actions: [leave, be, idle], to: {good: 0.5, bad: 0.5}},
   {state: a, actions: [stay, be, push], to: good},
   {state: a, actions: [leave, be, push], to: good},
   {state: a, to: a}, {state: good, to: good}, {state: bad, to: {bad: 0.9, over: 0.1}}],
 goals: {ann: [{name: any, states: [a, good, bad, over]}, {name: g, states: [good]}],
   bob: [{name: any, states: [a, good, bad, over]}, {name: b, states: [bad]}]}}
"""
THEORY = {"beta_h": 5, "gamma_h": 0.9, "gamma_r": 0.95, "zeta": 2, "eta": 1.1, "x_agg": "sum"}
PARAMS = {"theory": THEORY, "rollouts": 0, "inspector": False}


def made(folder: Path, world: str, epsilon: float, assumed: Assumptions) -> Path:
    """The directory of a run that was certified."""
    (folder / "world.yaml").write_text(world)
    config = {
        "world_model": {"name": "table", "params": {"file": str(folder / "world.yaml")}},
        "algorithm": {"name": "exact", "params": PARAMS},
        "runs": str(folder),
        "trackers": [],
    }
    directory = Experiment.start(RunConfig.model_validate(config)).directory
    certify_run(directory, assumed, Effort(epsilon), Tracker())
    verify_run(directory, Tracker())
    return directory


class Forger:
    """Changes a copy of a certificate, and makes it agree with itself again."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.run = Path(shutil.copytree(run, folder / run.name))
        self._folder = self.run / FOLDER
        arrays, _ = load_arrays(self._folder / ARRAYS)
        self.arrays = {name: array.copy() for name, array in arrays.items()}
        sealed: Any = read_json(self._folder / FILE)
        self.body: Any = sealed["body"]

    @property
    def recorded(self) -> Recorded:
        """What it says now."""
        claims, (_, question) = self.body["claims"], saved_question(self.run)
        assumed = Assumptions(claims["min_power"], claims["never_ends_early"])
        return Recorded(question, self.arrays, assumed, claims["is_timed"])

    def revalue(self) -> None:
        """Have all values follow from pairs, policies and claims, whatever sense these make."""
        recorded = self.recorded
        world = ExpandedWorld(recorded)
        found: dict[int, PairBounds] = dict(
            reference_bounds(recorded, world, lambda done, of: None)
        )
        for key in VALUES:
            name, side = key.rsplit("_", 1)
            sides = [getattr(getattr(found[time], name), side) for time in sorted(found)]
            self.arrays[key] = np.concatenate(sides)
        claims, last = self.body["claims"], self.body["rounds"][-1]
        start = start_bounds(recorded.question, found[0])
        self.body["start"] = start.model_dump(mode="json")
        self.body["vacuous_v_r"] = interval(*vacuous_v_r(recorded))
        last |= {"v_r": start.v_r, "transitions": world.num_transitions}
        last |= {"outside": world.outside(), "widest_v_e": max(start.widths)}
        last |= {"median_v_e": float(np.median(start.widths))}
        last["pairs"] = int(recorded.expanded.sum())
        claims["open_pairs"] = int((recorded.goes_on & ~recorded.expanded).sum())
        expanded = self.arrays["x_h_low"][recorded.expanded]
        claims["proved_pairs"] = int((expanded >= claims["min_power"]).all(1).sum())
        claims["nearly_proved_pairs"] = 0

    def drop_values(self) -> None:
        """Keep no bounds of single pairs, as where they are large."""
        for name in VALUES:
            del self.arrays[name]

    def seal(self) -> None:
        """Write it, with all digests."""
        save_arrays(self._folder / ARRAYS, self.arrays)
        self.body["digests"] |= {
            "arrays": manifest_digest(self._folder),
            "policies": policies_digest(self.arrays),
        }
        write_file(
            self._folder / FILE, sealed_json(self._folder / FILE, FORMAT, VERSION, self.body)
        )

    def refused(self) -> str:
        """The message with which it is refused."""
        self.seal()
        with pytest.raises(StorageError) as found:
            verify_run(self.run, Tracker())
        return str(found.value)
