"""Players of the policies that a run has computed or learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from empo_core.protocols.context import RunContext
from empo_core.protocols.worlds import HumanPrior, RobotPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisodes:
    """Outcomes of whole episodes of one group, such as those of an agent or of a task.

    Attributes:
        group: The group by heading, e.g. ``{"task": "Pendulum-v1", "actor": "policy"}``.
        returns: Sum of the rewards of each episode.
        lengths: Steps of each episode.
        ends: How many of them ended for each reason.
    """

    group: Mapping[str, str]
    returns: Float[np.ndarray, " episode"]
    lengths: Int[np.ndarray, " episode"]
    ends: Mapping[str, int]


@runtime_checkable
class EpisodePlayer(Protocol):
    """A run's policy together with the environments that it acts in."""

    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Play whole episodes; nothing is learned, and statistics of observations stay as they are.

        Args:
            episodes: So many of each group, at least 1; a few more where copies share them evenly.
            seed: Decides everything that is random.
            max_steps: Episodes longer than this need not be waited for; None: as the run has it.

        Raises:
            ConfigError: if episodes cannot be cut at the time limit.
            CollectError: if an environment failed.
        """


@runtime_checkable
class FilmingPlayer(EpisodePlayer, Protocol):
    """An episode player that can show people what it plays; optional.

    ``empo evaluate --gifs`` asks for it.
    """

    def film(self, directory: Path, *, episodes: int, seed: int) -> Sequence[Path]:
        """Play so many episodes of each group once more, and write an animation of each.

        Args:
            directory: Where they go; animations that are there may be replaced.
            episodes: Of each group, at least 1.
            seed: Decides everything that is random.

        Returns:
            The files; none where no picture can be drawn, of which a warning says why.

        Raises:
            CollectError: if an environment failed.
            StorageError: if a file cannot be written.
        """


CheckpointChoice: TypeAlias = Literal["newest", "best"]
"""The newest weights, saved at the end or in a checkpoint, or those with the best evaluation."""


@runtime_checkable
class Playable(Protocol):
    """An algorithm whose finished or interrupted runs can be played; optional.

    ``empo evaluate`` asks for it.
    """

    def restore(
        self, context: RunContext, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[RobotPolicy, HumanPrior] | EpisodePlayer:
        """The policies of the run in ``context.directory``.

        Args:
            context: The run.
            checkpoint: Which of its weights.

        Returns:
            The robots' policy and how humans act, of which goals are asked in the run's world; or
            a player of the run's environments, of which returns are asked.

        Raises:
            StorageError: if the run left nothing that can be loaded.
            ConfigError: if algorithms of this kind write no such checkpoint.
        """
