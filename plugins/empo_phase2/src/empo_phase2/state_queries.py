"""States of a world as a learner stores them, ready to be asked about."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.protocols import HumanPrior, WorldModel
from empo_phase2.cached_prior import CachedPrior
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import goal_index_of
from empo_phase2.state_recorder import StateRecorder
from empo_phase2.successors import JointActionOrder, SuccessorQuery
from empo_worlds.ensemble import members_of


class StateEncoder:
    """Encodes states of a world as a learner stores them, with their successors if wanted.

    Attributes:
        world: The world whose states it encodes; of an ensemble, the first.
        goals: Its goals, by slot.
        has_successors: Whether it adds the successors of states.
    """

    def __init__(self, world: WorldModel, store: str, prior: HumanPrior | None) -> None:
        """Prepare for a world or an ensemble; without a prior, successors are left out."""
        self.world, self.goals = members_of(world)[0], goal_index_of(world)
        self.has_successors = prior is not None
        self._whole = world
        self._robot_actions = world.spec.num_robot_actions
        order = JointActionOrder(world.spec)
        self._recorder = StateRecorder(world, self.goals, order, store)
        self._successors = SuccessorQuery(world, order, all_profiles=True, model_based=True)
        self._prior = None if prior is None else CachedPrior(prior, world)

    def __call__(
        self, rows: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> tuple[States, Transitions]:
        """Encoded states, and one transition from each of them, in the same order.

        Args:
            rows: Non-terminal states of ``world``.
            steps_left: Remaining steps of each.

        Returns:
            Distinct states, and transitions whose goals and actions are placeholders (0): only
            sources, the humans' policies and successors are meaningful.
        """
        rows = self._whole_rows(rows)
        self._recorder.start()
        state, count = self._recorder.number(rows), len(rows)
        policy = torch.zeros(count, 0, 0)
        offsets = torch.zeros(count * self._robot_actions + 1, dtype=torch.int64)
        zeros = torch.zeros(count, len(self._whole.spec.humans), dtype=torch.int64)
        successor, prob = offsets[:0], torch.zeros(0)
        if self._prior is not None:
            policy = self._prior(rows, steps_left)
            successors = self._successors.to_record(rows, zeros)
            successor = self._recorder.number(successors.states)
            offsets, prob = successors.offsets, successors.prob.float()
        transitions = Transitions(
            state=state,
            steps_left=steps_left,
            human_policy=policy,
            acts_for=torch.zeros(count, len(self.goals), dtype=torch.bool),
            behaviour=torch.zeros(count, 0),
            action=torch.zeros_like(state),
            offsets=offsets,
            successor=successor,
            prob=prob,
        )
        return self._recorder.states(), transitions

    def stored(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state stored_word"]:
        """Rows of ``world`` as the learner stores them."""
        return self._recorder.stored(self._whole_rows(rows))

    def _whole_rows(self, rows: Tensor) -> Tensor:
        """Rows of the first world as rows of the ensemble, where there is one."""
        if self._whole is self.world:
            return rows
        whole = torch.zeros(
            len(rows), self._whole.spec.state_words, dtype=self._whole.spec.state_dtype
        )
        whole[:, 1 : 1 + rows.shape[1]] = rows
        return whole
