"""The ``phase2`` algorithm: learn the values of the world of a run."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from empo_core.best_effort import best_effort
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError
from empo_core.protocols import (
    Aggregator,
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
from empo_core.types import WorldSpec
from empo_learning.allocator import keep_freed_memory
from empo_learning.compute import require_device
from empo_learning.loop import Loop, saved_state
from empo_learning.room import num_parameters, require_room_for_networks
from empo_learning.saved_model import MODEL
from empo_learning.timers import Timers
from empo_phase2.actor import ActorSettings, Phase2ActorFactory
from empo_phase2.behaviour import build_networks
from empo_phase2.compare import Comparison, solve, solver_for
from empo_phase2.doubts import doubts
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.goal_index import GoalIndex, goal_index_of
from empo_phase2.inspection import inspect
from empo_phase2.joint_actions import JointActionOrder
from empo_phase2.learner import Learner
from empo_phase2.params import QUANTITIES, Phase2Params
from empo_phase2.policyfile import LearnedPolicy, load_policy
from empo_phase2.quantities import Quantities
from empo_phase2.ram import step_bytes
from empo_phase2.replay import Replay, ReplayShape
from empo_phase2.result import Phase2Result
from empo_phase2.reward import LearnedReward
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec
from empo_phase2.successors import SuccessorQuery
from empo_phase2.values import ValueEstimator
from empo_phase2.warmup import WarmUpSchedule
from empo_phase2.world_checks import check_reach, check_world, warning
from empo_theory.inspection import Inspection, InspectionScope, warn_without_inspector
from empo_worlds.contract import require_one_start
from empo_worlds.ensemble import members_of
from empo_worlds.queries import is_terminal

log = logging.getLogger(__name__)

FEW_WEIGHTS = 10**7
"""Numbers of networks that are built only to see whether they can be."""
WALKS, WALK_STEPS = 16, 16
"""Random walks that show how much of a world is recorded, and their steps."""


@dataclass(frozen=True)
class Problem:
    """The problem of a run.

    Attributes:
        params: Everything about it.
        factory: Builds its actors.
        world: What they play: the run's world, or an ensemble.
        spec: What the learner's rows look like.
        slots: The goals.
        settings: How actors play.
    """

    params: Phase2Params
    factory: Phase2ActorFactory
    world: WorldModel
    spec: WorldSpec
    slots: GoalIndex
    settings: ActorSettings

    @classmethod
    def of(
        cls,
        params: Phase2Params,
        world: WorldModel | None,
        reference: WorldModelRef | None = None,
        seed: int = 0,
    ) -> Problem:
        """The problem of learning in a world.

        Other processes build the world from ``reference``, or are sent it where that is None.

        Raises:
            ConfigError: if there is no world, or it and the params do not fit together.
            SolveError: if there is nothing to learn in it.
        """
        if world is None:
            raise ConfigError(
                "algorithm 'phase2' needs a world: add 'world_model' to the config, e.g. "
                "'world_model: multigrid/trivial' (see: empo worlds)"
            )
        check_world(world.spec)
        if params.reporting.compare is not None:
            require_one_start(world, "algorithm.params.reporting.compare")
        main_world = reference if reference is not None else _SingleWorld(world)
        factory = Phase2ActorFactory(
            worlds=(main_world, *params.ensemble.worlds), params=params, seed=seed
        )
        played = factory.world() if params.ensemble.worlds else world
        settings = ActorSettings.of(params, played, seed)
        _refuse_misfits(params, played.spec, settings)
        return cls(
            params,
            factory,
            played,
            learner_spec(played, params.replay.store),
            goal_index_of(played),
            settings,
        )

    def replay(self, directory: Path | None = None) -> Replay:
        """An empty replay of the right shape; one that is mapped has its file in a directory."""
        spec, replay_params = self.spec, self.params.replay
        full = self.settings.all_profiles
        shape = ReplayShape(
            words=spec.state_words,
            dtype=spec.state_dtype,
            slots=len(self.slots),
            robot_actions=spec.num_robot_actions,
            human_slots=len(self.slots) if full else 0,
            human_actions=max(spec.num_actions[human] for human in spec.humans) if full else 0,
            humans=len(spec.humans),
            profiles=spec.num_human_actions if full else 1,
            behaviour_actions=0 if self.settings.model_based else spec.num_robot_actions,
        )
        return Replay(
            replay_params.capacity,
            shape,
            storage=replay_params.storage,
            directory=directory,
            device=self.params.compute.device,
        )

    def recorded_sizes(self) -> tuple[float, float]:
        """Successors and distinct states per transition, of ``WALKS`` short random walks.

        Longer ones come back to states more often, so that memory is rather less.
        """
        world, settings = self.world, self.settings
        if not settings.model_based:  # Only that of the action that was taken.
            return 1.0, 1.0
        query = SuccessorQuery(
            world,
            JointActionOrder(world.spec),
            all_profiles=settings.all_profiles,
            model_based=settings.model_based,
        )
        generator = torch.Generator().manual_seed(0)
        starts = world.initial_states().states
        start = starts[torch.arange(WALKS) % len(starts)]
        rows, human, visited = (
            start,
            torch.zeros(WALKS, len(world.spec.humans), dtype=torch.long),
            [],
        )
        for _ in range(WALK_STEPS):
            successors = query.to_record(rows, human)
            visited.append(successors.states)
            count = successors.offsets.diff().view(WALKS, -1).sum(1)
            drawn = (torch.rand(WALKS, generator=generator) * count).long()
            rows = successors.states[
                (drawn + count.cumsum(0) - count).clamp(max=len(successors.states) - 1)
            ]
            rows = torch.where(is_terminal(world, rows)[:, None], start, rows)
        all_states, num_steps = torch.cat(visited), WALKS * WALK_STEPS
        return len(all_states) / num_steps, len(torch.unique(all_states, dim=0)) / num_steps

    def warn(self) -> None:
        """Warn about settings that are likely to learn badly."""
        full = WarmUpSchedule(self.params).stage_start["full"]
        if self.params.total_steps <= full:
            log.warning(
                "training ends at step %d, before the last stage begins (%d): beta_r does not "
                "reach its full value; see warm_up",
                self.params.total_steps,
                full,
            )
        for member in members_of(self.world):
            check_reach(member, self.params.theory)
        for message in self.warnings():
            log.warning("%s", message)

    def warnings(self) -> list[str]:
        """Warnings of terminal states that robots are drawn to."""
        texts = (warning(member, self.params.theory) for member in members_of(self.world))
        return [text for text in texts if text]

    def describe(self, row: Tensor) -> str:
        """A state for people, as the learner stores it."""
        if self.params.replay.store == "rows":
            return self.world.describe(row)
        return f"compact row {row.tolist()}"

    def require_room(self) -> int:
        """How many numbers all networks learn.

        Raises:
            ConfigError: if the networks cannot fit into RAM, or the human prior cannot.
        """
        self.factory.prior(self.world)  # Which sees whether it can.
        total, values = 0, self.params.values
        for quantity in QUANTITIES:
            reference = getattr(values, quantity)
            if reference is None:
                continue
            numbers = num_parameters(lambda: [build(reference, self.spec, quantity)])  # noqa: B023
            key = f"algorithm.params.values.{quantity}.params"
            require_room_for_networks(key, reference.params, numbers)
            total += int(numbers)
        return total

    def values(self) -> Quantities:
        """All quantities according to networks that have learned nothing yet."""
        networks = build_networks(self.params.values, self.spec)
        for network in networks.values():
            network.to(self.params.compute.device)
        aggregate: Aggregator = build(self.params.aggregator)
        return Quantities(networks, self.spec, self.slots, self.params.theory, aggregate)

    def encoder(self) -> StateEncoder:
        """Sees states as the learner does, and ahead where Q_r is not learned."""
        prior = self.factory.prior(self.world) if self.params.values.q_r is None else None
        return StateEncoder(self.world, self.params.replay.store, prior)

    def estimator(self, values: Quantities, encoder: StateEncoder) -> ValueEstimator:
        """Value estimates of the run's world by networks that may go on learning."""
        return ValueEstimator(values, encoder, self.params.compute.device)


