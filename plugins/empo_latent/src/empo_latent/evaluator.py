"""Evaluations in the course of a run: whole episodes, without effect on the training."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from empo_core.errors import CollectError, ConfigError
from empo_core.random_streams import Stream, seed_of, stream
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.evaluation import Evaluation, evaluate
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_latent.videos import warn_no_videos
from empo_learning.randomness import seeded

log = logging.getLogger(__name__)

MOST_ENVS = 10
"""Environments of an evaluation that play at once."""


class Evaluator:
    """Lets the agent play whole episodes."""

    def __init__(
        self,
        params: LatentParams,
        tasks: Sequence[Task],
        seed: int,
        model: LatentModel,
        planner: Planner,
        discounts: Sequence[float],
    ) -> None:
        """Prepare for the tasks of a run, of this seed, with their discounts."""
        self._params, self._tasks, self._seed = params, tasks, seed
        self._model, self._planner = model, planner
        self._discounts = discounts

    def evaluate(
        self, steps: int, *, is_last: bool, episodes: int | None = None
    ) -> tuple[dict[str, Evaluation], dict[str, float]]:
        """Evaluate planner, policy, or both.

        Args:
            steps: How far the run is; every evaluation plays other episodes.
            is_last: Whether it is the one to be filmed.
            episodes: Of each task; None: as many as the run asks for.

        Returns:
            What was found by who acted, and numbers for trackers.
        """
        seed = stream(self._seed, Stream.EVALUATION, steps)
        with seeded(seed):  # While environments are made, too.
            return self._evaluated(steps, seed_of(seed), is_last=is_last, episodes=episodes)

    def _evaluated(
        self, steps: int, seed: int, *, is_last: bool, episodes: int | None
    ) -> tuple[dict[str, Evaluation], dict[str, float]]:
        reporting = self._params.reporting
        videos = reporting.videos if is_last else 0
        episodes = episodes or reporting.evaluation_episodes
        vector, rendering = self._vector(episodes, rendering=videos > 0)
        try:
            evaluations: dict[str, Evaluation] = {}
            metrics: dict[str, float] = {}
            for actor in reporting.evaluate:
                evaluations[actor] = evaluate(
                    self._model,
                    self._planner,
                    vector,
                    episodes=episodes,
                    actor=actor,
                    seed=seed,
                    device=self._params.compute.device,
                    discounts=self._discounts,
                    videos=videos if rendering else 0,
                )
                metrics |= evaluations[actor].metrics()
        finally:
            vector.close()
        return evaluations, metrics

    def _vector(self, episodes: int, *, rendering: bool) -> tuple[TaskVector, bool]:
        """Environments of its own; and whether they render."""
        if rendering:
            try:
                return evaluation_vector(self._params, self._tasks, episodes, rendering=True), True
            except (CollectError, ConfigError) as error:
                warn_no_videos(str(error))
        return evaluation_vector(self._params, self._tasks, episodes), False


def evaluation_vector(
    params: LatentParams, tasks: Sequence[Task], episodes: int, *, rendering: bool = False
) -> TaskVector:
    """Environments for so many episodes of each task, one per episode up to a limit."""
    envs = len(tasks) * max(1, min(episodes, MOST_ENVS // len(tasks)))
    return TaskVector(tasks, envs=envs, rendering=rendering)
