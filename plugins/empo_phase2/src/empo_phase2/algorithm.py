"""The ``phase2`` algorithm: learn the values of the world of a run."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from empo_core.best_effort import best_effort
from empo_core.components import build
from empo_core.protocols import (
    Algorithm,
    CheckpointChoice,
    Collector,
    HumanPrior,
    RobotPolicy,
    RunContext,
    WorldModel,
)
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.runs.directory import RESULTS
from empo_core.threads import torch_threads
from empo_core.trees import JsonData
from empo_learning.allocator import keep_freed_memory
from empo_learning.extension import require_extension
from empo_learning.loop import Loop, saved_state
from empo_learning.lr_schedules import schedule_of
from empo_learning.saved_model import MODEL
from empo_learning.timers import Timers
from empo_phase2.compare import Comparison, solve, solver_for
from empo_phase2.doubts import doubts
from empo_phase2.estimates import LearnedReward, ValueEstimator
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.initial import load_initial
from empo_phase2.inspection import inspect
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.policyfile import LearnedPolicy, load_policy
from empo_phase2.problem import Problem
from empo_phase2.quantities import Quantities
from empo_phase2.result import Phase2Result
from empo_phase2.state_queries import StateEncoder
from empo_phase2.warmup import WarmUpSchedule
from empo_theory.inspection import Inspection, InspectionScope, warn_without_inspector
from empo_worlds.ensemble import members_of

log = logging.getLogger(__name__)

FEW_WEIGHTS = 10**7
"""Numbers of networks that are built only to see whether they can be."""


class Phase2(Algorithm):
    """Learns Q_r, V_h^e and whatever else is not in closed form, from collected experience."""

    has_intrinsic_reward = is_learner = True

    def __init__(self, params: Phase2Params) -> None:
        self._params = params

    def run(self, context: RunContext) -> Phase2Result:
        """Learn the values of ``context.world``; see ``empo_core.protocols.Algorithm``."""
        keep_freed_memory()
        with torch_threads(self._params.compute.threads):
            return self._learn(context)

    def _learn(self, context: RunContext) -> Phase2Result:
        params = self._params
        problem = Problem.of(params, context.world, context.world_model, context.seed)
        problem.warn()
        problem.require_room()
        if params.inspector:
            warn_without_inspector()
        explorers = ExplorerSet(params.exploration, problem.spec)
        timers = Timers(
            params.compute.device, enabled=params.reporting.profile_batching_interval > 0
        )
        torch.manual_seed(seed_of(stream(context.seed, Stream.WEIGHTS)))
        quantities, encoder = problem.quantities(), problem.encoder()
        load_initial(quantities.networks, params, problem.world)
        estimate = problem.estimator(quantities, encoder)
        comparison = self._comparison(context, encoder)
        collector: Collector = build(params.collector)
        try:
            collector.start(problem.factory)
            learner = Learner(
                params,
                quantities,
                problem.replay(context.directory / "replay"),
                collector,
                explorers,
                timers,
                context.seed,
                comparison=comparison,
                estimate=estimate,
                tell=context.tracker.progress,
                lr_schedule=context.lr_schedule,
            )
            loop = Loop(learner, context, params.reporting)
            loop.run()
            warnings = list(doubts(learner, comparison, problem.describe))
            for text in warnings:
                log.warning("%s", text)
            env_steps = int(collector.counters()["env_steps"])
        finally:
            with best_effort("ending the collector"):
                collector.stop()
        initial = encoder.world.initial_states()
        left = torch.full((len(initial.prob),), problem.spec.horizon or 1)
        return Phase2Result(
            params=params,
            spec=encoder.world.spec,
            played=problem.world,
            record=loop.record,
            env_steps=env_steps,
            root=estimate(initial.states, left).expected(initial.prob),
            losses=learner.losses,
            part_ms=learner.profile(),
            warnings=[*problem.warnings(), *warnings],
            weights=quantities.weights(),
            inspection=partial(self._inspect, problem, estimate, encoder, comparison),
            comparison=comparison,
            assessed=None if comparison is None else comparison.assess(estimate),
        )

    def require_evaluations(self, watcher: str) -> None:
        """Refuse a run that is not evaluated; see ``empo_core.protocols.Algorithm``."""
        self._params.reporting.require_evaluations(watcher)

    def require_extendable(self, changes: Mapping[str, tuple[JsonData, JsonData]]) -> None:
        """Refuse all but more steps and other reports; see ``empo_core.protocols.Algorithm``."""
        scheduled = self._params.scheduled
        require_extension(changes, scheduled=scheduled, fixed={"reporting.compare"})

    def restore(
        self, context: RunContext, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[RobotPolicy, HumanPrior]:
        """The robots' policy learned so far; see ``empo_core.protocols.Algorithm``."""
        problem = Problem.of(self._params, context.world, context.world_model, context.seed)
        prior = problem.factory.prior(members_of(problem.world)[0])
        file = context.directory / RESULTS / MODEL
        if checkpoint == "newest" and file.exists():
            return load_policy(file, problem.world), prior
        policy = LearnedPolicy(self._params, problem.spec, problem.encoder())
        with saved_state(context.directory, checkpoint) as state:
            policy.load(state["published"])
        return policy, prior

    def inspection(self, context: RunContext, scope: InspectionScope) -> Inspection:
        """The values learned so far; see ``empo_theory.inspection.Inspectable``.

        Where the run compared them with right ones, these are worked out again.

        Raises:
            StorageError: if the run has no checkpoint yet, or it is damaged.
            WorldError: if the state cannot be reached by that time.
        """
        problem = Problem.of(self._params, context.world, context.world_model, context.seed)
        encoder = problem.encoder()
        estimate = problem.estimator(_learned(problem, context), encoder)
        with tempfile.TemporaryDirectory() as folder:
            comparison = self._comparison(replace(context, directory=Path(folder)), encoder)
            return self._inspect(problem, estimate, encoder, comparison, scope)

    def intrinsic_reward(self, context: RunContext) -> LearnedReward:
        """U_r as it was learned last; see ``empo_core.protocols.Algorithm``."""
        problem = Problem.of(self._params, context.world, context.world_model, context.seed)
        encoder = StateEncoder(problem.world, self._params.replay.store, None)
        return LearnedReward(_learned(problem, context), encoder, self._params.compute.device)

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """Sizes and memory of a run."""
        schedule_of(self._params.optimiser)
        problem = Problem.of(self._params, world)
        spec, schedule = problem.spec, WarmUpSchedule(self._params)
        problem.warn()
        weights = problem.require_room()
        if weights <= FEW_WEIGHTS or self._params.initial is not None:
            # Whatever could not be built in a run should be found out now.
            load_initial(problem.quantities().networks, self._params, problem.world)
        ExplorerSet(self._params.exploration, spec)
        with tempfile.TemporaryDirectory() as folder:
            replay = problem.replay(Path(folder))
            first = replay.reserved_bytes()
        items, states = problem.recorded_sizes()
        full = replay.bytes_when_full(items, states)
        step = problem.step_bytes(items, 1 + states, weights)
        # This process holds the libraries and kernels that a run does.
        other = psutil.Process().memory_info().rss + step
        in_ram = [0, 0] if self._params.replay.storage == "mapped" else [first, full]
        return {
            "agents": len(spec.agents),
            "joint actions": spec.num_joint_actions,
            "goals": len(spec.goals),
            "horizon": spec.horizon,
            "training steps": self._params.total_steps,
            "bytes per state row": spec.state_words * spec.state_dtype.itemsize,
            "expectation over humans": "exact" if problem.settings.all_profiles else "sampled",
            "first steps of stages": schedule.stage_start,
            "replay at first (MiB)": round(first / 2**20, 1),
            "replay when full (MiB)": round(full / 2**20, 1),
            "training step (MiB)": round(step / 2**20, 1),
            "RAM at first (MiB)": round((other + in_ram[0]) / 2**20),
            "RAM when full (MiB)": round((other + in_ram[1]) / 2**20),
        }

    def _inspect(
        self,
        problem: Problem,
        estimate: ValueEstimator,
        encoder: StateEncoder,
        comparison: Comparison | None,
        scope: InspectionScope,
    ) -> Inspection:
        prior = problem.factory.prior(encoder.world)
        right = None if comparison is None else comparison.right
        return inspect(estimate, encoder, prior, self._params.theory, scope, right)

    def _comparison(self, context: RunContext, encoder: StateEncoder) -> Comparison | None:
        """The exact solution to compare with, if any."""
        name = self._params.reporting.compare
        if name is None:
            return None
        assert context.world is not None
        reference = solver_for(name, self._params.theory, self._params.human_prior)
        solution = solve(reference, context.world, context.directory / "solution", context.seed)
        return Comparison(solution, context.world, encoder.stored)


def _learned(problem: Problem, context: RunContext) -> Quantities:
    """All quantities according to the networks of the newest checkpoint.

    Raises:
        StorageError: if there is no checkpoint, or none that fits.
    """
    quantities = problem.quantities()
    with saved_state(context.directory, "newest") as state:
        for name, network in quantities.networks.items():
            network.load_state_dict(state["networks"][name])
    return quantities
