"""The player of runs in environments, which is the same for all learners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from empo_core.protocols import Agent, EpisodePlayer, PlayedEpisodes
from empo_learning.evaluation.videos import Video, save_videos


class FilmedEpisodes(NamedTuple):
    """Whole episodes, and films of some of them.

    Attributes:
        groups: Outcomes by agent, or by task and actor.
        videos: The films.
    """

    groups: Sequence[PlayedEpisodes]
    videos: Sequence[Video] = ()


class EpisodeSource(Protocol):
    """Lets a learner's policy act in environments that are made for it and closed again."""

    def __call__(
        self, *, episodes: int, seed: int, max_steps: int | None = None, films: int = 0
    ) -> FilmedEpisodes:
        """Play episodes; arguments and errors as of ``EpisodePlayer.play``.

        Args:
            episodes: So many of each group.
            seed: Decides everything that is random.
            max_steps: Episodes longer than this need not be waited for; None: as the run has it.
            films: So many episodes of each group are filmed, at most ``episodes``.

        Raises:
            ConfigError: if no picture can be drawn, where there are films.
        """


class PolicyPlayer(EpisodePlayer):
    """Plays episodes of a learned policy, films them, and hands the policy out."""

    films = True

    def __init__(
        self,
        members: Sequence[str],
        source: EpisodeSource,
        *,
        agent: Callable[[int], Agent],
        export: Callable[[int, Path], None],
        unasked_films: int = 0,
    ) -> None:
        """Prepare; no environment is made yet.

        Args:
            members: Names of the agents or tasks.
            source: Plays episodes.
            agent: Makes the agent of the member with a number.
            export: Writes the policy of the member with a number as an ONNX file.
            unasked_films: See ``EpisodePlayer``.
        """
        self.members, self.unasked_films = members, unasked_films
        self._source, self._make_agent, self._export = source, agent, export

    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Episodes of each group; see ``EpisodePlayer.play``."""
        return self._source(episodes=episodes, seed=seed, max_steps=max_steps).groups

    def film(
        self, directory: Path, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[Path]:
        """Animations of episodes of each group; see ``EpisodePlayer.film``."""
        played = self._source(episodes=episodes, seed=seed, max_steps=max_steps, films=episodes)
        return save_videos(played.videos, directory)

    def _export_onnx(self, path: Path, number: int) -> None:
        self._export(number, path)

    def _agent(self, number: int) -> Agent:
        return self._make_agent(number)
