"""From a world, its graph and the parameters to the arrays that the sweep reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.config import HumanPriorRef
from empo_core.equations import reward_weight
from empo_core.errors import SolveError
from empo_core.experiment import build
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import WorldSpec
from empo_core.worlds.roles import check_roles
from empo_exact.beliefs import Believed, belief_table, believe
from empo_exact.graph import StateGraph
from empo_exact.kernel_data import LANES, Floats, Game, Humans, Indices, Theory
from empo_exact.plugin import ExactParams, PriorParams

OfGoals = Callable[[Int[Tensor, "state word"]], Float[Tensor, "state goal"]]
OfActions = Callable[[Int[Tensor, "state word"]], Float[Tensor, "state goal action"]]


@dataclass(frozen=True)
class Assumptions:
    """What a Python caller may assume about the humans beyond the scalar parameters.

    Attributes:
        beta_h: Rationality per goal and state; None takes the parameter.
        nu: Weight of the habitual policy per goal and state; None takes the parameter.
        habit: The habitual policy; None takes the parameter.
        believed_others: Beliefs about the other humans; None means independent and uniform
            over their available actions.
        habit_prior: The habitual policy as a human prior, where ``habit`` is None.
    """

    beta_h: OfGoals | None = None
    nu: OfGoals | None = None
    habit: OfActions | None = None
    believed_others: Believed | None = None
    habit_prior: HumanPrior | None = None


def check_humans(spec: WorldSpec) -> None:
    """Refuse worlds for which the problem makes no sense.

    Raises:
        SolveError: There is no human, a human has no goals, or an agent has no role.
    """
    if not spec.humans:
        roles = ", ".join(f"{agent.name}: {agent.role}" for agent in spec.agents)
        raise SolveError(
            f"{spec.name!r} has no human, so there is no human power to maximise ({roles}). "
            "Give an agent the role 'human' in the world."
        )
    check_roles(spec)
    for human in spec.humans:
        if not spec.goals_of(human):
            raise SolveError(
                f"{spec.agents[human].name} (agent {human}) of {spec.name!r} has no goals, so its "
                "power is undefined. Add goals to the world."
            )


def goal_order(spec: WorldSpec) -> NDArray[np.int64]:
    """Position on the world's goal axis of each goal of the sweep; -1 for padding."""
    order: list[int] = []
    for human in spec.humans:
        goals = list(spec.goals_of(human))
        order += goals + [-1] * (-len(goals) % LANES)
    return np.array(order, np.int64)


