"""The problem that a sweep solves: world, state graph, and the arrays that the kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Int64

from empo_core.errors import ConfigError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import WorldSpec
from empo_exact.assumptions import Assumptions, build_prior, make_humans
from empo_exact.game import (
    Game,
    Humans,
    Moments,
    Theory,
    goal_places,
    make_game,
    make_moments,
    make_theory,
)
from empo_exact.graph import StateGraph
from empo_exact.human_policies import prior_policy
from empo_exact.images import Images
from empo_exact.plugin import Defunct, ExactParams
from empo_theory.equations import end_weight
from empo_theory.parameters import CompleteTheory
from empo_worlds.contract import achieved_in

POLICY_ENTRIES = 1 << 16
"""Human action probabilities that pass from one phase to the other at a time, per thread.

So many still fit into a core's second-level cache, half a megabyte.
"""


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that the sweep needs.

    Attributes:
        world: The world.
        graph: Its state graph.
        game: The graph and the robot's parameters, as the sweep reads them.
        humans: The assumptions of Phase 1; not used with a ``prior``.
        theory: The parameters of Phase 2.
        symbols: The same as they were given.
        moments: What the moments of the robot's cost take besides; None: its mean is all.
        habit: The habitual policy as a prior; None: ``humans`` has it.
        prior: The humans' policy; None solves Phase 1.
        gamma_h: The humans' discount.
        horizon: Steps per episode; None where the world ends by itself.
        start: Chances of the first states to be where episodes begin [start].
        workers: Threads.
        places: Where the sweep has each goal of the world's goal axis [goal].
        images: The images of the states, where the graph is a reduced one.
        failing: Chances to fail for good in a transition, by its duration; empty: robots do not.
            Rows of tables are then those of states before a transition of the first duration, those
            before one of the second, and so on [duration].
        has_phase2: The robot's policy is sought, too; else Phase 1 is all.
    """

    world: WorldModel
    graph: StateGraph
    game: Game
    humans: Humans
    theory: Theory
    symbols: CompleteTheory
    moments: Moments | None
    habit: HumanPrior | None
    prior: HumanPrior | None
    gamma_h: float
    horizon: int | None
    start: Float64[np.ndarray, " start"]
    workers: int
    places: Int64[np.ndarray, " goal"] = field(repr=False)
    images: Images | None = field(default=None, repr=False)
    failing: Float64[np.ndarray, " duration"] = field(default_factory=lambda: np.zeros(0))
    has_phase2: bool = True
    _last_humans: tuple[int, Humans] | None = field(default=None, init=False, repr=False)

    @cached_property
    def is_timed(self) -> bool:
        """Some transition takes another time than one unit."""
        return bool((self.graph.duration != 1).any())

    @property
    def rho(self) -> int:
        """The highest order of moments of the robot's cost."""
        return self.symbols.rho

    @property
    def counts_presence(self) -> bool:
        """Being in a goal counts, also where the episode is over."""
        return self.theory.is_presence

    @property
    def working(self) -> Float64[np.ndarray, " code"]:
        """The chance that robots do not fail in a transition [code]."""
        if not len(self.failing):
            return np.ones(len(self.graph.duration))
        _, number = np.unique(self.graph.duration, return_inverse=True)
        chances: Float64[np.ndarray, " code"] = 1.0 - self.failing[number]
        return chances

    @property
    def arrived(self) -> float:
        """What entering a goal counts after one unit of time."""
        return self.gamma_h if self.counts_presence else 1.0

    def theory_at(self, steps_left: int) -> Theory:
        """The parameters of Phase 2 with so many steps left: what an early end is worth varies."""
        if self.symbols.early_end == "stop":
            return self.theory
        left = None if self.horizon is None else steps_left
        return self.theory._replace(end_weight=end_weight(self.symbols, left))

    @property
    def block(self) -> int:
        """Number of states that one thread works on at a time."""
        per_state = len(self.game.weight) * int(self.game.num_actions.max())
        return max(64, min(8192, POLICY_ENTRIES // per_state))

    def humans_at(self, steps_left: int) -> Humans:
        """The assumptions of Phase 1 with so many steps left: a habit may depend on them."""
        if self.habit is None or not self.humans.has_habit:
            return self.humans
        last = self._last_humans
        if last is None or last[0] != steps_left:
            graph, horizon = self.graph, self.horizon
            count = graph.num_expanded
            if horizon is not None:
                count = graph.expanded_within(horizon - steps_left)
            # One at a time is kept; it goes with the problem. Other threads may do the same.
            last = steps_left, self.humans_in(np.arange(count), steps_left)
            object.__setattr__(self, "_last_humans", last)
        return last[1]

    def humans_in(self, states: Int[np.ndarray, " state"], steps_left: int) -> Humans:
        """The same, where only these states will be asked about; any may be missing elsewhere."""
        if self.habit is None or not self.humans.has_habit:
            return self.humans
        actions = int(self.game.num_actions.max())
        policy = prior_policy(self.world, self.graph, self.habit, states, steps_left, actions)
        # A leading axis of 1 would mean that it holds for all states.
        rows = int(states.max(initial=0)) + 2
        habit = np.zeros((rows, *policy.shape[1:]))
        habit[states] = policy
        return self.humans._replace(habit=habit)


def check_params(world: WorldModel, params: ExactParams) -> None:
    """Refuse parameters that do not go with a world, before anything is compiled or explored.

    Raises:
        ConfigError: if terminal states would be worth infinitely much, or an agent or action is
            named that is not there.
    """
    spec, theory = world.spec, params.theory
    if theory.early_end == "absorb" and theory.gamma_r == 1 and spec.horizon is None:
        raise ConfigError(
            f"algorithm.params.theory.early_end: absorb counts U_r without end in the terminal "
            f"states of {spec.name!r}, which has no horizon: set gamma_r below 1, give the world a "
            "horizon, or choose early_end: stop"
        )
    counted(spec, params.counts)
    if params.defunct.rate > 0 or params.defunct.null_action is not None:
        null_actions(spec, params.defunct)


def null_actions(spec: WorldSpec, defunct: Defunct) -> dict[int, int]:
    """The action that each robot takes once it has failed, by agent.

    Raises:
        ConfigError: if there is no robot, or one has no action of that name.
    """
    if not spec.robots:
        raise ConfigError(
            f"algorithm.params.defunct: {spec.name!r} has no robot that could fail; leave defunct "
            "out"
        )
    if defunct.null_action is None:
        return dict.fromkeys(spec.robots, 0)
    for robot in spec.robots:
        actions = spec.agents[robot].actions
        if defunct.null_action not in actions:
            raise ConfigError(
                f"algorithm.params.defunct.null_action: {spec.agents[robot].name} has no action "
                f"{defunct.null_action!r}; it has {', '.join(map(repr, actions))}"
            )
    return {r: spec.agents[r].actions.index(defunct.null_action) for r in spec.robots}


def counted(spec: WorldSpec, names: Sequence[str] | None) -> Bool[np.ndarray, " human"]:
    """Which humans U_r counts [human].

    Raises:
        ConfigError: if a human is named that is not there.
    """
    humans = [spec.agents[human].name for human in spec.humans]
    for name in names or ():
        if name not in humans:
            raise ConfigError(
                f"algorithm.params.counts: {spec.name!r} has no human {name!r}; it has "
                f"{', '.join(map(repr, humans))}"
            )
    return np.array([names is None or name in names for name in humans])


def pose(
    world: WorldModel,
    graph: StateGraph,
    params: ExactParams,
    assumed: Assumptions,
    achieved: Bool[np.ndarray, "state goal"] | None = None,
    images: Images | None = None,
    start: Float64[np.ndarray, " start"] | None = None,
) -> Problem:
    """Everything that the sweep needs, from the graph and the parameters.

    Args:
        world: The world.
        graph: Its graph.
        params: Theory and solver parameters.
        assumed: Assumptions beyond the parameters.
        achieved: The goals that each state achieves, where that is known already.
        images: The images that transitions lead to, where the graph is a reduced one.
        start: Chances of the first states to be where episodes begin; None: they do in the first.

    Raises:
        SolveError: if an assumption is impossible.
    """
    if assumed.habit is None and assumed.habit_prior is None:
        assumed = replace(assumed, habit_prior=build_prior(params.habit, world))
    if achieved is None:
        achieved = achieved_in(world, torch.from_numpy(graph.states)).numpy()
    game = make_game(graph, achieved, params.theory)
    if images is not None:
        rows = images.achieved(game.achieved)
        game = game._replace(successor=images.successor, achieved=rows)
    return Problem(
        world=world,
        graph=graph,
        game=game,
        humans=make_humans(world, graph, game, params, assumed),
        theory=make_theory(params.theory, counted(world.spec, params.counts)),
        symbols=params.theory,
        moments=make_moments(graph, params.theory) if params.theory.rho > 1 else None,
        habit=assumed.habit_prior,
        prior=assumed.human_prior or build_prior(params.human_prior, world),
        gamma_h=params.theory.gamma_h,
        horizon=world.spec.horizon,
        start=np.ones(1) if start is None else start,
        workers=params.compute.workers,
        places=goal_places(world.spec),
        images=images,
    )