class Phase2(Algorithm):
    """Learns Q_r, V_h^e and whatever else is not in closed form, from collected experience."""

    has_intrinsic_reward = True

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
        values, encoder = problem.values(), problem.encoder()
        estimate = problem.estimator(values, encoder)
        comparison = self._comparison(context, encoder)
        collector: Collector = build(params.collector)
        try:
            collector.start(problem.factory)
            learner = Learner(
                params,
                values,
                problem.replay(context.directory / "replay"),
                collector,
                explorers,
                timers,
                context.seed,
                comparison=comparison,
                estimate=estimate,
                tell=context.tracker.progress,
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
            weights=values.published(),
            inspection=partial(self._inspect, problem, estimate, encoder, comparison),
            comparison=comparison,
            assessed=None if comparison is None else comparison.assess(estimate),
        )

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
        problem = Problem.of(self._params, world)
        spec, schedule = problem.spec, WarmUpSchedule(self._params)
        problem.warn()
        weights = problem.require_room()
        if weights <= FEW_WEIGHTS:
            # Whatever could not be built in a run should be found out now.
            problem.values()
        ExplorerSet(self._params.exploration, spec)
        with tempfile.TemporaryDirectory() as folder:
            replay = problem.replay(Path(folder))
            first = replay.reserved_bytes()
        items, states = problem.recorded_sizes()
        full = replay.bytes_when_full(items, states)
        step = step_bytes(
            spec,
            len(problem.slots),
            batch=self._params.replay.batch_size,
            items=items,
            states=1 + states,
            weights=weights,
        )
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
    values = problem.values()
    with saved_state(context.directory, "newest") as state:
        for name, network in values.networks.items():
            network.load_state_dict(state["networks"][name])
    return values


@dataclass(frozen=True)
class _SingleWorld:
    """A world that is there already; other processes get a copy of it."""

    world: WorldModel

    def __call__(self) -> WorldModel:
        return self.world


def _refuse_misfits(params: Phase2Params, spec: WorldSpec, settings: ActorSettings) -> None:
    """Refuse what would fail or mean nothing later.

    Raises:
        ConfigError: if params and world do not fit together.
    """
    if params.values.q_r is None and not settings.all_profiles:
        raise ConfigError(
            "algorithm.params.values.q_r: null looks ahead over all joint actions, but "
            f"{spec.name!r} has {spec.num_joint_actions:,} of them and targets.max_pairs is "
            f"{params.targets.max_pairs:,} (or targets.model_based is false); raise max_pairs or "
            "choose a value network for q_r"
        )
    require_device(params.compute.device)
