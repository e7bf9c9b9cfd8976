"""Observations of a learner in a world: state, time, agent and goal.

Learning, humans that are played back (``prior``) and robots that are evaluated (``robots``) all
see through the same code, so they see the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols.environments import ActionSpec, ObservationSpec
from empo_core.types import WorldSpec

Learners: TypeAlias = Literal["robots", "humans"]


@dataclass(frozen=True)
class WorldObservation:
    """The world as the robots, or the humans, see it.

    An observation is a row of numbers: the features of the state (its picture first), then the
    share of the episode's steps that are left (where there is a horizon), then which of the
    learners sees it (where there are several), then which of its goals a human pursues.

    Attributes:
        spec: The world.
        learners: Who sees.
        is_joint: Whether one actor sees and chooses for all learners.
    """

    spec: WorldSpec
    learners: Learners
    is_joint: bool = False

    @cached_property
    def agents(self) -> tuple[int, ...]:
        """Indices of the agents who see and act, in their order."""
        return self.spec.robots if self.learners == "robots" else self.spec.humans

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of those who see, in the order of their rows."""
        if self.is_joint:
            return (self.learners,)
        return tuple(self.spec.agents[agent].name for agent in self.agents)

    @cached_property
    def actions(self) -> ActionSpec:
        """One choice, or one per learner of a joint actor.

        Whoever has fewer options than others never has the last ones.
        """
        options = max(self.spec.num_actions[agent] for agent in self.agents)
        return ActionSpec(choices=(options,) * (len(self.agents) if self.is_joint else 1))

    @cached_property
    def observations(self) -> ObservationSpec:
        """Specification of an observation."""
        shape = self.spec.featurizer.shape
        grid = (shape.channels, shape.height, shape.width)
        words = self._goal_word + self._goal_words
        return ObservationSpec(words, "float32", grid if min(grid) > 0 else None)

    @property
    def num_options(self) -> int:
        """Number of options an action has."""
        return self.actions.choices[0]

    @cached_property
    def num_features(self) -> int:
        """Number of an observation's first words that describe the state."""
        return self.spec.featurizer.shape.flat

    @cached_property
    def _agent_word(self) -> int:
        return self.num_features + (self.spec.horizon is not None)

    @cached_property
    def _goal_word(self) -> int:
        return self._agent_word + (len(self.names) if len(self.names) > 1 else 0)

    @cached_property
    def _goal_words(self) -> int:
        if self.learners == "robots":
            return 0
        return max(len(self.spec.goals_of(human)) for human in self.agents)

    @cached_property
    def _place(self) -> Int[np.ndarray, " goal"]:
        """The position of each goal among those of its human."""
        place = np.zeros(len(self.spec.goals), np.int64)
        for human in self.spec.humans:
            goals = self.spec.goals_of(human)
            place[list(goals)] = np.arange(len(goals))
        return place

    def features(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state flat"]:
        """The world's features of states."""
        return self.spec.featurizer(rows).flat().to(torch.float32)

    def annotate(
        self,
        out: Float[np.ndarray, "state word"],
        steps_left: Int[Tensor, " state"],
        learner: int,
        goal: Int[Tensor, " state"] | None = None,
    ) -> None:
        """Write what one learner sees in some states, except for the features.

        Args:
            out: Where to write, a whole observation per state.
            steps_left: Remaining steps.
            learner: Who sees, a position in ``agents``.
            goal: What it pursues, positions on the ``goal`` axis; for humans.
        """
        out[:, self.num_features :] = 0.0
        if self.spec.horizon is not None:
            out[:, self.num_features] = steps_left.numpy() / self.spec.horizon
        if len(self.names) > 1:
            out[:, self._agent_word + learner] = 1.0
        if goal is not None:
            out[np.arange(len(out)), self._goal_word + self._place[goal.numpy()]] = 1.0

    def observation(
        self,
        features: Float[Tensor, "state flat"],
        steps_left: Int[Tensor, " state"],
        learner: int,
        goal: Int[Tensor, " state"] | None = None,
    ) -> Float[Tensor, "state word"]:
        """Observations of one learner in some states; see ``annotate``."""
        out = torch.empty(len(features), self.observations.words)
        out[:, : self.num_features] = features
        self.annotate(out.numpy(), steps_left, learner, goal)
        return out

    def options(
        self, available: Bool[Tensor, "state agent action"]
    ) -> Bool[Tensor, "state learner option"]:
        """Which options each learner has; all where it has none."""
        mine = available.index_select(1, torch.tensor(self.agents))[:, :, : self.num_options]
        return mine | ~mine.any(-1, keepdim=True)
