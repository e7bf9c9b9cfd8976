"""Returns and lengths of the episodes that a learner acts in, and the reasons of their ends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped

from empo_core.protocols import Tracker
from empo_core.trees import StateDict, whole_number
from empo_learning.distributed import Group

WINDOW = 100
"""Number of the newest episodes that averages are over, unless a learner chooses another."""
REASONS = ("terminated", "truncated")
"""Reasons for which episodes end where an environment names no others."""
ALL = slice(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStatistics:
    """Statistics of episodes so far.

    Attributes:
        completed: Number of episodes that ended.
        mean_return: Mean sum of rewards of the newest episodes; None before any.
        mean_length: Their mean number of steps; None before any.
        success: Share of successes among the newest episodes of which the environment says
            whether they succeeded; None before any.
        reasons: Number of episodes that ended for each reason.
    """

    completed: int
    mean_return: float | None
    mean_length: float | None
    success: float | None
    reasons: dict[str, int]

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers; none before an episode has ended."""
        if self.mean_return is None or self.mean_length is None:
            return {}
        metrics = {
            "episode/return_mean": self.mean_return,
            "episode/length_mean": self.mean_length,
            "episode/completed": float(self.completed),
        }
        return metrics if self.success is None else {**metrics, "episode/success": self.success}


class EpisodeReturns:
    """Adds up each agent's rewards over its episode; the run's tracker gets every step.

    Attributes:
        completed: Number of episodes that ended.
        returns: Sum of rewards of each of the newest episodes.
        lengths: Number of steps of each of the newest episodes.
        successes: 1 or 0 for each of the newest episodes of which the environment says whether
            they succeeded.
        reasons: Number of episodes that ended for each reason.
    """

    def __init__(
        self,
        num_agents: int,
        tracker: Tracker | None = None,
        *,
        reasons: Sequence[str] = REASONS,
        window: int = WINDOW,
    ) -> None:
        """Begin with no step taken.

        Args:
            num_agents: Agents of all environments together; each has episodes of its own.
            tracker: It records every step; None: nobody does.
            reasons: Names of the reasons for which episodes end.
            window: Number of the newest episodes that averages are over.
        """
        self._names, self._window = tuple(reasons), window
        self._tracker = tracker
        self._agents = np.arange(num_agents)
        self._return = np.zeros(num_agents)
        self._length = np.zeros(num_agents, np.int64)
        self._success = np.full(num_agents, -1)
        self.completed = 0
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.successes: deque[int] = deque(maxlen=window)
        self.reasons = np.zeros(len(self._names), np.int64)
        if self._tracker is not None:
            self._tracker.start_episodes(num_agents, self._names)

    def observe(
        self,
        reward: Float[np.ndarray, " agent"],
        done: Bool[np.ndarray, " agent"],
        reason: Int[np.ndarray, " agent"],
        *,
        success: Int[np.ndarray, " agent"] | None = None,
        starts: Bool[np.ndarray, " agent"] | None = None,
        acted: Bool[np.ndarray, " agent"] | None = None,
        agents: slice = ALL,
    ) -> None:
        """Take in one step of some agents.

        Args:
            reward: Reward of each step.
            done: Whether the episode ended with it.
            reason: Why, where it ended, as positions in the names of reasons; -1: unknown.
            success: 1 where the step achieved the task, 0 where it did not, -1 where the
                environment does not say. None: it never says.
            starts: Where a new episode begins after the step, whether or not one ended: an
                episode that was lost counts for nothing. None: where one ended.
            acted: Which agents took the step; what the others are said to have done is ignored.
                None: all.
            agents: Which agents these are.
        """
        took = np.ones(len(reward), bool) if acted is None else acted
        ended = took & done
        if self._tracker is not None:
            everyone = acted is None and len(reward) == len(self._agents)
            self._tell(agents, reward, ended, reason, *(() if everyone else (took,)))
        self._return[agents] += np.where(took, reward, 0)
        self._length[agents] += took
        if success is not None:
            success = np.where(took, success, -1)
            self._success[agents] = np.maximum(self._success[agents], success)
        if ended.any():
            self._complete(self._agents[agents][ended], reason[ended])
        over = ended if starts is None else ended | starts
        if over.any():
            self._forget(self._agents[agents][over])

    def statistics(self, group: Group | None = None) -> EpisodeStatistics:
        """Statistics over all processes that learn together; None: of this one alone."""
        totals = (group or Group()).totals(
            {
                "completed": float(self.completed),
                "return": math.fsum(self.returns),
                "length": float(sum(self.lengths)),
                "newest": float(len(self.returns)),
                "success": float(sum(self.successes)),
                "told": float(len(self.successes)),
                **{f"reason {i}": float(count) for i, count in enumerate(self.reasons)},
            }
        )
        newest, num_reported = totals["newest"], totals["told"]
        return EpisodeStatistics(
            completed=int(totals["completed"]),
            mean_return=totals["return"] / newest if newest else None,
            mean_length=totals["length"] / newest if newest else None,
            success=totals["success"] / num_reported if num_reported else None,
            reasons={name: int(totals[f"reason {i}"]) for i, name in enumerate(self._names)},
        )

    def forget_unfinished(self) -> None:
        """Begin a new episode for every agent; those that were going on count for nothing."""
        self._forget(self._agents)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        return {
            "return": torch.from_numpy(self._return.copy()),
            "length": torch.from_numpy(self._length.copy()),
            "success": torch.from_numpy(self._success.copy()),
            "completed": self.completed,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "successes": list(self.successes),
            "reasons": torch.from_numpy(self.reasons.copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._return[:] = state_dict["return"].numpy()
        self._length[:] = state_dict["length"].numpy()
        self._success[:] = state_dict["success"].numpy()
        self.completed = whole_number(state_dict["completed"])
        self.returns = deque(map(float, state_dict["returns"]), maxlen=self._window)
        self.lengths = deque(map(int, state_dict["lengths"]), maxlen=self._window)
        self.successes = deque(map(int, state_dict["successes"]), maxlen=self._window)
        self.reasons[:] = state_dict["reasons"].numpy()

    def _complete(
        self, agents: Int[np.ndarray, " agent"], reason: Int[np.ndarray, " agent"]
    ) -> None:
        """Count the episodes of these agents, which ended for these reasons."""
        self.completed += len(agents)
        self.returns.extend(self._return[agents].tolist())
        self.lengths.extend(self._length[agents].tolist())
        success = self._success[agents]
        self.successes.extend(success[success >= 0].tolist())
        self.reasons += np.bincount(reason[reason >= 0], minlength=len(self.reasons))

    def _forget(self, agents: Int[np.ndarray, " agent"]) -> None:
        """Begin new episodes for these agents."""
        self._return[agents] = 0
        self._length[agents] = 0
        self._success[agents] = -1

    def _tell(self, agents: slice, *parts: Shaped[np.ndarray, " agent"]) -> None:
        """Pass a step of these agents on to the tracker; the others took none."""
        assert self._tracker is not None
        whole = list(parts)
        if len(parts[0]) < len(self._agents):
            whole = [np.zeros(len(self._agents), part.dtype) for part in parts]
            for row, part in zip(whole, parts, strict=True):
                row[agents] = part
        self._tracker.step_episodes(*map(torch.as_tensor, whole))
