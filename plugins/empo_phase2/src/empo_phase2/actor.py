"""Actors: they step many environments at once and record all successors of each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.config import ComponentRef, WorldModelRef
from empo_core.protocols import HumanPrior, Weights, WorldModel
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.trees import StateDict
from empo_core.types import Experience, Scene, Successors
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.cached_prior import CachedPrior
from empo_phase2.episodes import Episodes
from empo_phase2.experience import Block, States, Transitions, steps_after
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.frontier import Frontier
from empo_phase2.goal_index import goal_index_of
from empo_phase2.params import Phase2Params
from empo_phase2.profiles import HumanProfiles
from empo_phase2.state_recorder import StateRecorder, learner_spec
from empo_phase2.successors import JointActionOrder, SuccessorQuery
from empo_phase2.warmup import WarmUpSchedule
from empo_phase2.world_checks import check_starts, check_world
from empo_worlds.ensemble import EnsembleWorld, layouts_of, members_of, prior_of
from empo_worlds.queries import refuse_non_finite, sample_actions, sample_successors
from empo_worlds.ragged import select_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSettings:
    """Settings of an actor.

    Attributes:
        environments: How many it steps at once.
        steps_per_episode: Steps after which episodes are cut; None cuts none.
        episodes_per_world: Episodes in one world of an ensemble before the next one follows.
        goal_resample_prob: Chance per step that a human pursues another goal.
        frontier_prob: Chance that an episode starts where none has been yet.
        all_profiles: Whether successors of all joint actions of the humans are recorded; else
            those of one, drawn from the prior averaged over goals.
        model_based: Whether successors of all robot actions are recorded; else one of one.
        store: Whether states are recorded as ``"rows"`` or ``"compact"``.
        seed: Seeds its generator, together with its number.
    """

    environments: int = 16
    steps_per_episode: int | None = None
    episodes_per_world: int = 1
    goal_resample_prob: float = 0.01
    frontier_prob: float = 0.0
    all_profiles: bool = True
    model_based: bool = True
    store: str = "rows"
    seed: int = 0

    @classmethod
    def of(cls, params: Phase2Params, world: WorldModel, seed: int) -> ActorSettings:
        """The settings that a config asks for in a world."""
        exploration, targets = params.exploration, params.targets
        frontier_prob = exploration.frontier_prob
        if frontier_prob is None:
            frontier_prob = 0.5 if targets.model_based else 0.0
        return cls(
            environments=params.num_envs,
            steps_per_episode=exploration.steps_per_episode,
            episodes_per_world=params.ensemble.episodes_per_world,
            goal_resample_prob=exploration.goal_resample_prob,
            frontier_prob=frontier_prob,
            all_profiles=targets.are_exact(world.spec),
            model_based=targets.model_based,
            store=params.replay.store,
            seed=seed,
        )


class Phase2Actor:
    """Plays environments of one world, or of an ensemble; see ``empo_core.protocols.Actor``."""

    def __init__(
        self,
        world: WorldModel,
        prior: HumanPrior,
        behaviour: RobotBehaviour,
        explorers: ExplorerSet,
        schedule: WarmUpSchedule,
        settings: ActorSettings,
        index: int = 0,
    ) -> None:
        """Start episodes in all environments.

        Raises:
            SolveError: if there is nothing to learn in the world.
        """
        for member in members_of(world):
            check_world(member.spec)
        self._world, self._behaviour, self._explorers = world, behaviour, explorers
        self._schedule, self._settings, self._index = schedule, settings, index
        spec = world.spec
        slots = goal_index_of(world)
        self._order = JointActionOrder(spec)
        self._successors = SuccessorQuery(
            world,
            self._order,
            all_profiles=settings.all_profiles,
            model_based=settings.model_based,
        )
        self._prior, self._profiles = CachedPrior(prior, world), HumanProfiles(spec, slots)
        self._recorder = StateRecorder(world, slots, self._order, settings.store)
        starts = world.starts() if isinstance(world, EnsembleWorld) else [world.initial_states()]
        check_starts(world, torch.cat([initial.states for initial in starts]))
        seed = seed_of(stream(settings.seed, Stream.EPISODES, index))
        self._generator = torch.Generator().manual_seed(seed)
        self._episodes = Episodes(
            starts,
            slots,
            self._generator,
            environments=settings.environments,
            first=index * settings.environments,
            horizon=spec.horizon,
            steps_per_episode=settings.steps_per_episode,
            episodes_per_world=settings.episodes_per_world,
        )
        self._episodes.pursue(
            torch.ones_like(self._episodes.goal, dtype=torch.bool), self._random()
        )
        self._frontier = Frontier(spec) if settings.frontier_prob else None
        self._weights: dict[str, Tensor] = {}
        self._version = 0

    def load(self, weights: Weights, version: int) -> None:
        """Act with these weights from now on."""
        # A publisher in the same process may go on writing to its own.
        self._weights = {name: tensor.clone() for name, tensor in weights.items()}
        self._version = version
        self._behaviour.load(self._weights)
        self._explorers.load_weights(self._weights)

    @torch.no_grad()
    def act(self, training_step: int) -> Experience:
        """Take one step in every environment, and record it with all that could have followed."""
        episodes, recorder = self._episodes, self._recorder
        recorder.start()
        state = recorder.number(episodes.rows)
        policy = self._prior(episodes.rows, episodes.steps_left)
        human = self._humans_choose(state, policy, training_step)
        recorded, acts_for = human, torch.ones(policy.shape[:2], dtype=torch.bool)
        if not self._settings.all_profiles:
            recorded, acts_for = self._sampled_profile(policy)
        successors = self._successors.to_record(episodes.rows, recorded)
        transitions = Transitions(
            state=state,
            steps_left=episodes.steps_left,
            human_policy=policy if self._settings.all_profiles else policy[:, :0],
            acts_for=acts_for,
            behaviour=torch.zeros(len(state), 0),
            action=state,  # Not known yet.
            offsets=successors.offsets,
            successor=recorder.number(successors.states),
            prob=successors.prob.float(),
        )
        behaviour, robot, rows = self._robots_move(
            transitions, successors, recorded, human, training_step
        )
        transitions, following = replace(transitions, action=robot), recorder.number(rows)
        if not self._settings.model_based:
            transitions = self._with_sample(transitions, rows, recorded, human)
            transitions = replace(transitions, behaviour=behaviour.float())
        states = recorder.states()
        block = Block(states, transitions, episodes.started, human, recorded, following)
        if self._frontier is not None:
            self._look_around(self._frontier, successors.states, states, transitions)
        self._go_on(rows, states, following)
        return Experience(block.arrays(), len(episodes), self._index, self._version)

    def state_dict(self) -> StateDict:
        """Everything needed to resume exactly."""
        return {
            "episodes": self._episodes.state_dict(),
            "generator": self._generator.get_state(),
            "explorers": self._explorers.state_dict(),
            "frontier": self._frontier.state_dict() if self._frontier else None,
            "weights": dict(self._weights),
            "version": self._version,
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        if state_dict["weights"]:
            self.load(state_dict["weights"], state_dict["version"])
        self._episodes.load_state_dict(state_dict["episodes"])
        self._generator.set_state(state_dict["generator"])
        self._explorers.load_state_dict(state_dict["explorers"])
        if self._frontier:
            self._frontier.load_state_dict(state_dict["frontier"])

    def _humans_choose(
        self, state: Tensor, policy: Float[Tensor, "env slot action"], training_step: int
    ) -> Int[Tensor, "env human"]:
        """The humans' next actions: for the goals that they pursue, or for exploration."""
        episodes, spec = self._episodes, self._world.spec
        goal_policy = policy[torch.arange(len(episodes))[:, None], episodes.goal]
        uniform = self._random()
        human = sample_actions(goal_policy, uniform)
        if not any(self._explorers.humans):
            return human
        available = self._recorder.available()[state]
        for position, (index, explorer) in enumerate(
            zip(spec.humans, self._explorers.humans, strict=True)
        ):
            number = spec.num_actions[index]
            scene = self._scene(available[:, index, :number], None, training_step)
            explored = explorer.explore(goal_policy[:, position, :number], scene, self._generator)
            human[:, position] = sample_actions(explored, uniform[:, position])
            explorer.observe(scene, human[:, position])
        return human

    def _sampled_profile(
        self, policy: Float[Tensor, "env slot action"]
    ) -> tuple[Int[Tensor, "env human"], Bool[Tensor, "env slot"]]:
        """The profile to record, drawn whatever the humans do next; see ``HumanProfiles.sample``.

        Robots may react to what humans do next, so that a profile that depended on that would
        not be independent of the recorded robot action, as (4) wants.
        """
        uniform = torch.rand(policy.shape[:2], generator=self._generator, dtype=torch.float64)
        layout = layouts_of(self._world, self._episodes.rows)
        return self._profiles.sample(policy, layout, self._random(), uniform)

    def _robots_move(
        self,
        transitions: Transitions,
        successors: Successors,
        recorded: Int[Tensor, "env human"],
        human: Int[Tensor, "env human"],
        training_step: int,
    ) -> tuple[Float[Tensor, "env robot_action"], Int[Tensor, " env"], Int[Tensor, "env word"]]:
        """The behaviour policy, what the robots do by it, and the rows of the states that follow.

        The behaviour policy has the explorers in it.
        """
        states, rows = self._recorder.states(), self._episodes.rows
        beta_r = self._schedule.at(training_step).current.beta_r
        policy = self._behaviour.policy(states, transitions, beta_r)
        refuse_non_finite(policy, policy.sum(-1))
        around = None
        scene = None
        if self._explorers.robots:
            around = self._successors.given_humans(rows, successors, recorded, human)
            stored = replace(around, states=self._recorder.stored(around.states))
            available = states.available[transitions.state]
            scene = self._scene(available, stored, training_step)
            policy = self._explorers.robots.explore(policy, scene, self._generator)
        uniform = torch.rand(len(policy), generator=self._generator, dtype=torch.float64)
        robot = sample_actions(policy, uniform)
        if scene is not None:
            self._explorers.robots.observe(scene, robot)
        if around is None:
            after = self._successors.given_joint(rows, successors, recorded, human, robot)
        else:
            here = torch.arange(len(robot))
            after = select_pairs(around, here * self._order.robot_actions + robot)
        return policy, robot, sample_successors(after, rows, self._generator)

    def _with_sample(
        self, transitions: Transitions, rows: Tensor, recorded: Tensor, human: Tensor
    ) -> Transitions:
        """The transitions with one successor each, under the recorded actions of the humans."""
        robot = transitions.action
        differs = (recorded != human).any(1)
        if differs.any():
            successors = self._successors.under(self._episodes.rows, recorded, robot)
            other = sample_successors(successors, self._episodes.rows, self._generator)
            rows = torch.where(differs[:, None], other, rows)
        count = torch.zeros(len(rows), self._order.robot_actions, dtype=torch.int64)
        count[torch.arange(len(rows)), robot] = 1
        offsets = torch.nn.functional.pad(count.flatten().cumsum(0), (1, 0))
        return replace(
            transitions,
            offsets=offsets,
            successor=self._recorder.number(rows),
            prob=torch.ones(len(rows)),
        )

    def _go_on(self, rows: Tensor, states: States, following: Tensor) -> None:
        """Enter the states that followed; pursue other goals where it is time for them."""
        episodes = self._episodes
        reached = states.achieved[following].gather(1, episodes.goal)
        over = episodes.move(rows, states.terminal[following])
        if self._frontier is not None:
            over = self._search(self._frontier, over)
        bored = self._random() < self._settings.goal_resample_prob
        episodes.pursue(over[:, None] | reached | bored, self._random())

    def _look_around(
        self, frontier: Frontier, successors: Tensor, states: States, transitions: Transitions
    ) -> None:
        """Add the current timed states and their successors to the frontier."""
        episodes = self._episodes
        frontier.enter(episodes.rows, episodes.steps_left)
        counts = transitions.offsets.diff().view(len(episodes), -1).sum(1)
        left = steps_after(episodes.steps_left, self._world.spec).repeat_interleave(counts)
        alive = ~states.terminal[transitions.successor] & (left > 0)
        frontier.see(successors[alive], left[alive])

    def _search(self, frontier: Frontier, over: Bool[Tensor, " env"]) -> Bool[Tensor, " env"]:
        """Begin some of the new episodes at the frontier of exploration.

        Those that began there before begin anew where they come to what is known already. Returns
        which environments begin a new episode.
        """
        episodes = self._episodes
        uniform = torch.rand(len(over), generator=self._generator, dtype=torch.float64)
        chosen = (over & (uniform < self._settings.frontier_prob)).nonzero()[:, 0]
        self._begin_at(chosen, *frontier.draw(len(chosen), self._generator))
        arrives = episodes.searches & ~over
        arrives &= frontier.is_entered(episodes.rows, episodes.steps_left)
        back = arrives.nonzero()[:, 0]
        self._begin_at(back, *frontier.draw_new(len(back), self._generator))
        return over | episodes.started

    def _begin_at(self, chosen: Tensor, rows: Tensor, steps_left: Tensor) -> None:
        """Begin new episodes in some environments, as far as there are states to begin at."""
        world = self._world
        layout = world.layout_of(rows) if isinstance(world, EnsembleWorld) else None
        self._episodes.begin_at(chosen[: len(rows)], rows, steps_left, layout)

    def _scene(self, available: Tensor, successors: Successors | None, training_step: int) -> Scene:
        episodes = self._episodes
        return Scene(
            states=self._recorder.stored(episodes.rows),
            steps_left=episodes.steps_left,
            available=available,
            started=episodes.started,
            successors=successors,
            training_step=training_step,
            milestones=self._schedule.stage_start,
            total_steps=self._schedule.total_steps,
        )

    def _random(self) -> Float[Tensor, "env human"]:
        """A number in [0, 1) for each human."""
        return torch.rand(self._episodes.goal.shape, generator=self._generator, dtype=torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase2ActorFactory:
    """Builds actors, in this process or another; an ``empo_core.protocols.ActorFactory``.

    Attributes:
        worlds: The run's world and the further ones of an ensemble, each as a reference of a
            config or as a function that builds it.
        params: Everything else about the run.
        seed: Seeds all actors.
    """

    worlds: tuple[WorldModelRef | Callable[[], WorldModel], ...]
    params: Phase2Params
    seed: int = 0

    def world(self) -> WorldModel:
        """The world that actors play: the only one, or the ensemble."""
        worlds: list[WorldModel] = [
            build(world) if isinstance(world, ComponentRef) else world() for world in self.worlds
        ]
        return worlds[0] if len(worlds) == 1 else EnsembleWorld(worlds)

    def prior(self, world: WorldModel) -> HumanPrior:
        """The human prior of a world that actors play."""
        return prior_of(self.params.human_prior, world)

    def __call__(self, index: int) -> Phase2Actor:
        """The actor with a number, from 0."""
        world, params = self.world(), self.params
        spec = learner_spec(world, params.replay.store)
        return Phase2Actor(
            world,
            self.prior(world),
            RobotBehaviour(params, spec, goal_index_of(world)),
            ExplorerSet(params.exploration, spec),
            WarmUpSchedule(params),
            ActorSettings.of(params, world, self.seed),
            index,
        )
