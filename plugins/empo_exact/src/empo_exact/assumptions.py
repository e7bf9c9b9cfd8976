"""From a world, its state graph and the parameters to the problem that the sweep solves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.config import HumanPriorRef
from empo_core.errors import SolveError
from empo_core.experiment import build
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import WorldSpec
from empo_exact.beliefs import Believed, belief_table, believe, refuse_impossible_beliefs
from empo_exact.game import LANES, Floats, Game, Humans, Indices, Theory
from empo_exact.goal_axis import goal_places, padded
from empo_exact.graph import StateGraph
from empo_exact.human_policies import answers, uniform_policy
from empo_exact.images import Images
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem
from empo_theory.equations import reward_weight
from empo_theory.parameters import CompleteTheory
from empo_worlds.contract import achieved_in
from empo_worlds.policy_checks import checked_human_policy

STATES_AT_ONCE = 1 << 14

OfGoals = Callable[[Int[Tensor, "state word"]], Float[Tensor, "state goal"]]
OfActions = Callable[[Int[Tensor, "state word"]], Float[Tensor, "state goal action"]]


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about the humans that a Python caller may add to the scalar parameters.

    Attributes:
        beta_h: Rationality per goal and state; None takes the parameter.
        nu: Weight of the habitual policy per goal and state; None takes the parameter.
        habit: The habitual policy; None takes the parameter.
        believed_others: Beliefs about the other humans; None means independent and uniform
            over their available actions.
        habit_prior: The habitual policy as a human prior, where ``habit`` is None; None takes
            the parameter.
        human_prior: The humans' policy, instead of Phase 1; None takes the parameter.
    """

    beta_h: OfGoals | None = None
    nu: OfGoals | None = None
    habit: OfActions | None = None
    believed_others: Believed | None = None
    habit_prior: HumanPrior | None = None
    human_prior: HumanPrior | None = None


def pose(
    world: WorldModel,
    graph: StateGraph,
    params: ExactParams,
    assumed: Assumptions,
    achieved: Bool[np.ndarray, "state goal"] | None = None,
    images: Images | None = None,
) -> Problem:
    """Everything that the sweep needs, from the graph and the parameters.

    Args:
        world: The world.
        graph: Its graph.
        params: Theory and solver parameters.
        assumed: Assumptions beyond the parameters.
        achieved: The goals that each state achieves, where that is known already.
        images: The images that transitions lead to, where the graph is a reduced one.

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
        theory=make_theory(params.theory),
        habit=assumed.habit_prior,
        prior=assumed.human_prior or build_prior(params.human_prior, world),
        gamma_h=params.theory.gamma_h,
        horizon=world.spec.horizon,
        workers=params.compute.workers,
        places=goal_places(world.spec),
        images=images,
    )


def build_prior(reference: HumanPriorRef | None, world: WorldModel) -> HumanPrior | None:
    """The human prior that a config names, if it names one."""
    return None if reference is None else build(reference, world)


def make_game(
    graph: StateGraph, achieved: Bool[np.ndarray, "state goal"], theory: CompleteTheory
) -> Game:
    """The game as the kernels read it; ``achieved`` has the goals of ``spec.goals``."""
    spec = graph.spec
    joint = np.arange(spec.num_joint_actions)
    actions = {
        agent: joint // spec.strides[agent] % spec.num_actions[agent]
        for agent in range(len(spec.agents))
    }
    profile, profiles = _mixed(actions, spec.humans, spec)
    robot, robots = _mixed(actions, spec.robots, spec)
    listed = np.arange(profiles)
    action, strides = np.zeros((len(spec.humans), profiles), np.uint32), 1
    for h, human in enumerate(spec.humans):
        action[h] = listed // strides % spec.num_actions[human]
        strides *= spec.num_actions[human]
    others = np.zeros_like(action)
    for h in range(len(spec.humans)):
        stride = 1
        for k, other in enumerate(spec.humans):
            if k != h:
                others[h] += action[k] * stride
                stride *= spec.num_actions[other]
    lengths = [len(spec.goals_of(human)) for human in spec.humans]
    begins = np.cumsum([0] + [length + -length % LANES for length in lengths])
    weight = np.array([goal.weight for goal in spec.goals], np.float64)
    rho_r = -math.log(theory.gamma_r)
    accrual = [reward_weight(rho_r, float(d), theory.accrual) for d in graph.duration]
    return Game(
        offsets=graph.offsets,
        successor=graph.successor,
        code=graph.code,
        prob=graph.prob,
        discounted_h=graph.prob * theory.gamma_h**graph.duration,
        discounted_r=graph.prob * theory.gamma_r**graph.duration,
        accrued=graph.prob * np.array(accrual, np.float64),
        achieved=padded(achieved.astype(np.uint8), spec),
        is_plain=plain_states(graph),
        profile=profile,
        robot=robot,
        action=action,
        having=np.argsort(action, axis=1, kind="stable").astype(np.int32).ravel(),
        others=others,
        profile_joint=np.flatnonzero(robot == 0)[np.argsort(profile[robot == 0])].astype(np.int32),
        robot_joint=np.flatnonzero(profile == 0)[np.argsort(robot[profile == 0])].astype(np.int32),
        num_actions=np.array([spec.num_actions[human] for human in spec.humans], np.int64),
        together=np.array([profiles // spec.num_actions[human] for human in spec.humans], np.int64),
        first_goal=begins,
        last_goal=begins[:-1] + np.array(lengths),
        weight=padded(weight, spec),
        num_joint=len(joint),
        num_profiles=profiles,
        num_robot_actions=robots,
    )


def plain_states(graph: StateGraph) -> NDArray[np.uint8]:
    """Flags of states where every joint action has one successor, one unit of time away."""
    joint = graph.spec.num_joint_actions
    is_plain = np.zeros(graph.num_expanded, np.uint8)
    if (graph.duration != 1).any():
        return is_plain
    for first in range(0, graph.num_expanded, STATES_AT_ONCE):
        last = min(first + STATES_AT_ONCE, graph.num_expanded)
        counts = np.diff(graph.offsets[first * joint : last * joint + 1])
        is_plain[first:last] = (counts.reshape(-1, joint) == 1).all(axis=1)
    return is_plain


def _mixed(
    actions: Mapping[int, NDArray[np.int64]], agents: Sequence[int], spec: WorldSpec
) -> tuple[Indices, int]:
    """The index of some agents' joint action in each joint action, and how many there are."""
    index, stride = np.zeros(spec.num_joint_actions, np.int64), 1
    for agent in agents:
        index += actions[agent] * stride
        stride *= spec.num_actions[agent]
    return index.astype(np.uint32), stride


