"""Human policies that do not come from Phase 1: a prior's, a caller's, and the uniform one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import HumanPrior, WorldModel
from empo_exact.game import Floats, goal_order, padded
from empo_exact.graph import StateGraph
from empo_worlds.policy_checks import human_policy


def prior_policy(
    world: WorldModel,
    graph: StateGraph,
    prior: HumanPrior,
    states: Int[np.ndarray, " state"],
    steps_left: int,
    actions: int,
) -> Float64[np.ndarray, "state action padded_goal"]:
    """A prior's policy in some states, as the sweep has it; 0 where a state is terminal.

    The prior is asked about states that are not terminal only.

    Raises:
        SolveError: if the prior says what no human can do; see ``checked_human_policy``.
    """
    policy = np.zeros((len(states), actions, len(goal_order(graph.spec))))
    alive = np.flatnonzero(graph.alive[states])
    if len(alive):
        rows = torch.from_numpy(graph.states[states[alive]])
        numbers = human_policy(world, prior, rows, steps_left).numpy()
        numbers = numbers.transpose(0, 2, 1)[:, :actions]
        policy[alive[:, None], np.arange(numbers.shape[1])] = padded(numbers, graph.spec)
    return policy


def answers(
    graph: StateGraph, function: Callable[[Tensor], Tensor], shape: tuple[int, ...], name: str
) -> Floats:
    """A caller's function of the states that are not terminal; 0 at terminal ones [state ...]."""
    alive = np.flatnonzero(graph.alive[: graph.num_expanded])
    values = np.zeros((graph.num_expanded, *shape))
    rows = torch.from_numpy(graph.states[alive])
    values[alive] = _checked(function(rows), (len(alive), *shape), name)
    return values


def _checked(answer: object, shape: tuple[int, ...], name: str) -> Floats:
    if not isinstance(answer, Tensor):
        raise SolveError(f"{name} must return a tensor, not {type(answer).__name__}")
    if tuple(answer.shape) != shape:
        raise SolveError(f"{name} must return shape {list(shape)}, not {list(answer.shape)}")
    numbers: Floats = answer.detach().cpu().double().numpy()
    return numbers


def uniform_policy(
    world: WorldModel, states: Int[Tensor, "state word"]
) -> Float[Tensor, "state goal action"]:
    """Even probabilities over each goal's human's available actions; 0 at terminal states."""
    spec = world.spec
    actions = max(spec.num_actions[human] for human in spec.humans)
    available = world.available(states)[..., :actions].double()
    of_goal = available[:, [goal.human for goal in spec.goals]]
    return of_goal / of_goal.sum(-1, keepdim=True).clamp(min=1)
