"""Episodes of a finished or interrupted run, in environments of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from empo_core.errors import ConfigError
from empo_core.protocols import PlayedEpisodes
from empo_latent.agent import LatentAgent
from empo_latent.environments.tasks import Task
from empo_latent.evaluation import evaluate_actors
from empo_latent.networks.model import LatentModel
from empo_latent.onnx_policy import export_policy
from empo_latent.params import LatentParams
from empo_latent.planner import planner_of
from empo_latent.types import MultiTaskSpec
from empo_learning.evaluation.player import FilmedEpisodes, PolicyPlayer


def player_of(
    params: LatentParams, tasks: Sequence[Task], model: LatentModel, spec: MultiTaskSpec
) -> PolicyPlayer:
    """The player of a model in the tasks of its run, whose ``spec`` it was made for.

    The planner acts, the policy, or one after the other, as ``reporting.evaluate`` says.
    """

    def export(number: int, path: Path) -> None:
        export_policy(model, spec, number, path)

    source = partial(episodes_of, params, tasks, model, spec)
    agent = partial(LatentAgent, model, params, spec)
    return PolicyPlayer(spec.tasks, source, agent=agent, export=export, unasked_films=1)


def episodes_of(
    params: LatentParams,
    tasks: Sequence[Task],
    model: LatentModel,
    spec: MultiTaskSpec,
    *,
    episodes: int,
    seed: int,
    max_steps: int | None = None,
    films: int = 0,
) -> FilmedEpisodes:
    """Episodes of each task by each actor; see ``EpisodeSource``."""
    if max_steps is not None:
        raise ConfigError(
            "episodes of algorithm 'latent' end where its tasks end them (max_episode_steps); "
            "leave out --max-steps"
        )
    evaluations = evaluate_actors(
        model,
        planner_of(model, params, spec, compiled=False),
        params,
        tasks,
        episodes=episodes,
        seed=seed,
        discounts=params.discounts(spec.episode_lengths),
        device="cpu",
        videos=films,
        must_film=True,
    ).values()
    groups = []
    for number, task in enumerate(spec.tasks):
        for evaluation in evaluations:
            mine = [episode for episode in evaluation.episodes if episode.task == number]
            ends = Counter("terminated" if episode.terminated else "truncated" for episode in mine)
            reported = [episode.success for episode in mine if episode.success is not None]
            groups.append(
                PlayedEpisodes(
                    group={"task": task, "actor": evaluation.actor},
                    returns=np.array([episode.total for episode in mine]),
                    lengths=np.array([episode.length for episode in mine]),
                    ends=dict(sorted(ends.items())),
                    successes=np.array(reported) if reported else None,
                )
            )
    videos = [video for evaluation in evaluations for video in evaluation.videos]
    return FilmedEpisodes(groups, videos)