def make_theory(theory: CompleteTheory) -> Theory:
    """The symbols of Phase 2 as the kernels read them."""
    return Theory(
        beta_r=theory.beta_r,
        zeta=theory.zeta,
        xi=theory.xi,
        eta=theory.eta,
        terminal_value=theory.terminal_value,
        is_weighted=theory.x_agg == "weighted",
        is_mean=theory.u_agg == "mean",
    )


def make_humans(
    world: WorldModel, graph: StateGraph, game: Game, params: ExactParams, assumed: Assumptions
) -> Humans:
    """The assumptions of Phase 1 as the kernels read them.

    Raises:
        SolveError: if an assumption has the wrong shape or impossible numbers.
    """
    spec = graph.spec
    goals, actions = len(spec.goals), int(game.num_actions.max())
    beta = np.full((1, goals), float(params.theory.beta_h))
    if assumed.beta_h is not None:
        beta = answers(graph, assumed.beta_h, (goals,), "beta_h")
        if not (beta >= 0).all():
            raise SolveError("beta_h must be at least 0 for every state and goal")
    nu = np.full((1, goals), params.theory.nu)
    if assumed.nu is not None:
        nu = answers(graph, assumed.nu, (goals,), "nu")
        if not ((nu >= 0) & (nu <= 1)).all():
            raise SolveError("nu must lie in [0, 1] for every state and goal")
    habit = np.zeros((1, goals, actions))
    if nu.any() and assumed.habit_prior is None:
        habit_policy = assumed.habit or (lambda states: uniform_policy(world, states))

        def habitual(states: Int[Tensor, "state word"]) -> Float[Tensor, "state goal action"]:
            return checked_human_policy(world, states, habit_policy(states), "habit")

        habit = answers(graph, habitual, (goals, actions), "habit")
    elif assumed.habit is not None and not nu.any():
        raise SolveError("habit has no effect while nu is 0; set nu > 0 or leave habit out")
    belief = np.zeros((1, 1, 1, 0))
    believed = assumed.believed_others or belief_table(params)
    if believed is not None:
        belief = believe(graph, game, believed, params.compute.workers)
        refuse_impossible_beliefs(world, graph, belief)
    optimistic = params.theory.robot_model == "optimistic"
    goals_by_human = (padded(beta, spec), padded(nu, spec))
    habit = padded(habit.transpose(0, 2, 1), spec)
    return assumed_humans(*goals_by_human, habit, belief, is_optimistic=optimistic)


def assumed_humans(
    beta: Floats, nu: Floats, habit: Floats, belief: Floats, *, is_optimistic: bool
) -> Humans:
    """The assumptions of Phase 1 from their arrays; see ``game.Humans`` for the axes."""
    has_habit, has_greedy = bool((nu > 0).any()), bool(np.isinf(beta).any())
    return Humans(beta, nu, habit, belief, is_optimistic, has_habit, has_greedy)
