"""Attainment of goals: how often and how soon each human reaches each goal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.types import WorldSpec
from empo_learning.evaluation.episodes import EpisodeSampler
from empo_worlds.queries import is_terminal
from empo_worlds.roles import check_humans


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """Attainment of one goal by one human: frequency and time.

    Attributes:
        human: Agent index of the human.
        agent: Its name.
        goal: Position on the ``goal`` axis.
        name: The goal's name.
        weight: Its weight.
        reached: Share of the episodes in which it was reached after the start.
        standard_error: Of that share.
        mean_time: Mean number of steps that it took, where it was reached; None if never.
        mean_time_standard_error: Of that mean; None where it was reached less than twice.
    """

    human: int
    agent: str
    goal: int
    name: str
    weight: float
    reached: float
    standard_error: float
    mean_time: float | None
    mean_time_standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation.

    Attributes:
        episodes: Episodes per goal.
        seed: What they were drawn with.
        goals: One entry per goal that was pursued, in the order of ``spec.goals``.
        mean_length: Mean number of steps of all episodes.
        mean_length_standard_error: Of that mean.
        cut: Share of the episodes that were cut before they had ended.
    """

    episodes: int
    seed: int
    goals: tuple[Attainment, ...]
    mean_length: float
    mean_length_standard_error: float
    cut: float


def evaluate(sampler: EpisodeSampler, *, episodes: int, seed: int) -> Evaluation:
    """Attainment of each goal by each human.

    Args:
        sampler: Who acts where.
        episodes: Episodes per goal, at least 1.
        seed: Decides everything that is random.

    Raises:
        SolveError: if an agent has no way to act, or a policy makes no sense.
    """
    check_humans(sampler.spec)
    generator = torch.Generator().manual_seed(seed)
    goals = sampler.begins.goals(sampler.spec)
    goal_index = goals.repeat_interleave(episodes)
    reached, length = torch.full(goal_index.shape, -1), torch.zeros_like(goal_index)
    cut = torch.zeros(goal_index.shape, dtype=torch.bool)
    for step in sampler.play(goal_index, torch.arange(episodes).repeat(len(goals)), generator):
        number = step.episode
        achieved = sampler.world.achieved(step.states).gather(1, goal_index[number, None])[:, 0]
        # As in V_h^e: a goal counts when it is arrived at, so not at the start.
        is_first = achieved & (reached[number] < 0) & (step.played > 0)
        reached[number[is_first]] = step.played
        length[number] = step.played
        if step.time == sampler.last_time(step.time - step.played) != sampler.spec.horizon:
            cut[number] = ~is_terminal(sampler.world, step.states)
    times = reached.view(-1, episodes)
    mean_length, length_error = _mean(length)
    assert mean_length is not None
    return Evaluation(
        episodes=episodes,
        seed=seed,
        goals=tuple(
            _attainment(sampler.spec, goal, row)
            for goal, row in zip(goals.tolist(), times, strict=True)
        ),
        mean_length=mean_length,
        mean_length_standard_error=length_error or 0.0,
        cut=float(cut.double().mean()),
    )


def _attainment(spec: WorldSpec, position: int, reached: Int[Tensor, " episode"]) -> Attainment:
    """Attainment from the steps at which one goal was reached (-1: never)."""
    goal = spec.goals[position]
    share = float((reached >= 0).double().mean())
    mean_time, time_error = _mean(reached[reached >= 0])
    return Attainment(
        human=goal.human,
        agent=spec.agents[goal.human].name,
        goal=position,
        name=goal.name,
        weight=goal.weight,
        reached=share,
        standard_error=math.sqrt(share * (1 - share) / len(reached)),
        mean_time=mean_time,
        mean_time_standard_error=time_error,
    )


def _mean(values: Int[Tensor, " episode"]) -> tuple[float | None, float | None]:
    """Their mean and its standard error, each None where there are too few."""
    count = len(values)
    mean = float(values.double().mean()) if count else None
    return mean, float(values.double().std() / math.sqrt(count)) if count > 1 else None
