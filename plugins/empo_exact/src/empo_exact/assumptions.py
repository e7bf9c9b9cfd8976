"""What is assumed about the humans, as callers say it and as the kernels of Phase 1 read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.config import HumanPriorRef
from empo_core.errors import SolveError
from empo_core.protocols import HumanPrior, WorldModel
from empo_exact.beliefs import Believed, belief_table, believe, refuse_impossible_beliefs
from empo_exact.game import Floats, Game, Humans, padded
from empo_exact.graph import StateGraph
from empo_exact.human_policies import answers, uniform_policy
from empo_exact.plugin import ExactParams
from empo_theory.parameters import HumanTheory
from empo_worlds.policy_checks import checked_human_policy

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


def build_prior(reference: HumanPriorRef | None, world: WorldModel) -> HumanPrior | None:
    """The human prior that a config names, if it names one."""
    return None if reference is None else build(reference, world)


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
    goals_by_human = (padded(beta, spec), padded(nu, spec))
    habit = padded(habit.transpose(0, 2, 1), spec)
    return assumed_humans(*goals_by_human, habit, belief, params.theory)


def assumed_humans(
    beta: Floats, nu: Floats, habit: Floats, belief: Floats, theory: HumanTheory
) -> Humans:
    """The assumptions of Phase 1 from their arrays; see ``game.Humans`` for the axes."""
    has_habit, has_greedy = bool((nu > 0).any()), bool(np.isinf(beta).any())
    return Humans(
        beta=beta,
        nu=nu,
        habit=habit,
        belief=belief,
        is_optimistic=theory.robot_model == "optimistic",
        is_even=theory.robot_model == "even",
        achieved_value=float(theory.counting == "presence"),
        has_habit=has_habit,
        has_greedy=has_greedy,
    )
