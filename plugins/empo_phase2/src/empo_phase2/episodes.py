"""Episodes of an actor's environments: states, steps left, and goals that humans pursue."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.trees import StateDict
from empo_core.types import InitialStates
from empo_learning.saved_state import tensor_like
from empo_phase2.goal_index import GoalIndex
from empo_worlds.queries import sample_actions

_STATE = ("rows", "steps_left", "goal", "started", "searches", "layout", "played", "steps_done")


class Episodes:
    """Many environments at once, each somewhere in an episode.

    Attributes:
        rows: State of each environment.
        steps_left: Remaining steps; always 1 in worlds without a horizon.
        steps_done: Steps since the episode began.
        goal: The slot that each human pursues.
        started: Whether the episode has only begun.
        searches: Whether it began elsewhere than the world would.
        layout: Which world of the ensemble.
        played: Episodes that each environment has finished.
    """

    def __init__(
        self,
        starts: Sequence[InitialStates],
        slots: GoalIndex,
        generator: torch.Generator,
        *,
        environments: int,
        first: int,
        horizon: int | None,
        steps_per_episode: int | None,
        episodes_per_world: int,
    ) -> None:
        """Start episodes; no goals are pursued before ``pursue``.

        Episodes in a layout begin in one of its ``starts``, drawn with ``generator``.
        Environments of all actors take worlds in turn; ``first`` is the number of the first here.
        The world ends an episode after ``horizon`` steps, and it is cut after
        ``steps_per_episode``.
        """
        self._starts, self._horizon, self._generator = starts, horizon, generator
        self._cut, self._per_world = steps_per_episode, episodes_per_world
        belongs = slots.belongs(int(slots.human[-1]) + 1).T
        self._weight = slots.weight[:, None] * belongs
        count = torch.arange(environments)
        self.layout = (first + count) % len(starts)
        self.rows = self._begin(self.layout)
        self.steps_left = torch.full_like(count, 1 if horizon is None else horizon)
        self.steps_done, self.played = torch.zeros_like(count), torch.zeros_like(count)
        self.started = torch.ones_like(count, dtype=torch.bool)
        self.searches = torch.zeros_like(self.started)
        self.goal = torch.zeros(environments, len(belongs), dtype=torch.int64)

    def __len__(self) -> int:
        """Number of environments."""
        return len(self.rows)

    def pursue(self, which: Bool[Tensor, "env human"], uniform: Float[Tensor, "env human"]) -> None:
        """Give some humans other goals, drawn by weight."""
        self.goal = torch.where(
            which, sample_actions(self._weight[self.layout], uniform), self.goal
        )

    def move(
        self, rows: Int[Tensor, "env word"], terminal: Bool[Tensor, " env"]
    ) -> Bool[Tensor, " env"]:
        """Enter the next states; start anew, and return, where that ended an episode.

        An episode that is cut leaves no mark: the states it ends with have time left.
        """
        self.rows, self.steps_done = rows, self.steps_done + 1
        over = terminal
        if self._horizon is not None:
            self.steps_left = self.steps_left - 1
            over = over | (self.steps_left == 0)
        if self._cut is not None:
            over = over | (self.steps_done >= self._cut)
        self.started = over
        if over.any():
            self._restart(over)
        return over

    def begin_at(
        self,
        which: Int[Tensor, " chosen"],
        rows: Int[Tensor, "chosen word"],
        steps_left: Int[Tensor, " chosen"],
        layout: Int[Tensor, " chosen"] | None,
    ) -> None:
        """Begin new episodes elsewhere than the world would.

        ``layout`` is None where there is only one world.
        """
        self.rows, self.steps_left = self.rows.clone(), self.steps_left.clone()
        self.rows[which], self.steps_left[which] = rows, steps_left
        self.steps_done[which], self.started[which], self.searches[which] = 0, True, True
        if layout is not None:
            self.layout = self.layout.clone()
            self.layout[which] = layout

    def _restart(self, over: Tensor) -> None:
        self.played = self.played + over
        moves_on = over & (self.played % self._per_world == 0)
        self.layout = (self.layout + moves_on) % len(self._starts)
        self.rows = self.rows.clone()
        self.rows[over] = self._begin(self.layout[over])
        self.steps_done = self.steps_done.masked_fill(over, 0)
        self.searches = self.searches & ~over
        if self._horizon is not None:
            self.steps_left = self.steps_left.masked_fill(over, self._horizon)

    def _begin(self, layout: Int[Tensor, " episode"]) -> Int[Tensor, "episode word"]:
        """The states in which episodes in these layouts begin."""
        rows = self._starts[0].states[[0]].repeat(len(layout), 1)
        for number in sorted(set(layout.tolist())):
            initial, here = self._starts[number], layout == number
            rows[here] = initial.states[initial.draw(int(here.sum()), self._generator)]
        return rows

    def state_dict(self) -> StateDict:
        """Everything about where the environments are."""
        return {name: getattr(self, name).clone() for name in _STATE}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name in _STATE:
            setattr(self, name, tensor_like(state_dict[name], getattr(self, name)))
