"""The ``rollout`` algorithm: act in many environments, learn from it, and again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from empo_core.best_effort import best_effort
from empo_core.components import build
from empo_core.protocols import (
    Algorithm,
    CheckpointChoice,
    HumanPrior,
    PolicyLoss,
    RobotPolicy,
    RunContext,
    WorldModel,
)
from empo_core.protocols.environments import EnvSpec, VectorEnv
from empo_core.random_streams import Stream, seed_globals, seed_of, stream
from empo_core.runs.directory import RESULTS
from empo_core.threads import torch_threads
from empo_core.trees import JsonData
from empo_environments.normalisation import Normaliser
from empo_learning.allocator import keep_freed_memory
from empo_learning.compute import require_device
from empo_learning.distributed import Group, join
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.evaluation.player import PolicyPlayer
from empo_learning.extension import require_extension
from empo_learning.loop import Loop, saved_state
from empo_learning.lr_schedules import schedule_of
from empo_learning.result import EvaluationRow
from empo_learning.room import num_parameters, require_room, require_room_for_networks
from empo_learning.saved_model import MODEL
from empo_learning.timers import Timers
from empo_rollout.collector import RolloutCollector, build_collector, build_normaliser
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.initial import begin_with, initial_policy, load_initial
from empo_rollout.learner import RolloutLearner
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan, usable_processors
from empo_rollout.player import player_of
from empo_rollout.policy import (
    Networks,
    ObservationNormalisation,
    blank_policy,
    build_policy,
    require_forward,
)
from empo_rollout.policyfile import load_policy
from empo_rollout.ppo import Updater, require_learnable
from empo_rollout.remote_collector import RemoteCollector
from empo_rollout.result import RolloutResult
from empo_rollout.run_warnings import warnings_before
from empo_rollout.segment_worker import Share, part_of
from empo_rollout.world_policies import LearnedRobots, UniformHumans
from empo_world_environments.params import PowerReward, WorldParams
from empo_world_environments.reward import warnings_of
from empo_worlds.terminal_states import attraction, first_terminal

log = logging.getLogger(__name__)

STEP_BYTES = 16
"""Bytes of a step of a rollout beside its observation, at least: action, reward, value, chance."""

SOURCE = "reward"
"""Folder of a run for what the source of a reward leaves behind."""


class RolloutAlgorithm(Algorithm):
    """Collects rollouts from vectorised environments and improves a policy with them."""

    takes_environment = is_learner = True

    def __init__(self, params: RolloutParams) -> None:
        self._params = params

    def run(self, context: RunContext) -> RolloutResult:
        """Learn to act; see ``empo_core.protocols.Algorithm``."""
        keep_freed_memory()
        require_device(self._params.compute.device)
        environments = self._environments(context)
        plan = environments.plan()
        _require_room(self._params, plan, environments.spec)
        require_forward(self._params.policy, environments.spec)
        warnings = list(warnings_before(self._params, plan, environments.spec))
        _tell(plan, warnings)
        # Workers need processors too, and small networks gain nothing by more.
        left = max(1, usable_processors() - plan.workers)
        with (
            torch_threads(self._params.compute.threads or left),
            join(self._params.compute.device, self._params.compute.rank_timeout_s) as group,
        ):
            # Environments may draw from these while they are made, and in every step.
            seed_globals(stream(context.seed, Stream.GLOBALS, group.rank))
            if self._params.collection is not None:
                return self._learn(context, environments, plan, None, group)
            environments.rank = group.rank
            vector = environments.training(plan)
            try:
                return self._learn(context, environments, plan, vector, group)
            finally:
                with best_effort("closing the environments"):
                    vector.close()

    def _learn(
        self,
        context: RunContext,
        environments: EnvironmentFactory,
        plan: VecPlan,
        vector: VectorEnv | None,
        group: Group,
    ) -> RolloutResult:
        params = self._params
        env_spec = vector.spec if vector else replace(environments.spec, num_envs=plan.envs)
        device = group.device(params.compute.device)
        seed = context.seed
        weights = torch.Generator().manual_seed(seed_of(stream(seed, Stream.WEIGHTS)))
        policy = build_policy(params.policy, env_spec, generator=weights, device=device)
        initial = None if params.initial is None else initial_policy(params, env_spec)
        if initial is not None:
            load_initial(policy, initial)
        updater = self._updater(policy, plan, env_spec, context, group)
        timers = Timers(device)
        episodes = EpisodeReturns(env_spec.num_agents, context.tracker, reasons=env_spec.reasons)
        collector: RolloutCollector | RemoteCollector
        if vector is not None:
            collector = build_collector(params, plan, vector, policy, episodes, timers, device)
        else:
            assert params.collection is not None
            collector = RemoteCollector(
                build(params.collection.executor),
                params.collection,
                Share(
                    params,
                    environments,
                    part_of(plan, params.collection.actors),
                    seed_of(stream(seed, Stream.WORKERS, group.rank)),
                ),
                policy,
                episodes,
                timers,
                device,
                normaliser=build_normaliser(params, env_spec),
            )
        if initial is not None and collector.normaliser is not None:
            begin_with(collector.normaliser, initial)
        learner = RolloutLearner(
            params,
            seed,
            environments,
            policy,
            collector,
            updater,
            episodes,
            timers,
            group,
            schedule_of(params.optimiser, context.lr_schedule),
        )
        reporting = params.reporting
        loop = Loop(
            learner, context, reporting, timers=timers, group=group, is_solved=reporting.is_solved
        )
        # Before training, after which nothing must fail.
        warnings = _warnings(params, context.world, context.directory / SOURCE)
        try:
            loop.run()
        finally:
            if isinstance(collector, RemoteCollector):
                with best_effort("ending the actors"):
                    collector.close()
        policy.normalisation = _normalisation(collector.normaliser)
        policy.to(device)
        return RolloutResult(
            record=loop.record,
            evaluations=[EvaluationRow(steps, {}, done) for steps, done in learner.evaluations],
            reporting=reporting,
            time_shares=timers.shares(),
            part_ms=timers.mean_ms(learner.iteration),
            action_repeat=env_spec.action_repeat,
            policy=policy,
            params=params.policy,
            env_spec=env_spec,
            iterations=learner.iteration,
            reasons=learner.episode_statistics.reasons,
            humans_of=context.world if _humans_learn(params) else None,
            warnings=[
                *warnings_before(params, plan, env_spec),
                *learner.watch.warnings,
                *warnings,
            ],
        )

    def _updater(
        self, policy: Networks, plan: VecPlan, env_spec: EnvSpec, context: RunContext, group: Group
    ) -> Updater:
        """Improves the policy by the losses of the config."""
        params = self._params
        return Updater(
            policy,
            _losses(params),
            params,
            plan,
            env_spec,
            device=group.device(params.compute.device),
            generator=torch.Generator().manual_seed(
                seed_of(stream(context.seed, Stream.BATCHES, group.rank))
            ),
            group=group,
        )

    def require_evaluations(self, watcher: str) -> None:
        """Refuse a run that is not evaluated; see ``empo_core.protocols.Algorithm``."""
        self._params.reporting.require_evaluations(watcher)

    def require_extendable(self, changes: Mapping[str, tuple[JsonData, JsonData]]) -> None:
        """Refuse all but more steps and other reports; see ``empo_core.protocols.Algorithm``."""
        require_extension(changes, scheduled=self._params.scheduled)

    def restore(
        self, context: RunContext, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[RobotPolicy, HumanPrior] | PolicyPlayer:
        """What was learned so far; see ``empo_core.protocols.Algorithm``.

        Robots without memory are asked about single states of their world. Whatever else has
        learned plays in the environments of the run.
        """
        environments = self._environments(context)
        policy = self._learned(context, environments.spec, checkpoint)
        world, environment = context.world, _environment_params(self._params)
        if (
            world is None
            or not isinstance(environment, WorldParams)
            or environment.learners != "robots"
            or policy.memory_size
        ):
            return player_of(self._params, environments, policy)
        prior = environment.human_prior
        humans: HumanPrior = UniformHumans(world) if prior is None else build(prior, world)
        return LearnedRobots(world, policy), humans

    def _learned(
        self, context: RunContext, env_spec: EnvSpec, checkpoint: CheckpointChoice
    ) -> Networks:
        """The policy that a run left.

        Raises:
            StorageError: if the run left no policy.
        """
        path = context.directory / RESULTS / MODEL
        if checkpoint == "newest" and path.exists():
            return load_policy(path, env_spec).policy
        policy = build_policy(self._params.policy, env_spec, generator=torch.Generator())
        normaliser = build_normaliser(self._params, env_spec)
        with saved_state(context.directory, checkpoint) as state:
            policy.load_state_dict(state["policy"])
            if normaliser is not None:
                normaliser.load_state_dict(state["ranks"][0]["normaliser"])
        policy.normalisation = _normalisation(normaliser)
        return policy

    def _environments(self, context: RunContext) -> EnvironmentFactory:
        return EnvironmentFactory(
            self._params,
            context.world,
            context.directory / SOURCE,
            context.seed,
            context.environment,
        )

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """Sizes of a run."""
        schedule_of(self._params.optimiser)
        require_device(self._params.compute.device)
        environments = EnvironmentFactory(self._params, world, Path())
        plan, spec = environments.plan(), environments.spec
        _require_room(self._params, plan, spec)
        build_normaliser(self._params, spec)
        if self._params.initial is not None:
            initial_policy(self._params, spec)
        require_forward(self._params.policy, spec)
        policy = blank_policy(self._params.policy, spec)
        require_learnable(policy, _losses(self._params), self._params, plan, Group())
        return {
            "environments": plan.envs,
            "agents per environment": plan.agents,
            "workers": plan.workers,
            "blocks": plan.blocks,
            "agents per forward pass": plan.block_agents,
            "segments x steps": f"{plan.segments} x {plan.horizon}",
            "steps per rollout": plan.batch_size,
            "minibatches": plan.minibatches,
            "iterations": -(-self._params.total_steps // plan.batch_size),
            **environments.trial(),
            "warnings": list(warnings_before(self._params, plan, spec)),
        }


def _losses(params: RolloutParams) -> list[tuple[PolicyLoss, float]]:
    """The policy losses of a config, and their weights."""
    return [(build(entry.loss), entry.weight) for entry in params.losses]


def _normalisation(normaliser: Normaliser | None) -> ObservationNormalisation | None:
    """The last step of a run's normalisation, for its policy; None: observations stay."""
    if normaliser is None or normaliser.observations is None:
        return None
    moments = normaliser.observations.state_dict()
    return ObservationNormalisation(
        moments["mean"], moments["variance"], normaliser.clip, moments["count"]
    )


