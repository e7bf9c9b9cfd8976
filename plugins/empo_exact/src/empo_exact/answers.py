"""Fingerprints of what human priors answer, by which a resumed solve notices another prior.

A prior is an object of the caller's, which no name identifies. What it answers in all states that
are solved does, and a solve asks for that anyway.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int32, UInt64

from empo_exact.human_policies import prior_policy
from empo_exact.problem import Problem

_MASK = (1 << 64) - 1


def fingerprint(
    policies: Float64[np.ndarray, "state action padded_goal"],
    states: Int32[np.ndarray, " state"],
    steps_left: int,
) -> int:
    """A sum over states of hashes of their policies, modulo 2^64: their order does not matter.

    Args:
        policies: The policies.
        states: Numbers of the states.
        steps_left: Steps until the end of the episode.
    """
    size = int(np.prod(policies.shape[1:]))
    words = np.ascontiguousarray(policies + 0.0).reshape(len(states), size).view(np.uint64)
    factors = _mixed(np.arange(1, words.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    place = _mixed(states.astype(np.uint64) + np.uint64(steps_left << 32))
    return int(_mixed(words @ factors + place).sum(dtype=np.uint64))


def combined(*fingerprints: int) -> int:
    """The fingerprint of several groups of states."""
    return sum(fingerprints) & _MASK


def habit_answers(problem: Problem, order: Int32[np.ndarray, " state"], steps_left: int) -> int:
    """The fingerprint of what a habit prior answers in some states; 0 where there is none."""
    if problem.habit is None or not problem.humans.has_habit:
        return 0
    return fingerprint(problem.humans_at(steps_left).habit[order], order, steps_left)


def answers(problem: Problem, order: Int32[np.ndarray, " state"], steps_left: int) -> int:
    """The fingerprint of what priors answer in some states: that of a sweep over them.

    The prior is asked in the same blocks as in a sweep, for networks may answer with other
    rounding in others.
    """
    digest = habit_answers(problem, order, steps_left)
    actions = int(problem.game.num_actions.max())
    for first in range(0, len(order) if problem.prior is not None else 0, problem.block):
        assert problem.prior is not None
        states = order[first : first + problem.block]
        policy = prior_policy(
            problem.world, problem.graph, problem.prior, states, steps_left, actions
        )
        digest = combined(digest, fingerprint(policy, states, steps_left))
    return digest


def _mixed(numbers: UInt64[np.ndarray, " number"]) -> UInt64[np.ndarray, " number"]:
    """A hash of each number (the finalizer of splitmix64)."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    final: UInt64[np.ndarray, " number"] = mixed ^ (mixed >> np.uint64(31))
    return final
