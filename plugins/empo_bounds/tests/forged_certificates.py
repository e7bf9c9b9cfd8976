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
)
from empo_bounds.certified_run import certify_run
from empo_bounds.effort import Effort
from empo_bounds.plain_induction import PlainBounds, Summary, plain_bounds, vacuous_bounds
from empo_bounds.recorded import VALUES, Recorded
from empo_bounds.saved_question import saved_question
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
        return Recorded(
            question,
            self.arrays,
            claims["min_power"],
            claims["never_ends_early"],
            claims["is_timed"],
        )

    def revalue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have all values follow from pairs, policies and claims, whatever sense these make."""
        summary, found = Summary(), dict[int, list[PlainBounds]]()
        with monkeypatch.context() as patch:
            patch.setattr("empo_bounds.plain_induction._require_power", lambda *_: None)
            found = dict(plain_bounds(self.recorded, lambda done, of: None, summary))
            vacuous = vacuous_bounds(self.recorded).loss
        pairs = [pair for time in sorted(found) for pair in found[time]]
        for name in ("x_h", "lack", "loss"):
            for side, suffix in enumerate(("low", "high")):
                values = np.array([getattr(pair, name)[side] for pair in pairs])
                self.arrays[f"{name}_{suffix}"] = values
        start, claims, last = self.body["start"], self.body["claims"], self.body["rounds"][-1]
        first = found[0][0]
        start["v_r"] = interval(-first.loss[1], -first.loss[0])
        start["u_r"] = interval(-first.lack[1], -first.lack[0])
        column, widths = 0, []
        for position, human in enumerate(start["humans"]):
            human["x_h"] = interval(*first.x_h[:, position])
            for goal in human["goals"]:
                goal["v_e"] = first.v_e[:, column].tolist()
                widths.append(goal["v_e"][1] - goal["v_e"][0])
                column += 1
        self.body["vacuous_v_r"] = interval(-vacuous[1], -vacuous[0])
        last |= {"v_r": start["v_r"], "transitions": summary.transitions}
        last |= {"outside": summary.outside, "widest_v_e": max(widths)}
        last |= {"median_v_e": float(np.median(widths))}
        last["pairs"] = int(self.recorded.expanded.sum())
        claims["open_pairs"] = int((self.recorded.goes_on & ~self.recorded.expanded).sum())
        expanded = self.arrays["x_h_low"][self.recorded.expanded]
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
