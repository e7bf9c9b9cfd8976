"""Robots that may fail for good: a layer of states in which they have, solved by itself.

Source: arXiv 2608.08240, appendix D. Within a transition of duration D working robots fail with the
chance 1 - (1 - rate)^D, after they have acted. From then on all of them take their null action.
Humans notice, so that the layer of failed robots is a game of its own, in which robots have one
action; its values enter those of the other layer by that chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from empo_core.errors import SolveError
from empo_core.types import WorldSpec
from empo_exact.game import make_game, make_moments
from empo_exact.graph import StateGraph
from empo_exact.plugin import Defunct
from empo_exact.problem import Problem, null_actions


def failed_problem(problem: Problem, defunct: Defunct) -> Problem:
    """The problem of the same states where robots have failed.

    Raises:
        ConfigError: if there is no robot, or one has no such action.
        SolveError: if the null action is not available in some state; the message shows it.
    """
    spec = problem.graph.spec
    chosen = null_actions(spec, defunct)
    graph = _restricted(problem.graph, chosen)
    missing = problem.graph.alive[: graph.num_expanded] & ~graph.alive[: graph.num_expanded]
    if missing.any():
        names = " + ".join(spec.agents[r].actions[a] for r, a in chosen.items())
        row = torch.from_numpy(graph.states[int(missing.argmax())].copy())
        raise SolveError(
            f"algorithm.params.defunct.null_action: {names!r} is not available in the state below, "
            "where failed robots could do nothing; name an action that always is. The state is:\n"
            f"{problem.world.describe(row)}"
        )
    game = make_game(graph, _achieved(problem), problem.symbols)
    return replace(
        problem,
        graph=graph,
        game=game,
        moments=make_moments(graph, problem.symbols) if problem.moments is not None else None,
        failing=np.zeros(0),
    )


def chances_to_fail(
    durations: Float64[np.ndarray, " duration"], rate: float
) -> Float64[np.ndarray, " duration"]:
    """Chances ``1 - (1 - rate)^D`` to fail, to the last digit where they are small."""
    with np.errstate(divide="ignore"):  # A rate of 1 has the logarithm of 0.
        chances: Float64[np.ndarray, " duration"] = -np.expm1(durations * np.log1p(-rate))
    return chances


def failing(problem: Problem, rate: float) -> Problem:
    """The problem of working robots that fail at a rate per unit of time."""
    graph = problem.graph
    durations, block = np.unique(graph.duration, return_inverse=True)
    successor = graph.successor.astype(np.int64) + block[graph.code] * graph.num_states
    game = problem.game._replace(
        successor=successor.astype(np.int32),
        achieved=np.tile(problem.game.achieved, (max(1, len(durations)), 1)),
    )
    chances = chances_to_fail(durations, rate)
    return replace(problem, game=game, failing=chances)


def _achieved(problem: Problem) -> Bool[np.ndarray, "state goal"]:
    return problem.game.achieved[: problem.graph.num_states, problem.places] > 0


def _restricted(graph: StateGraph, chosen: dict[int, int]) -> StateGraph:
    """The graph where some agents have one action each."""
    spec = graph.spec
    agents = tuple(
        replace(agent, actions=(agent.actions[chosen[i]],)) if i in chosen else agent
        for i, agent in enumerate(spec.agents)
    )
    joint = joint_actions(spec, chosen)
    begin = (
        graph.offsets[:-1].reshape(-1, spec.num_joint_actions)[:, joint].astype(np.int64).ravel()
    )
    end = graph.offsets[1:].reshape(-1, spec.num_joint_actions)[:, joint].astype(np.int64).ravel()
    length = end - begin
    offsets = np.concatenate([[0], np.cumsum(length)])
    items = np.repeat(begin - offsets[:-1], length) + np.arange(offsets[-1])
    return replace(
        graph,
        spec=replace(spec, agents=agents),
        offsets=offsets.astype(graph.offsets.dtype),
        successor=graph.successor[items],
        code=graph.code[items],
    )


def joint_actions(spec: WorldSpec, chosen: dict[int, int]) -> Int64[np.ndarray, " joint"]:
    """The joint actions in which some agents do what is chosen for them, ascending."""
    joint = np.arange(spec.num_joint_actions)
    is_kept = np.ones(len(joint), np.bool_)
    for agent, action in chosen.items():
        is_kept &= joint // spec.strides[agent] % spec.num_actions[agent] == action
    chosen_joint: Int64[np.ndarray, " joint"] = np.flatnonzero(is_kept)
    return chosen_joint