def _require_room(params: RolloutParams, plan: VecPlan, env_spec: EnvSpec) -> None:
    """Refuse a policy, or a rollout, that cannot fit into RAM.

    Raises:
        ConfigError: if the policy or a rollout cannot fit into RAM.
    """
    numbers = num_parameters(lambda: [blank_policy(params.policy, env_spec)])
    require_room_for_networks("algorithm.params.policy", params.policy, numbers)
    observations = env_spec.observations
    step = observations.words * (1 if observations.dtype == "uint8" else 4) + STEP_BYTES
    purpose = f"a rollout of {plan.batch_size:,} steps takes at least"
    require_room("algorithm.params", params, step * plan.batch_size, purpose)


def _environment_params(params: RolloutParams) -> object:
    """Params of the environment component; None without one."""
    return None if params.environment is None else params.environment.params


def _humans_learn(params: RolloutParams) -> bool:
    environment = _environment_params(params)
    return isinstance(environment, WorldParams) and environment.learners == "humans"


def _warnings(params: RolloutParams, world: WorldModel | None, source: Path) -> list[str]:
    """Warnings where robots are paid U_r: of what it comes from, and of a terminal state.

    U_r is negative, and paid until a terminal state.
    """
    environment = _environment_params(params)
    if world is None or not isinstance(environment, WorldParams) or _humans_learn(params):
        return []
    reward = environment.reward
    warnings = warnings_of(reward, source) if isinstance(reward, PowerReward) else []
    state = first_terminal(world)
    if state is not None:
        warnings.append(attraction(world, state, "no U_r < 0 is paid from there on"))
    return warnings


def _tell(plan: VecPlan, warnings: Sequence[str]) -> None:
    """Say what to beware of, before time is spent on it."""
    for warning in warnings:
        log.warning("%s", warning)
