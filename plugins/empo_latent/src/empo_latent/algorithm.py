"""The ``latent`` algorithm: learn a model, imagine with it, plan in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.protocols import Algorithm, CheckpointChoice, PolicyLoss, RunContext, WorldModel
from empo_core.protocols.environments import EnvironmentContext
from empo_core.random_streams import Stream, seed_globals, seed_of, stream
from empo_core.runs.directory import RESULTS
from empo_core.threads import torch_threads
from empo_core.trees import JsonData
from empo_core.types import CandidateBatch
from empo_environments.trial import play_trial
from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskVector, multi_task_spec
from empo_latent.environments.tasks import Task, tasks_of
from empo_latent.initial import load_initial
from empo_latent.learner import LatentLearner, RunComponents
from empo_latent.modelfile import load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import planner_of
from empo_latent.player import player_of
from empo_latent.replay import Replay
from empo_latent.result import LatentResult, evaluation_rows, newest_videos
from empo_latent.types import MultiTaskSpec
from empo_latent.update import Updater, num_candidates
from empo_learning.allocator import keep_freed_memory
from empo_learning.compute import require_device
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.evaluation.player import PolicyPlayer
from empo_learning.extension import require_extension
from empo_learning.loop import Loop, saved_state
from empo_learning.lr_schedules import schedule_of
from empo_learning.room import num_parameters, require_room_for_networks
from empo_learning.saved_model import MODEL
from empo_learning.timers import Timers

log = logging.getLogger(__name__)

ENVIRONMENTS = "environments"
"""Folder of a run for files of environments' own; made by those that have some."""

WINDOW = 20
"""Newest episodes that averages are about: an agent gets better within few."""


class LatentAlgorithm(Algorithm):
    """Learns a latent world model, and policies within it; acts by planning or by the policy."""

    takes_environment = is_learner = True

    def __init__(self, params: LatentParams) -> None:
        self._params = params

    def run(self, context: RunContext) -> LatentResult:
        """Learn to act; see ``empo_core.protocols.Algorithm``."""
        _refuse(context.world)
        keep_freed_memory()
        params = self._params
        tasks = tasks_of(params, context.environment, _environment_context(context))
        losses = self._losses()
        require_device(params.compute.device)
        _check_losses(params, losses)
        with torch_threads(params.compute.threads):
            # Environments may draw from these while they are made, and in every step.
            seed_globals(stream(context.seed, Stream.GLOBALS))
            vector = self._vector(tasks)
            try:
                self._require_room(vector.spec)
                parts = self._parts(context, tasks, vector, losses)
                learner = LatentLearner(params, context.seed, parts)
                loop = Loop(
                    learner,
                    context,
                    params.reporting,
                    timers=parts.timers,
                    is_solved=params.reporting.is_solved,
                )
                loop.run()
                learner.require_updates()
            finally:
                vector.close()
        repeats = [vector.spec.action_repeats[task] for task in vector.task_of.tolist()]
        return LatentResult(
            record=loop.record,
            evaluations=evaluation_rows(vector.spec.tasks, learner.evaluations),
            reporting=params.reporting,
            time_shares=parts.timers.shares(),
            part_ms=parts.timers.mean_ms(learner.updates_made),
            action_repeat=sum(repeats) / len(repeats),
            model=parts.model,
            params=params,
            spec=vector.spec,
            updates=learner.updates_made,
            videos=newest_videos(learner.evaluations),
        )

    def require_evaluations(self, watcher: str) -> None:
        """Refuse a run that is not evaluated; see ``empo_core.protocols.Algorithm``."""
        self._params.reporting.require_evaluations(watcher)

    def require_extendable(self, changes: Mapping[str, tuple[JsonData, JsonData]]) -> None:
        """Refuse all but more steps and other reports; see ``empo_core.protocols.Algorithm``."""
        require_extension(changes, scheduled=self._params.scheduled)

    def restore(self, context: RunContext, checkpoint: CheckpointChoice = "newest") -> PolicyPlayer:
        """The agent learned so far; see ``empo_core.protocols.Algorithm``."""
        tasks = tasks_of(self._params, context.environment, _environment_context(context))
        path = context.directory / RESULTS / MODEL
        if checkpoint == "newest" and path.exists():
            loaded = load_model(path)
            return player_of(self._params, tasks, loaded.model, loaded.spec)
        spec = self._spec(tasks)
        model = self._model(spec, torch.Generator())
        with saved_state(context.directory, checkpoint, LatentLearner.may_be_unknown) as state:
            model.fit_parts(state["model"])
            model.load_state_dict(state["model"])
        return player_of(self._params, tasks, model, spec)

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """Sizes of a run."""
        schedule_of(self._params.optimiser)
        _refuse(world)
        tasks = tasks_of(self._params, None)
        losses, spec = self._losses(), self._spec(tasks)
        require_device(self._params.compute.device)
        _check_losses(self._params, losses)
        self._require_room(spec)
        with torch.device("meta"):  # Which has sizes and no room.
            model = self._model(spec, torch.Generator())
        load_initial(model, self._params, spec)
        sizes = {name: sum(x.numel() for x in group) for name, group in model.groups().items()}
        return {
            "tasks": list(spec.tasks),
            "numbers per observation": spec.words,
            "numbers per action": spec.actions,
            "discounts": [
                round(discount, 6) for discount in self._params.discounts(spec.episode_lengths)
            ],
            "parameters": sum(sizes.values()),
            **{f"parameters of {name}": size for name, size in sizes.items()},
            "candidates per state": num_candidates(self._params, losses),
            **{
                f"trial episode of {name}": play_trial(task)
                for name, task in zip(spec.tasks, tasks, strict=True)
            },
        }

    def _parts(
        self,
        context: RunContext,
        tasks: Sequence[Task],
        vector: TaskVector,
        losses: Mapping[str, PolicyLoss],
    ) -> RunComponents:
        params, spec = self._params, vector.spec
        device = torch.device(params.compute.device)
        weights = torch.Generator().manual_seed(seed_of(stream(context.seed, Stream.WEIGHTS)))
        model = self._model(spec, weights)
        load_initial(model, params, spec)
        model.to(device)
        rates = torch.tensor(params.discounts(spec.episode_lengths), device=device)
        planner = planner_of(model, params, spec, compiled=params.compute.compile)
        updater = Updater(model, losses, params, rates)
        return RunComponents(
            model=model,
            planner=planner,
            updater=updater,
            lr_schedule=schedule_of(params.optimiser, context.lr_schedule),
            controller=Controller(model, planner, envs=params.num_envs, device=device),
            tasks=tasks,
            vector=vector,
            replay=Replay(
                spec,
                envs=params.num_envs,
                capacity=params.replay.capacity,
                horizon=params.learning.horizon,
                expert=updater.needs_expert,
                device=device,
            ),
            episodes=EpisodeReturns(params.num_envs, context.tracker, window=WINDOW),
            timers=Timers(device),
        )

    def _vector(self, tasks: Sequence[Task]) -> TaskVector:
        return TaskVector(tasks, envs=self._params.num_envs)

    def _spec(self, tasks: Sequence[Task]) -> MultiTaskSpec:
        """Sizes and names of the tasks, found out without a step in any."""
        return multi_task_spec(tasks, envs=self._params.num_envs)

    def _model(self, spec: MultiTaskSpec, generator: torch.Generator) -> LatentModel:
        optimistic = self._params.optimistic_loss is not None
        return LatentModel(self._params, spec, generator=generator, optimistic=optimistic)

    def _require_room(self, spec: MultiTaskSpec) -> None:
        """Refuse networks that cannot fit into RAM."""
        numbers = num_parameters(lambda: [self._model(spec, torch.Generator())])
        require_room_for_networks("algorithm.params", self._params, numbers)

    def _losses(self) -> dict[str, PolicyLoss]:
        """The losses by the name of the policy that learns from each."""
        losses: dict[str, PolicyLoss] = {"policy": build(self._params.policy_loss)}
        if self._params.optimistic_loss is not None:
            losses["optimistic"] = build(self._params.optimistic_loss)
        return losses


