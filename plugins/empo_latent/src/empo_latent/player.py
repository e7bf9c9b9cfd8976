"""Episodes of a finished or interrupted run, in environments of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from empo_core.errors import ConfigError
from empo_core.protocols import EpisodePlayer, PlayedEpisodes
from empo_latent.agent import LatentAgent
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.evaluation import Evaluation, evaluate_actors
from empo_latent.networks.model import LatentModel
from empo_latent.onnx_policy import export_policy
from empo_latent.params import LatentParams
from empo_latent.planner import planner_of
from empo_latent.types import MultiTaskSpec
from empo_learning.evaluation.videos import save_videos


class LatentPlayer(EpisodePlayer):
    """Lets a model act in the tasks of its run, and films it.

    The planner acts, the policy, or one after the other, as ``reporting.evaluate`` says.
    """

    films = True
    unasked_films = 1

    def __init__(
        self,
        params: LatentParams,
        tasks: Sequence[Task],
        model: LatentModel,
        spec: MultiTaskSpec,
    ) -> None:
        """Prepare for tasks, and a model that was made for their ``spec``."""
        self._params, self._tasks, self._model = params, tasks, model
        self._spec, self.members = spec, spec.tasks

    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Episodes of each task by each actor; see ``EpisodePlayer.play``."""
        _refuse_cut(max_steps)
        evaluations = self.evaluations(episodes=episodes, seed=seed)
        played = []
        for number, task in enumerate(evaluations[0].tasks):
            for evaluation in evaluations:
                mine = [episode for episode in evaluation.episodes if episode.task == number]
                ends = Counter(
                    "terminated" if episode.terminated else "truncated" for episode in mine
                )
                reported = [item.success for item in mine if item.success is not None]
                played.append(
                    PlayedEpisodes(
                        group={"task": task, "actor": evaluation.actor},
                        returns=np.array([episode.total for episode in mine]),
                        lengths=np.array([episode.length for episode in mine]),
                        ends=dict(sorted(ends.items())),
                        successes=np.array(reported) if reported else None,
                    )
                )
        return played

    def film(
        self, directory: Path, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[Path]:
        """Animations of episodes of each task by each actor; see ``EpisodePlayer.film``."""
        _refuse_cut(max_steps)
        self._require_pictures()
        evaluations = self.evaluations(episodes=episodes, seed=seed, videos=episodes)
        videos = [video for evaluation in evaluations for video in evaluation.videos]
        return save_videos(videos, directory)

    def _require_pictures(self) -> None:
        """Draw each task once.

        Raises:
            ConfigError: if one cannot be drawn.
        """
        vector = TaskVector(self._tasks, envs=len(self._tasks), rendering=True)
        try:
            vector.start(0)
            for task in range(len(self._tasks)):
                vector.render(task)
        finally:
            vector.close()

    def evaluations(self, *, episodes: int, seed: int, videos: int = 0) -> list[Evaluation]:
        """So many episodes of each task by each actor."""
        planner = planner_of(self._model, self._params, self._spec, compiled=False)
        evaluations = evaluate_actors(
            self._model,
            planner,
            self._params,
            self._tasks,
            episodes=episodes,
            seed=seed,
            discounts=self._params.discounts(self._spec.episode_lengths),
            device="cpu",
            videos=videos,
        )
        return list(evaluations.values())

    def _export_onnx(self, path: Path, number: int) -> None:
        export_policy(self._model, self._spec, number, path)

    def _agent(self, number: int) -> LatentAgent:
        return LatentAgent(self._model, self._params, self._spec, number)


def _refuse_cut(max_steps: int | None) -> None:
    """Refuse to cut episodes.

    Raises:
        ConfigError: if they should be cut.
    """
    if max_steps is not None:
        raise ConfigError(
            "episodes of algorithm 'latent' end where its tasks end them (max_episode_steps); "
            "leave out --max-steps"
        )
