"""Transitions of states under everybody's policies, as the world has them, condensed by human."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from empo_bounds.kernels import Batch, Condensed, Scratch, condense
from empo_bounds.question import Question
from empo_core.types import Expansion
from empo_worlds.contract import expansion_of, successors_of
from empo_worlds.samples import joint_actions, part_index

SHARE_OF_ALL = 0.5
"""Share of all joint actions from which on a world is asked about all of them, where that pays."""

Number = Callable[
    [Shaped[np.ndarray, "outcome word"], Float64[np.ndarray, " outcome"] | None],
    Int32[np.ndarray, " outcome"],
]
"""Numbers landings, given their states and durations; None: those are 1."""


@dataclass(frozen=True)
class Acting:
    """Everybody's policies in some states.

    Attributes:
        robot: The robots' joint policy.
        humans: Each human's policies for its goals.
        marginal: Each human's policy averaged over its goals.
    """

    robot: Float64[np.ndarray, "state robot_action"]
    humans: Sequence[Float64[np.ndarray, "state _goal action"]]
    marginal: Float64[np.ndarray, "human state action"]


class Transitions:
    """Asks a world about the joint actions that matter, and sums up what they lead to.

    Attributes:
        asked_each: Joint actions that a state was asked about, on average, the last time.
    """

    def __init__(self, question: Question) -> None:
        spec = question.spec
        self._question = question
        self._actions = joint_actions(spec).numpy()
        self._joint_robot = part_index(spec, spec.robots, self._actions)
        self._joint_action = self._actions[:, list(spec.humans)].T.copy()
        self._scratch = Scratch(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 0, 0)))
        self.asked_each = float(len(self._actions))

    def of(
        self, rows: Shaped[np.ndarray, "state word"], acting: Acting, number: Number
    ) -> Condensed:
        """The transitions of some states under policies there.

        Args:
            rows: The states.
            acting: The policies.
            number: Is asked for the numbers of landings.

        Raises:
            BrokenWorldError: if the world breaks its contract.
        """
        is_possible = self._possible(acting)
        self.asked_each = max(1.0, float(is_possible.sum(1).mean()))
        successors, is_all = self._ask(rows, is_possible)
        first = np.concatenate([[0], is_possible.sum(1).cumsum()]).astype(np.int64)
        offsets, index = _chosen_items(successors, is_all, is_possible)
        duration = None if successors.duration is None else successors.duration.double().numpy()
        batch = Batch(
            first,
            np.nonzero(is_possible)[1],
            offsets,
            index,
            successors.prob.double().numpy(),
            number(successors.states.numpy(), duration),
            acting.robot,
            acting.marginal,
            self._joint_robot,
            self._joint_action,
        )
        return self._condense(batch)

    def _possible(self, acting: Acting) -> Bool[np.ndarray, "state joint"]:
        """Joint actions that matter: all but one human act on average, that one for any goal."""
        likely = [
            chance[:, actions] > 0
            for chance, actions in zip(acting.marginal, self._joint_action, strict=True)
        ]
        possible = np.zeros((len(acting.robot), len(self._joint_robot)), np.bool_)
        for human, policy in enumerate(acting.humans):
            acts: Bool[np.ndarray, "state action"] = np.any(policy > 0, axis=1)
            mine = acts[:, self._joint_action[human]]
            for other, chance in enumerate(likely):
                if other != human:
                    mine = mine & chance
            possible |= mine
        return possible & (acting.robot[:, self._joint_robot] > 0)

    def _ask(
        self, rows: Shaped[np.ndarray, "state word"], is_possible: Bool[np.ndarray, "state joint"]
    ) -> tuple[Expansion, bool]:
        """Successors under the joint actions; True where the answer is about all of them."""
        world, states = self._question.world, torch.from_numpy(rows)
        if is_possible.mean() >= SHARE_OF_ALL:
            return expansion_of(world, states), True
        state, joint = np.nonzero(is_possible)
        actions = torch.from_numpy(self._actions[joint])
        successors = successors_of(world, states[torch.from_numpy(state)], actions)
        return Expansion.of(successors), False

    def _condense(self, batch: Batch) -> Condensed:
        humans, pairs = len(self._joint_action), len(batch.robot)
        landings, actions = int(batch.landing.max(initial=0)) + 1, self._question.num_actions
        pair_offsets = batch.offsets[batch.first]
        slots = int(np.diff(pair_offsets).max(initial=1))
        if len(self._scratch.place) < landings or self._scratch.dense.shape[2] < slots:
            self._scratch = Scratch(
                np.full(2 * landings, -1, np.int32),
                np.zeros(2 * slots, np.int32),
                np.zeros((humans, actions, 2 * slots)),
            )
        room = int(pair_offsets[-1])
        out = Condensed(
            np.zeros((humans, pairs * actions + 1), np.int64),
            np.zeros((humans, room), np.int32),
            np.zeros((humans, room)),
            np.zeros(pairs, np.int64),
        )
        condense(batch, out, self._scratch)
        return out


def _chosen_items(
    successors: Expansion, is_all: bool, is_chosen: Bool[np.ndarray, "state joint"]
) -> tuple[Int64[np.ndarray, " offset"], Int64[np.ndarray, " item"]]:
    """Offsets and outcomes of the items of the joint actions that were asked about."""
    offsets, index = successors.offsets.long().numpy(), successors.index.long().numpy()
    if not is_all or is_chosen.all():
        return offsets, index
    chosen = np.flatnonzero(is_chosen)
    counts = np.diff(offsets)[chosen]
    chosen_offsets = np.concatenate([[0], counts.cumsum()])
    items = np.arange(chosen_offsets[-1]) + np.repeat(offsets[chosen] - chosen_offsets[:-1], counts)
    return chosen_offsets, index[items]
