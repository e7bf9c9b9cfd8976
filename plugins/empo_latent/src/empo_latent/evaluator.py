"""Evaluations in the course of a run: whole episodes, without effect on the training."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from empo_core.errors import CollectError, ConfigError
from empo_core.random_streams import Stream, seed_of, stream
from empo_latent.environments.task_vector import TaskVector
from empo_latent.environments.tasks import Task
from empo_latent.episode_recorder import RecordedEpisode, sequence_batch
from empo_latent.evaluation import Evaluation, Recording, evaluate
from empo_latent.learning.updater import Updater
from empo_latent.metric_keys import logged_key
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_latent.videos import warn_no_videos
from empo_learning.randomness import capture, restore, seeded

log = logging.getLogger(__name__)

MOST_ENVS = 10
"""Environments of an evaluation that play at once."""


class Evaluator:
    """Lets the agent play whole episodes, and looks at its losses on them."""

    def __init__(
        self,
        params: LatentParams,
        tasks: Sequence[Task],
        seed: int,
        model: LatentModel,
        planner: Planner,
        updater: Updater,
        discounts: Sequence[float],
    ) -> None:
        """Prepare for the tasks of a run, of this seed, with their discounts."""
        self._params, self._tasks, self._seed = params, tasks, seed
        self._model, self._planner, self._updater = model, planner, updater
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
                record: list[RecordedEpisode] | None = [] if reporting.validate_losses else None
                evaluations[actor] = evaluate(
                    self._model,
                    self._planner,
                    vector,
                    episodes=episodes,
                    actor=actor,
                    seed=seed,
                    device=self._params.compute.device,
                    discounts=self._discounts,
                    recording=Recording(
                        videos=videos if rendering else 0,
                        episodes=record,
                        expert=record is not None and self._updater.needs_expert,
                    ),
                )
                metrics |= evaluations[actor].metrics()
                if record is not None:
                    losses = self._losses(record, steps)
                    metrics |= {f"eval/{actor}/{logged_key(key)}": x for key, x in losses.items()}
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

    def _losses(self, record: Sequence[RecordedEpisode], steps: int) -> dict[str, float]:
        """The losses on episodes that are not trained on."""
        batch = sequence_batch(
            record,
            horizon=self._params.learning.horizon,
            count=self._params.replay.batch_size,
            tasks=len(self._tasks),
            generator=torch.Generator().manual_seed(
                seed_of(stream(self._seed, Stream.EVALUATION, steps, 1))
            ),
        )
        if batch is None:
            return {}
        before = capture()
        try:
            losses = self._updater.losses(batch.to(self._params.compute.device))
        finally:
            restore(before)
        return {name: float(number) for name, number in losses.items()}


def evaluation_vector(
    params: LatentParams, tasks: Sequence[Task], episodes: int, *, rendering: bool = False
) -> TaskVector:
    """Environments for so many episodes of each task, one per episode up to a limit."""
    envs = len(tasks) * max(1, min(episodes, MOST_ENVS // len(tasks)))
    threads = min(params.collection.env_threads, envs)
    return TaskVector(tasks, envs=envs, threads=threads, rendering=rendering)
