"""The problem of a run of ``phase2``: its world, and everything that is made for it."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError
from empo_core.protocols import Aggregator, WorldModel
from empo_core.types import WorldSpec
from empo_learning.compute import require_device
from empo_learning.room import num_parameters, require_room_for_networks
from empo_phase2.actor import ActorSettings, Phase2ActorFactory
from empo_phase2.behaviour import build_networks
from empo_phase2.estimates import ValueEstimator
from empo_phase2.goal_index import GoalIndex, goal_index_of
from empo_phase2.params import QUANTITIES, Phase2Params
from empo_phase2.quantities import MOST_NUMBERS, PART_NUMBERS, QUERY_NUMBERS, Quantities, part_size
from empo_phase2.replay import Replay, ReplayShape
from empo_phase2.state_queries import StateEncoder
from empo_phase2.state_recorder import learner_spec
from empo_phase2.successors import JointActionOrder, SuccessorQuery
from empo_phase2.warmup import WarmUpSchedule
from empo_phase2.world_checks import check_reach, check_world, warning
from empo_worlds.contract import require_one_start
from empo_worlds.ensemble import members_of
from empo_worlds.queries import is_terminal

log = logging.getLogger(__name__)

WALKS, WALK_STEPS = 16, 16
"""Random walks that show how much of a world is recorded, and their steps."""
COPIES = 4
"""Numbers that are held at a time for each feature and hidden unit: inputs, outputs, gradients."""
ITEM_BYTES, SLOT_BYTES = 100, 12
"""RAM per successor of a batch, and more for each goal of it."""
STATE_BYTES, VALUE_BYTES = 100, 24
"""RAM per distinct state of a batch, and more for each of its values."""
MOMENTS = 4
"""Gradient and moments of Adam, per weight; AMSGrad has three."""


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

    def step_bytes(self, items: float, states: float, weights: int) -> int:
        """RAM of a training step, roughly, where networks are of their usual size.

        Args:
            items: Successors per transition.
            states: Distinct states per transition, itself among them.
            weights: Numbers that all networks learn.
        """
        spec, slots, batch = self.spec, len(self.slots), self.params.replay.batch_size
        distinct, block = math.ceil(batch * states), part_size(spec, slots)
        valued = COPIES * 4 * (PART_NUMBERS // block) * min(distinct, block)
        fitted = COPIES * 4 * batch * (spec.featurizer.shape.flat + slots * QUERY_NUMBERS)
        ragged = batch * items * (ITEM_BYTES + SLOT_BYTES * slots)
        row = spec.state_words * spec.state_dtype.itemsize
        flat = distinct * (2 * row + STATE_BYTES + VALUE_BYTES * (slots + spec.num_robot_actions))
        optimiser_bytes = 4 * (MOST_NUMBERS + MOMENTS * weights)
        return int(max(valued + ragged + flat, fitted)) + optimiser_bytes

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
        total, representations = 0, self.params.values
        for quantity in QUANTITIES:
            reference = getattr(representations, quantity)
            if reference is None:
                continue
            numbers = num_parameters(lambda: [build(reference, self.spec, quantity)])  # noqa: B023
            key = f"algorithm.params.values.{quantity}.params"
            require_room_for_networks(key, reference.params, numbers)
            total += int(numbers)
        return total

    def quantities(self) -> Quantities:
        """All quantities according to networks that have learned nothing yet."""
        networks, device = build_networks(self.params.values, self.spec), self.params.compute.device
        for network in networks.values():
            network.to(device)
        aggregate: Aggregator = build(self.params.aggregator)
        slots = self.slots.to(device)
        return Quantities(networks, self.spec, slots, self.params.theory, aggregate)

    def encoder(self) -> StateEncoder:
        """Sees states as the learner does, and ahead where Q_r is not learned."""
        prior = self.factory.prior(self.world) if self.params.values.q_r is None else None
        return StateEncoder(self.world, self.params.replay.store, prior)

    def estimator(self, quantities: Quantities, encoder: StateEncoder) -> ValueEstimator:
        """Value estimates of the run's world by networks that may go on learning."""
        return ValueEstimator(quantities, encoder, self.params.compute.device)


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
