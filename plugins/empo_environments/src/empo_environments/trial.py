"""One episode with random actions, to find what is wrong with an environment before a run."""

from __future__ import annotations

import itertools
import time

import numpy as np
from jaxtyping import Bool, Float

from empo_core.best_effort import best_effort
from empo_core.protocols import Environment
from empo_core.protocols.environments import Action, EnvSpec, TimeStep, VectorLayout
from empo_learning.observation_bounds import ObservationBounds

MOST_STEPS = 1000
"""Steps of the episode."""
MOST_S = 20.0
"""Seconds after which it is cut off."""
WIDE = 1.0
"""Numbers of actions without bounds are drawn from minus this to this."""


def play_trial(environment: Environment, seed: int = 0) -> str:
    """Play one episode at random; everything that a run checks in each step is checked.

    Args:
        environment: Whose copy is played.
        seed: Of the episode and its actions.

    Returns:
        What came of it, in words.

    Raises:
        ConfigError: if the environment does not fit.
        CollectError: if the environment fails, or returns what a run cannot learn from; the
            message says what it returned, in which step.
    """
    generator, limit = np.random.default_rng(seed), time.monotonic() + MOST_S
    vector = environment.vector(1, VectorLayout())
    try:
        vector.start(seed)
        time_step = vector.recv()
        returns: Float[np.ndarray, " agent"] = np.zeros(vector.spec.num_agents)
        over: Bool[np.ndarray, " agent"] = ~time_step.acts
        bounds, steps = ObservationBounds(vector.spec.observations), 0
        outside = _outside(bounds, time_step, steps)
        while steps < MOST_STEPS and not over.all() and time.monotonic() < limit:
            acted = time_step.acts & ~over
            vector.send(time_step.block, random_action(vector.spec, time_step, generator))
            time_step = vector.recv()
            returns[acted] += time_step.reward[acted]
            over |= time_step.terminated | time_step.truncated
            steps += 1
            outside = outside or _outside(bounds, time_step, steps)
        end = "ended" if over.all() else "cut off here"
        total = ", ".join(f"{number:.4g}" for number in returns)
        return f"{end} after {steps:,} random steps, return {total}{outside}"
    finally:
        with best_effort(f"closing a copy of {environment.name}"):
            vector.close()


def _outside(bounds: ObservationBounds, time_step: TimeStep, step: int) -> str:
    """Which words of observations leave their space, behind a semicolon; else nothing."""
    rows = [*time_step.observation[time_step.acts], *time_step.final_observation]
    outside = next(filter(None, map(bounds.outside, rows)), "")
    where = f"; observations leave the bounds of their space in step {step}: "
    return where + outside if outside else ""


def random_action(spec: EnvSpec, time_step: TimeStep, generator: np.random.Generator) -> Action:
    """Actions drawn evenly from what each agent of a time step may do.

    Args:
        spec: Of the environments.
        time_step: What they have come to.
        generator: Where actions are drawn from.
    """
    actions, agents = spec.actions, len(time_step.acts)
    if not actions.is_discrete:
        bounds = ((actions.low, -WIDE), (actions.high, WIDE))
        low, high = (np.where(np.abs(numbers) < 1e9, numbers, usual) for numbers, usual in bounds)
        drawn = generator.uniform(low, np.maximum(low, high), (agents, actions.size))
        return drawn.astype(np.float32)
    firsts = np.cumsum((0, *actions.choices))
    chances = generator.random((agents, firsts[-1]))
    if time_step.mask is not None:
        chances[~time_step.mask] = -1.0
    parts = [chances[:, first:last] for first, last in itertools.pairwise(firsts)]
    return np.stack([part.argmax(1) for part in parts], 1)
