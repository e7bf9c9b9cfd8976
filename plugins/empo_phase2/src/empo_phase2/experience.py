"""Format of experience: transitions with all their possible successors.

Axes besides those of ``docs/reference/shapes.md``: ``transition``; ``slot`` (a goal of a human in
one world, see ``goal_index.GoalIndex``); ``profile`` (a joint action of the humans, the first
human counting fastest; 1 where it was sampled); ``distinct`` (states, each once). Pair
``(transition * profiles + profile) * robot_actions + robot_action`` owns the successors
``offsets[pair] : offsets[pair + 1]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.types import WorldSpec


@dataclass(frozen=True, slots=True)
class States:
    """Distinct states as a learner stores them.

    Attributes:
        rows: Input of networks and tables (rows of the world, or compact rows).
        layout: Number of the world in the ensemble; 0 where there is one only.
        terminal: True where the world ends, whatever the time.
        achieved: True where a slot's goal is achieved.
        available: True where a joint robot action exists.
    """

    rows: Int[Tensor, "distinct word"]
    layout: Int[Tensor, " distinct"]
    terminal: Bool[Tensor, " distinct"]
    achieved: Bool[Tensor, "distinct slot"]
    available: Bool[Tensor, "distinct robot_action"]

    def at(self, index: Int[Tensor, " chosen"]) -> States:
        """Some of the states, in the given order."""
        return States(
            self.rows[index],
            self.layout[index],
            self.terminal[index],
            self.achieved[index],
            self.available[index],
        )

    def to(self, device: torch.device | str) -> States:
        """The same states on a device."""
        return States(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def steps_after(steps_left: Int[Tensor, "*batch"], spec: WorldSpec) -> Int[Tensor, "*batch"]:
    """Remaining steps after one more; without a horizon no step is ever counted down."""
    return steps_left if spec.horizon is None else steps_left - 1


@dataclass(frozen=True, slots=True)
class TimedStates:
    """Pairs of a state and a number of remaining steps.

    Attributes:
        rows: The state of each pair; this and the next three as in ``States``.
        layout: Number of its world in the ensemble.
        achieved: True where a slot's goal is achieved.
        available: True where a joint robot action exists.
        steps_left: Remaining steps.
        alive: Whether the episode goes on from there.
        memo: Features and codes that networks computed from them, so that they are once.
    """

    rows: Int[Tensor, "distinct word"]
    layout: Int[Tensor, " distinct"]
    achieved: Bool[Tensor, "distinct slot"]
    available: Bool[Tensor, "distinct robot_action"]
    steps_left: Int[Tensor, " distinct"]
    alive: Bool[Tensor, " distinct"]
    memo: dict[Hashable, object] = field(default_factory=dict)

    @classmethod
    def of(cls, states: States, steps_left: Int[Tensor, " distinct"]) -> TimedStates:
        """Timed states; the episode is over where a state is terminal or no step is left."""
        alive = ~states.terminal & (steps_left > 0)
        return cls(states.rows, states.layout, states.achieved, states.available, steps_left, alive)

    def at(self, index: Int[Tensor, " chosen"] | slice) -> TimedStates:
        """Some of the timed states, in the given order; in the same memory for a slice."""
        return TimedStates(
            self.rows[index],
            self.layout[index],
            self.achieved[index],
            self.available[index],
            self.steps_left[index],
            self.alive[index],
        )

    def to(self, device: torch.device | str) -> TimedStates:
        """The same timed states on a device."""
        parts = [f.name for f in fields(self) if f.name != "memo"]
        return TimedStates(*(getattr(self, name).to(device) for name in parts))

    def split(self, size: int) -> Iterator[TimedStates]:
        """The timed states in parts of at most this size, in order, in the same memory."""
        for first in range(0, max(1, len(self)), size):
            yield self.at(slice(first, first + size))

    def __len__(self) -> int:
        """Number of timed states."""
        return self.steps_left.shape[0]  # len() of a tensor takes as long as an addition.


@dataclass(frozen=True, slots=True)
class Transitions:
    """A batch of transitions with all their successors; states are ids that a replay looks up.

    Attributes:
        state: Where each transition starts.
        steps_left: Remaining steps of the episode there, at least 1; always 1 without a horizon.
        human_policy: Policy of each slot's human for the slot's goal; no slots where humans are
            sampled.
        acts_for: Slots for whose goals the recorded profile is a sample, see
            ``profiles.HumanProfiles.sample``; all of them where the successors cover all profiles.
        behaviour: Chance that each joint robot action had to be taken, exploration included; none
            where all robot actions have successors.
        action: The joint robot action that was taken.
        offsets: Start of the successors of each pair.
        successor: State of each successor.
        prob: Its probability within its pair.
    """

    state: Int[Tensor, " transition"]
    steps_left: Int[Tensor, " transition"]
    human_policy: Float[Tensor, "transition policy_slot action"]
    acts_for: Bool[Tensor, "transition slot"]
    behaviour: Float[Tensor, "transition behaviour_action"]
    action: Int[Tensor, " transition"]
    offsets: Int[Tensor, " pair_plus_1"]
    successor: Int[Tensor, " item"]
    prob: Float[Tensor, " item"]

    @property
    def covers_profiles(self) -> bool:
        """Whether successors are those of all profiles and robot actions, so no sample."""
        return self.human_policy.shape[1] > 0

    def to(self, device: torch.device | str) -> Transitions:
        """The same transitions on a device."""
        return Transitions(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def __len__(self) -> int:
        """Number of transitions."""
        return self.state.shape[0]


_OF_BLOCK = ("first", "human_choice", "recorded", "following")


@dataclass(frozen=True, slots=True)
class Block:
    """One step of each environment of an actor.

    Attributes:
        states: The distinct states that occur.
        transitions: One per environment that took a step; states are positions in ``states``.
        first: True for the first transition of an episode.
        human_choice: The humans' actions really taken, exploration included; explorers read it.
        recorded: Their actions that successors were computed for; any where those cover all.
        following: Position in ``states`` of the state that really followed.
    """

    states: States
    transitions: Transitions
    first: Bool[Tensor, " transition"]
    human_choice: Int[Tensor, "transition human"]
    recorded: Int[Tensor, "transition human"]
    following: Int[Tensor, " transition"]

    def arrays(self) -> dict[str, np.ndarray]:
        """As named arrays, for an ``Experience``."""
        parts: dict[str, States | Transitions] = {
            "states": self.states,
            "transitions": self.transitions,
        }
        named = {
            f"{name}.{field.name}": getattr(part, field.name).numpy()
            for name, part in parts.items()
            for field in fields(part)
        }
        return named | {name: getattr(self, name).numpy() for name in _OF_BLOCK}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Block:
        """Inverse of ``arrays``."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(
            States(**{f.name: tensors[f"states.{f.name}"] for f in fields(States)}),
            Transitions(**{f.name: tensors[f"transitions.{f.name}"] for f in fields(Transitions)}),
            **{name: tensors[name] for name in _OF_BLOCK},
        )
