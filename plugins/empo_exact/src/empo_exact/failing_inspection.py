"""Inspections of robots that may fail: states where they work, then those where they have failed.

Failing is a part of the game there, so that whoever reads an inspection needs no other equations: a
transition leads to a state of either layer with its chance, and failed robots have one action.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64, Integer

from empo_core.types import WorldSpec
from empo_exact.defunct import joint_actions
from empo_exact.game import Floats
from empo_theory.inspection import NOT_KEPT, ByTime, Inspection, all_times


def joined(
    working: Inspection, failed: Inspection, fails: Float64[np.ndarray, " code"], total: int
) -> Inspection:
    """Both layers as one game.

    Args:
        working: The states where robots work.
        failed: The same states where they have failed, in the same order.
        fails: The chance that robots fail during a transition, by its code.
        total: How many states the run has.
    """
    states, codes, spec = len(working.rows), len(fails), working.spec
    null = {r: spec.agents[r].actions.index(failed.spec.agents[r].actions[0]) for r in spec.robots}
    joint = joint_actions(spec, null)
    pair, pair_failed = _pairs(working), _pairs(failed)
    place, chosen = np.divmod(pair_failed, len(joint))
    pairs = np.concatenate([pair, pair, (states + place) * spec.num_joint_actions + joint[chosen]])
    successor = np.concatenate(
        [
            working.successor,
            _among_failed(working.successor, states),
            _among_failed(failed.successor, states),
        ]
    )
    code = np.concatenate([working.code, working.code, failed.code]).astype(np.int64)
    code += np.repeat([0, codes, 2 * codes], [len(pair), len(pair), len(pair_failed)])
    prob = np.concatenate([working.prob * (1.0 - fails), working.prob * fails, failed.prob])
    order = np.argsort(pairs, kind="stable")
    order = order[prob[code[order]] > 0]
    count = np.bincount(pairs[order], minlength=2 * states * spec.num_joint_actions)
    v_r = all_times(failed.v_r)
    if spec.horizon is not None and working.first_time == 0:
        v_r[0] = np.nan  # Robots work when an episode begins.
    return replace(
        working,
        rows=np.concatenate([working.rows, failed.rows]),
        number=np.concatenate([working.number, failed.number + total]),
        total=2 * total,
        first_failed=total,
        offsets=np.concatenate([[0], np.cumsum(count)]),
        successor=successor[order],
        code=code[order],
        prob=prob,
        duration=np.tile(working.duration, 3),
        achieved=np.concatenate([working.achieved, failed.achieved]),
        v_r=np.concatenate([all_times(working.v_r), v_r], 1),
        v_e=np.concatenate([all_times(working.v_e), all_times(failed.v_e)], 1),
        v_m=_beside(working.v_m, failed.v_m),
        pi_h=_beside(working.pi_h, failed.pi_h),
        q_r=_beside(working.q_r, _of_all_actions(failed.q_r, spec, null)),
        norm=_beside(working.norm, failed.norm),
        closed_loop=None,
    )


def _pairs(inspection: Inspection) -> Int64[np.ndarray, " transition"]:
    """The pair of state and joint action of each transition."""
    count = np.diff(inspection.offsets)
    pairs: Int64[np.ndarray, " transition"] = np.repeat(np.arange(len(count)), count)
    return pairs


def _among_failed(
    successor: Integer[np.ndarray, " transition"], states: int
) -> Int64[np.ndarray, " transition"]:
    """The same successors in the layer of failed robots."""
    places = successor.astype(np.int64)
    failed: Int64[np.ndarray, " transition"] = np.where(places == NOT_KEPT, places, places + states)
    return failed


def _of_all_actions(by_time: ByTime | None, spec: WorldSpec, null: dict[int, int]) -> Floats | None:
    """Q_r where all joint robot actions but one are not available."""
    if by_time is None:
        return None
    q_r = all_times(by_time)
    robots = spec.robots[::-1]  # The first counts fastest.
    reply = np.ravel_multi_index(
        [null[robot] for robot in robots], [spec.num_actions[robot] for robot in robots]
    )
    values = np.full((*q_r.shape[:2], spec.num_robot_actions), np.nan)
    values[:, :, reply] = q_r[:, :, 0]
    return values


def _beside(working: ByTime | None, failed: ByTime | None) -> Floats | None:
    """Values of the states of both layers."""
    if working is None or failed is None:
        return None
    return np.concatenate([all_times(working), all_times(failed)], 1)