def goal_places(spec: WorldSpec) -> NDArray[np.int64]:
    """Where the sweep has each goal of the world's goal axis."""
    order = goal_order(spec)
    place = np.zeros(len(spec.goals), np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    return place


def padded(values: NDArray[Any], spec: WorldSpec) -> NDArray[Any]:
    """Values on the world's goal axis (the last one) as the sweep wants them."""
    order = goal_order(spec)
    found = values[..., order].copy()
    found[..., order < 0] = 0
    return np.ascontiguousarray(found)


def make_game(
    graph: StateGraph, achieved: NDArray[np.bool_], gamma_h: float, params: ExactParams
) -> Game:
    """The game as the sweep reads it.

    Args:
        graph: The state graph.
        achieved: Whether each state achieves each goal of ``spec.goals`` [state goal].
        gamma_h: The humans' discount.
        params: The robot's parameters.
    """
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
    rho_r = -math.log(params.theory.gamma_r)
    accrual = [reward_weight(rho_r, float(d), params.theory.accrual) for d in graph.duration]
    return Game(
        offsets=graph.offsets,
        successor=graph.successor,
        code=graph.code,
        prob=graph.prob,
        discounted_h=graph.prob * gamma_h**graph.duration,
        discounted_r=graph.prob * params.theory.gamma_r**graph.duration,
        accrued=graph.prob * np.array(accrual, np.float64),
        achieved=padded(achieved.astype(np.uint8), spec),
        profile=profile,
        robot=robot,
        action=action,
        having=np.argsort(action, axis=1, kind="stable").astype(np.int32).ravel(),
        others=others,
        joint=np.argsort(profile.astype(np.int64) * robots + robot).astype(np.uint32),
        num_actions=np.array([spec.num_actions[human] for human in spec.humans], np.int64),
        together=np.array([profiles // spec.num_actions[human] for human in spec.humans], np.int64),
        first_goal=begins,
        last_goal=begins[:-1] + np.array(lengths),
        weight=padded(weight, spec),
        shape=np.array([len(joint), profiles, robots], np.int64),
    )


def _mixed(
    actions: Mapping[int, NDArray[np.int64]], agents: Sequence[int], spec: WorldSpec
) -> tuple[Indices, int]:
    """The index of some agents' joint action in each joint action, and how many there are."""
    index, stride = np.zeros(spec.num_joint_actions, np.int64), 1
    for agent in agents:
        index += actions[agent] * stride
        stride *= spec.num_actions[agent]
    return index.astype(np.uint32), stride


def make_theory(params: ExactParams) -> Theory:
    """The parameters of Phase 2 as the sweep reads them."""
    given = params.theory
    numbers = [given.beta_r, given.zeta, given.xi, given.eta, given.terminal_value]
    flags = [given.x_agg == "weighted", given.u_agg == "mean"]
    return Theory(np.array(numbers, np.float64), np.array(flags))


def make_humans(
    world: WorldModel,
    graph: StateGraph,
    game: Game,
    params: PriorParams,
    assumed: Assumptions,
    workers: int = 1,
) -> Humans:
    """What Phase 1 assumes, as the sweep reads it.

    Raises:
        SolveError: An assumption has the wrong shape or impossible numbers.
    """
    spec = graph.spec
    goals, actions = len(spec.goals), int(game.num_actions.max())
    beta = np.full((1, goals), float(params.theory.beta_h))
    if assumed.beta_h is not None:
        beta = _ask(graph, assumed.beta_h, (goals,), "beta_h")
        if not (beta >= 0).all():
            raise SolveError("beta_h must be at least 0 for every state and goal")
    nu = np.full((1, goals), params.theory.nu)
    if assumed.nu is not None:
        nu = _ask(graph, assumed.nu, (goals,), "nu")
        if not ((nu >= 0) & (nu <= 1)).all():
            raise SolveError("nu must lie in [0, 1] for every state and goal")
    habit = np.zeros((1, goals, actions))
    if nu.any() and assumed.habit_prior is None:
        asked = assumed.habit or (lambda states: uniform_policy(world, states))
        habit = _ask(graph, asked, (goals, actions), "habit")
        _check_policy(habit[graph.alive[: len(habit)]], "habit")
    elif assumed.habit is not None and not nu.any():
        raise SolveError("habit has no effect while nu is 0; set nu > 0 or leave habit out")
    belief = np.zeros((1, 1, 1, 0))
    believed = assumed.believed_others or belief_table(params)
    if believed is not None:
        belief = believe(graph, game, believed, workers)
    return Humans(
        beta=padded(beta, spec),
        nu=padded(nu, spec),
        habit=padded(habit.transpose(0, 2, 1), spec),
        belief=belief,
        flag=np.array([params.theory.robot_model == "optimistic", nu.any(), np.isinf(beta).any()]),
    )


def ask_prior(
    graph: StateGraph, prior: HumanPrior, states: NDArray[np.integer], steps_left: int, actions: int
) -> Floats:
    """A prior's policy in some states, as the sweep has it; 0 where a state is terminal.

    Args:
        graph: The state graph.
        prior: The prior; it is asked about states that are not terminal only.
        states: State numbers.
        steps_left: Remaining steps.
        actions: Length of the action axis.

    Returns:
        Action probabilities [state action goal].
    """
    policy = np.zeros((len(states), actions, len(goal_order(graph.spec))))
    alive = np.flatnonzero(graph.alive[states])
    if len(alive):
        rows = torch.from_numpy(graph.states[states[alive]])
        found = prior.policy(rows, steps_left)
        shape = (len(alive), len(graph.spec.goals), found.shape[-1])
        numbers = _checked(found, shape, "the human prior")
        _check_policy(numbers, "the human prior")
        numbers = numbers.transpose(0, 2, 1)[:, :actions]
        policy[alive[:, None], np.arange(numbers.shape[1])] = padded(numbers, graph.spec)
    return policy


def _ask(
    graph: StateGraph, ask: Callable[[Tensor], Tensor], shape: tuple[int, ...], name: str
) -> Floats:
    """What a callable says about the states that are not terminal; 0 at terminal ones."""
    alive = np.flatnonzero(graph.alive[: graph.num_expanded])
    answers = np.zeros((graph.num_expanded, *shape))
    rows = torch.from_numpy(graph.states[alive])
    answers[alive] = _checked(ask(rows), (len(alive), *shape), name)
    return answers


SINGLE = 1e-5
"""How far from 1 probabilities may sum: a policy may have been worked out in single precision."""


def _check_policy(policy: Floats, name: str) -> None:
    """Refuse what are no probabilities over actions, the last axis."""
    if not ((policy >= 0).all() and (np.abs(policy.sum(-1) - 1) <= SINGLE).all()):
        raise SolveError(
            f"{name} must return probabilities that are at least 0 and sum to 1 over actions"
        )


def _checked(found: Any, shape: tuple[int, ...], name: str) -> Floats:
    if not isinstance(found, Tensor):
        raise SolveError(f"{name} must return a tensor, not {type(found).__name__}")
    if tuple(found.shape) != shape:
        raise SolveError(f"{name} must return shape {list(shape)}, not {list(found.shape)}")
    numbers: Floats = found.detach().cpu().double().numpy()
    return numbers


def build_prior(reference: HumanPriorRef | None, world: WorldModel) -> HumanPrior | None:
    """The human prior that a config names, if it names one."""
    return None if reference is None else build(reference, world)


def uniform_policy(
    world: WorldModel, states: Int[Tensor, "state word"]
) -> Float[Tensor, "state goal action"]:
    """Even probabilities over each goal's human's available actions; 0 at terminal states."""
    spec = world.spec
    actions = max(spec.num_actions[human] for human in spec.humans)
    available = world.available(states)[..., :actions].double()
    of_goal = available[:, [goal.human for goal in spec.goals]]
    return of_goal / of_goal.sum(-1, keepdim=True).clamp(min=1)
