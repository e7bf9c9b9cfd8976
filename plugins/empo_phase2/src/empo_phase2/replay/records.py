"""Columns of fixed size of the transitions in a ring."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int, Int32, Int64
from torch import Tensor

from empo_core.trees import StateDict
from empo_phase2.experience import Transitions
from empo_phase2.replay.kernels import copy_records
from empo_phase2.replay.shape import ReplayShape
from empo_phase2.replay.storage import ArrayStorage

_STATE, _NEXT, _STEPS_LEFT, _ACTION, _HUMANS = range(5)


class TransitionRecords:
    """States, steps left, actions, policies and goals acted for of each position of a ring.

    Attributes:
        record: State id, next state id, steps left, robot action, humans' actions
            [position column].
        inserted: Training step at which each was added [position].
    """

    def __init__(self, storage: ArrayStorage, capacity: int, shape: ReplayShape) -> None:
        self._storage, self._humans = storage, shape.humans
        self.record = storage.zeros((capacity, _HUMANS + shape.humans), np.int32)
        self._policy = storage.zeros((capacity, shape.human_slots, shape.human_actions), np.float32)
        self._acts_for = storage.zeros((capacity, shape.slots), np.bool_)
        self._behaviour = storage.zeros((capacity, shape.behaviour_actions), np.float32)
        self.inserted = storage.zeros((capacity,), np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        parts = (self.record, self._policy, self._acts_for, self._behaviour, self.inserted)
        return sum(part.nbytes for part in parts)

    @property
    def policy_shape(self) -> tuple[int, ...]:
        """Shape of the humans' policies in a transition."""
        return self._policy.shape[1:]

    def encoded(
        self, new: Transitions, ids: Int32[np.ndarray, " distinct"]
    ) -> Int32[np.ndarray, "transition column"]:
        """Rows of ``record`` for new transitions, given the ids of their block's states."""
        record = np.empty((len(new), self.record.shape[1]), np.int32)
        record[:, _STATE] = ids[new.state.numpy()]
        record[:, _NEXT] = ids[new.next.numpy()]
        record[:, _STEPS_LEFT] = new.steps_left.numpy()
        record[:, _ACTION] = new.action.numpy()
        record[:, _HUMANS:] = new.human_action.numpy()
        return record

    def write(
        self,
        positions: Int64[np.ndarray, " transition"],
        record: Int32[np.ndarray, "transition column"],
        new: Transitions,
        training_step: int,
    ) -> None:
        """Store new transitions, of which ``encoded`` made ``record``."""
        self.record[positions] = record
        self._policy[positions] = new.human_policy.numpy()[..., : self._policy.shape[2]]
        self._acts_for[positions] = new.acts_for.numpy()
        self._behaviour[positions] = new.behaviour.numpy()
        self.inserted[positions] = training_step

    def read(
        self,
        positions: Int64[np.ndarray, " transition"],
        successors: tuple[
            Int[Tensor, " pair_plus_1"], Int[Tensor, " item"], Float[Tensor, " item"]
        ],
        device: torch.device,
    ) -> Transitions:
        """The transitions at some positions, given offsets, states and chances of successors."""
        send, room, count = self._storage.send, self._storage.room, len(positions)
        columns, columns_to_send = room((_HUMANS, count), np.int64)
        chosen, chosen_to_send = room((count, self._humans), np.int64)
        policy, policy_to_send = room((count, *self._policy.shape[1:]), np.float32)
        acts_for, acts_for_to_send = room((count, self._acts_for.shape[1]), np.bool_)
        behaviour, behaviour_to_send = room((count, self._behaviour.shape[1]), np.float32)
        copy_records(positions, self.record, self._policy, columns, chosen, policy)
        self._acts_for.take(positions, 0, out=acts_for, mode="clip")
        if self._behaviour.shape[1]:
            self._behaviour.take(positions, 0, out=behaviour, mode="clip")
        state, after, steps_left, action = send(columns_to_send, device).unbind()
        offsets, successor, prob = (send(part, device) for part in successors)
        return Transitions(
            state=state,
            steps_left=steps_left,
            human_policy=send(policy_to_send, device),
            acts_for=send(acts_for_to_send, device),
            human_action=send(chosen_to_send, device),
            behaviour=send(behaviour_to_send, device),
            action=action,
            next=after,
            offsets=offsets,
            successor=successor,
            prob=prob,
        )

    def states_at(self, positions: Int64[np.ndarray, " transition"]) -> Int32[np.ndarray, " state"]:
        """State and next state ids of some transitions, one after the other."""
        return self.record[positions, : _NEXT + 1].reshape(-1)

    def sources(
        self, positions: Int64[np.ndarray, " transition"]
    ) -> tuple[Int32[np.ndarray, " transition"], Int32[np.ndarray, " transition"]]:
        """State ids where some transitions start, and their steps left."""
        return self.record[positions, _STATE], self.record[positions, _STEPS_LEFT]

    def number_before(self, step: int, start: int, length: int) -> int:
        """Number of those added before a training step, of ``length`` from position ``start``."""
        # Numbers rise along the ring, which may be in two parts.
        end, capacity = start + length, len(self.inserted)
        parts = (self.inserted[start:end], self.inserted[: max(0, end - capacity)])
        return sum(int(part.searchsorted(step)) for part in parts)

    def state_dict(self, filled: int) -> StateDict:
        """The first ``filled`` positions, in tensors that share the arrays' memory."""
        return {
            "record": torch.from_numpy(self.record[:filled]),
            "policy": torch.from_numpy(self._policy[:filled]),
            "acts_for": torch.from_numpy(self._acts_for[:filled]),
            "behaviour": torch.from_numpy(self._behaviour[:filled]),
            "inserted": torch.from_numpy(self.inserted[:filled]),
        }

    def load_state_dict(self, tree: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        filled = len(tree["record"])
        self.record[:filled] = tree["record"].numpy()
        self._policy[:filled] = tree["policy"].numpy()
        self._acts_for[:filled] = tree["acts_for"].numpy()
        self._behaviour[:filled] = tree["behaviour"].numpy()
        self.inserted[:filled] = tree["inserted"].numpy()
