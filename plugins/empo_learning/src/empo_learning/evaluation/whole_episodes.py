"""Whole episodes in environments: as many of each agent, whether they are short or long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from empo_core.protocols import PlayedEpisodes
from empo_core.protocols.environments import TimeStep
from empo_learning.evaluation.videos import EpisodeCamera

UNFINISHED = "unfinished"
"""Reason of episodes that had not ended when waiting ended, or of whose end nothing is known."""


class EpisodeTable:
    """Outcomes of episodes, as many of each agent as was settled before they began.

    Attributes:
        quotas: Episodes of each agent; to count whichever end first would count short ones too
            often.
        ended: Episodes of each agent that have ended, which is the number of the one that goes on.
        returns: Sums of rewards, ``[agent episode]`` as everything below.
        lengths: Steps; 0 where an agent has not acted.
        reasons: Why episodes ended, as in ``TimeStep.reason``; -1 where they have not.
        successes: 1 where the task was achieved at any step of which the environment says so, else
            0; -1 where it says so of none.
    """

    def __init__(self, quotas: Int[np.ndarray, " agent"]) -> None:
        """Begin with no step taken."""
        self.quotas, self.ended = quotas, np.zeros_like(quotas)
        shape = (len(quotas), int(quotas.max(initial=0)))
        self.returns, self.lengths = np.zeros(shape), np.zeros(shape, np.int64)
        self.reasons, self.successes = np.full(shape, -1), np.full(shape, -1)

    @property
    def is_open(self) -> Bool[np.ndarray, " agent"]:
        """True for agents that have not played all of their episodes."""
        return self.ended < self.quotas

    @property
    def num_left(self) -> int:
        """Episodes that have not ended."""
        return int((self.quotas - self.ended).sum())

    def add(self, time_step: TimeStep, acted: Bool[np.ndarray, " agent"]) -> None:
        """Count the outcome of the previous actions of all agents, of those that ``acted``."""
        agent = np.flatnonzero(acted & self.is_open)
        place = agent, self.ended[agent]
        self.returns[place] += time_step.reward[agent]
        self.lengths[place] += 1
        if time_step.success is not None:
            self.successes[place] = np.maximum(self.successes[place], time_step.success[agent])
        done = agent[(time_step.terminated | time_step.truncated)[agent]]
        self.reasons[done, self.ended[done]] = time_step.reasons[done]
        self.ended[done] += 1

    def played(
        self,
        agents: Bool[np.ndarray, " agent"],
        group: Mapping[str, str],
        reasons: Sequence[str],
    ) -> PlayedEpisodes | None:
        """Episodes of some agents; None where these never acted.

        Args:
            agents: Which agents.
            group: What they are, by heading.
            reasons: Names of the reasons, as in ``EnvSpec.reasons``.
        """
        mine = (self.lengths > 0) & agents[:, None]
        if not mine.any():
            return None
        names = [*reasons, UNFINISHED]  # The latter at -1.
        counts = np.bincount(self.reasons[mine] % len(names), minlength=len(names))
        reported = self.successes[mine & (self.successes >= 0)]
        return PlayedEpisodes(
            group=group,
            returns=self.returns[mine],
            lengths=self.lengths[mine],
            ends={name: int(number) for name, number in zip(names, counts, strict=True) if number},
            successes=reported if len(reported) else None,
        )


def play_episodes(
    first: TimeStep,
    advance: Callable[[TimeStep], TimeStep],
    table: EpisodeTable,
    *,
    most_steps: int | None = None,
    cameras: Sequence[EpisodeCamera] = (),
) -> None:
    """Play until the table is full, or waiting ends.

    Args:
        first: The first time step of environments in one block.
        advance: Lets a policy act, and returns the next time step.
        table: Takes in what happens.
        most_steps: Steps after which waiting ends; None: never.
        cameras: Film what happens.

    Raises:
        ConfigError: if a camera that has to film cannot.
    """
    time_step, acted, steps = first, np.zeros(len(table.quotas), bool), 0
    while True:
        for camera in cameras:
            camera.see(time_step, acted)
        table.add(time_step, acted)
        if steps == most_steps or not table.num_left:
            break
        steps += 1
        acted = time_step.acts.copy()
        time_step = advance(time_step)
    for camera in cameras:
        camera.end()
