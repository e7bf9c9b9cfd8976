"""Actors of ``phase2`` that are killed while a run trains: it goes on, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.types import Histogram
from empo_learning.loop import Loop
from empo_learning.timers import Timers
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_phase2.replay import Replay
from empo_testing.algorithm import RecordingTracker, fresh

REFERENCE = WorldModelRef.model_validate({"name": "multigrid/trivial", "params": {"max_steps": 3}})
ACTORS, ENVIRONMENTS, CAPACITY = 2, 8, 500
STEPS_PER_KILL = 60
"""Several times what it takes until there is somebody to kill, and it happens."""


def params(kills: int) -> Phase2Params:
    given: dict[str, Any] = {
        "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
        "values": {"q_r": "lookup", "v_h_e": "lookup"},
        "total_steps": STEPS_PER_KILL * kills,
        "warm_up": {"v_h_e": 20, "q_r": 20, "ramp": 20},
        "optimiser": {"lr": 1.0, "target_interval": 5, "publish_interval": 20},
        "num_envs": ENVIRONMENTS,
        "replay": {"capacity": CAPACITY, "batch_size": 4},
        "reporting": {"log_interval": 1},
    }
    return Phase2Params.model_validate(given)


class Killer(RecordingTracker):
    """Kills an actor's process now and then, each once: as it acts, or is being built."""

    def __init__(self, collector: AsyncCollector, kills: int, chance: random.Random) -> None:
        super().__init__()
        self._collector, self._kills, self._chance = collector, kills, chance
        self._ready = ACTORS
        self.hit: set[int] = set()

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        if len(self.hit) == self._kills:
            return
        alive = [pid for pid in self._collector.pids() if pid not in self.hit]
        if not alive or self._collector.counters()["actors"] < self._ready:
            time.sleep(0.2)  # The run must not be over before all were killed.
            return
        time.sleep(self._chance.uniform(0, 0.02))
        if self._chance.random() < 0.2:
            victim = self._chance.choice(alive)
            self.hit.add(victim)
            self._ready = self._chance.choice([0, ACTORS])
            os.kill(victim, signal.SIGKILL)


@dataclass
class Run:
    """A run that is over."""

    collector: AsyncCollector
    replay: Replay
    tracker: Killer
    step: int


def run(directory: Path, kills: int, seed: int) -> Run:
    """A whole run, whose actors are killed so many times."""
    setting, context = params(kills), fresh(build(REFERENCE), directory)
    problem = Problem.of(setting, context.world, REFERENCE, seed)
    collector = AsyncCollector(
        AsyncParams(actors=ACTORS, min_env_steps=100, queue_size=400, max_restarts=1000)
    )
    context.tracker = tracker = Killer(collector, kills, random.Random(seed))
    timers = Timers("cpu", enabled=False)
    values, replay = problem.quantities(), problem.replay(directory)
    try:
        collector.start(problem.factory)
        explorers = ExplorerSet(setting.exploration, problem.spec)
        learner = Learner(
            setting, values, replay, collector, explorers, timers, seed, tell=tracker.progress
        )
        Loop(learner, context, setting.reporting).run()
    finally:
        collector.stop()
    return Run(collector, replay, tracker, learner.steps)


def check_accounts(done: Run) -> None:
    """Every experience that arrived is where it should be, and no other is anywhere."""
    accounts, counters = done.collector.incarnations(), done.collector.counters()
    accepted = sum(account.experiences for account in accounts)
    delivered = sum(account.delivered for account in accounts)
    assert counters["accepted_frames"] == accepted
    assert counters["env_steps"] == ENVIRONMENTS * accepted
    assert counters["env_steps"] == ENVIRONMENTS * delivered + counters["queued_env_steps"]
    # What was delivered is in the replay, or made room for others.
    remembered = done.replay.state_dict()
    assert remembered["number"] == ENVIRONMENTS * delivered
    assert len(done.replay) == min(CAPACITY, ENVIRONMENTS * delivered)
    assert len({(a.actor, a.incarnation) for a in accounts}) == len(accounts)
    for actor in range(ACTORS):
        lives = [account.incarnation for account in accounts if account.actor == actor]
        assert sorted(lives) == list(range(len(lives)))
    assert counters["restarts"] == len(accounts) - ACTORS


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(4, 0), *(pytest.param(20, seed, marks=pytest.mark.slow) for seed in range(1, 6))],
)
def test_a_run_whose_actors_are_killed_reaches_its_last_step(
    kills: int, seed: int, tmp_path: Path
) -> None:
    done = run(tmp_path, kills, seed)
    assert done.step == STEPS_PER_KILL * kills
    assert len(done.tracker.hit) == kills
    check_accounts(done)
    assert done.collector.counters()["restarts"] >= kills - ACTORS
    assert not (tmp_path / "actors").exists()
