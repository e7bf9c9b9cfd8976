"""Format of experience: transitions with all their possible successors.

Axes besides those of ``docs/reference/shapes.md``: ``transition``; ``slot`` (a goal of a human in
one world, see ``goal_index.GoalIndex``); ``profile`` (a joint action of the humans, the first
human counting fastest; 1 where it was sampled); ``distinct`` (states, each once). Pair
``(transition * profiles + profile) * robot_actions + robot_action`` owns the successors
``offsets[pair] : offsets[pair + 1]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class States:
    """What the learner needs to know about some states.

    Attributes:
        rows: As networks and tables get them (packed or compact).
        layout: Which world of the ensemble; 0 where there is one only.
        terminal: Whether the world ends there, whatever the time.
        achieved: Whether each goal is achieved there.
        available: Which joint robot actions exist there.
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


@dataclass(frozen=True, slots=True)
class Transitions:
    """Transitions as they are sampled for training; states are ids that a replay looks up.

    Attributes:
        state: Where each transition starts.
        steps_left: Remaining steps of the episode there, at least 1; always 1 without a horizon.
        human_policy: What each goal's human would do for it; no slots where humans are sampled.
        goal: The slot that each human pursued.
        human_action: What each human did in the successors, drawn from its prior without
            exploration; meaningless where the successors cover all profiles.
        action: The joint robot action that was really taken.
        next: The state that really followed.
        offsets: Where the successors of each pair start.
        successor: State of each successor.
        prob: Its probability within its pair.
    """

    state: Int[Tensor, " transition"]
    steps_left: Int[Tensor, " transition"]
    human_policy: Float[Tensor, "transition slot action"]
    goal: Int[Tensor, "transition human"]
    human_action: Int[Tensor, "transition human"]
    action: Int[Tensor, " transition"]
    next: Int[Tensor, " transition"]
    offsets: Int[Tensor, " pair_plus_1"]
    successor: Int[Tensor, " item"]
    prob: Float[Tensor, " item"]

    def to(self, device: torch.device | str) -> Transitions:
        """The same transitions on a device."""
        return Transitions(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def __len__(self) -> int:
        """Number of transitions."""
        return self.state.shape[0]


_OF_BLOCK = ("environment", "first", "human_choice")


@dataclass(frozen=True, slots=True)
class Block:
    """What an actor recorded in one go: one step of each of its environments.

    Attributes:
        states: The distinct states that occur.
        transitions: One per environment that took a step; states are positions in ``states``.
        environment: Which environment of its actor each transition comes from.
        first: Whether it is the first of its episode.
        human_choice: What each human really did, exploring; only explorers learn from it.
    """

    states: States
    transitions: Transitions
    environment: Int[Tensor, " transition"]
    first: Bool[Tensor, " transition"]
    human_choice: Int[Tensor, "transition human"]

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
        """What ``arrays`` was made from."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(
            States(**{f.name: tensors[f"states.{f.name}"] for f in fields(States)}),
            Transitions(**{f.name: tensors[f"transitions.{f.name}"] for f in fields(Transitions)}),
            **{name: tensors[name] for name in _OF_BLOCK},
        )