def _environment_context(context: RunContext) -> EnvironmentContext:
    """What a run gives to its environments."""
    return EnvironmentContext(directory=context.directory / ENVIRONMENTS, seed=context.seed)


def _check_losses(params: LatentParams, losses: Mapping[str, PolicyLoss]) -> None:
    """Compare the params with what losses need, by the names of the policies that they teach.

    Raises:
        ConfigError: if a loss would fail, or a parameter would do nothing; a line for each.
    """
    problems, candidates = [], num_candidates(params, losses)
    for name, loss in losses.items():
        needs = loss.needs
        if loss.takes is not CandidateBatch:
            problems.append(
                f"{name}_loss: {type(loss).__name__} learns from steps that were taken, and "
                "algorithm 'latent' imagines candidates; choose another, e.g. awr"
            )
        if candidates < needs.min_candidates:
            problems.append(
                f"imagination.candidates: {candidates}, and {name}_loss compares at least "
                f"{needs.min_candidates}; set it to {max(needs.min_candidates, needs.candidates)}"
            )
        elif candidates < needs.candidates / 2:
            log.warning(
                "imagination.candidates: %s_loss compares only %d candidate actions per start, so "
                "that their weights are mostly noise; %d are recommended",
                name, candidates, needs.candidates,
            )  # fmt: skip
        if needs.expert and params.collection.acting != "planner":
            problems.append(
                f"{name}_loss: it imitates the planner, and there is none; set "
                "collection.acting to planner"
            )
        if needs.proposal and params.policy.average_rate is None:
            log.warning(
                "%s_loss asks for the policy that proposed candidates, which is the one that "
                "learns: they never differ, so a trust region does nothing; set "
                "policy.average_rate",
                name,
            )
    asks = any(loss.needs.critic or loss.needs.targets for loss in losses.values())
    if params.imagination.value_heads and not asks:
        problems.append(
            "imagination.value_heads: no policy loss asks how good actions are; choose one that "
            "does, e.g. svg, or drop this"
        )
    if problems:
        raise ConfigError("\n".join(f"algorithm.params.{problem}" for problem in problems))


def _refuse(world: WorldModel | None) -> None:
    if world is not None:
        raise ConfigError(
            "world_model: algorithm 'latent' learns in its tasks (algorithm.params.tasks), whose "
            "actions are numbers, and not in a world; drop this key, or choose algorithm 'phase2'"
        )
