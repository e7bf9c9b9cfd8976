"""Episodes of a run, while it learns and afterwards, in environments of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from empo_core.best_effort import best_effort
from empo_environments.normalisation import Normaliser
from empo_learning.evaluation.player import FilmedEpisodes, PolicyPlayer
from empo_learning.evaluation.videos import EpisodeCamera
from empo_rollout.agent import RolloutAgent
from empo_rollout.evaluation import EvaluationPlan, play
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.onnx_policy import export_policy
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Networks


def player_of(
    params: RolloutParams, environments: EnvironmentFactory, policy: Networks
) -> PolicyPlayer:
    """The player of a policy, on the CPU, in the environments of its run.

    Actions are drawn, or the likeliest ones, as ``reporting.deterministic`` says.
    """
    spec, deterministic = environments.spec, params.reporting.deterministic

    def agent(number: int) -> RolloutAgent:
        return RolloutAgent(policy, spec, number, params.compute, deterministic=deterministic)

    def export(number: int, path: Path) -> None:
        export_policy(policy, spec, number, path)

    source = partial(episodes_of, params, environments, policy)
    return PolicyPlayer(spec.agents, source, agent=agent, export=export)


def episodes_of(
    params: RolloutParams,
    environments: EnvironmentFactory,
    policy: Networks,
    *,
    episodes: int,
    seed: int,
    max_steps: int | None = None,
    films: int = 0,
    device: torch.device | None = None,
    normaliser: Normaliser | None = None,
) -> FilmedEpisodes:
    """Episodes of each agent; see ``EpisodeSource``.

    An episode that goes on after ``max_steps`` (``reporting.evaluation_steps``) counts as it
    stands. Films are of one copy, with all its agents, which plays as many episodes as it films.
    ``device`` is where the policy is (None: on the CPU), and ``normaliser`` normalises
    observations for a policy that does not do so itself.
    """
    reporting, camera = params.reporting, None
    if films:
        episodes_each = films
        vector, draw = environments.filmed()
        name, fps = environments.name, vector.spec.render_fps
        camera = EpisodeCamera(draw, episodes=films, name=name, actor="policy", fps=fps)
    else:
        vector, episodes_each = environments.evaluation(episodes * len(environments.spec.agents))
    plan = EvaluationPlan(
        episodes_each=episodes_each,
        most_steps=reporting.evaluation_steps if max_steps is None else max_steps,
        deterministic=reporting.deterministic,
    )
    try:
        groups = play(
            policy,
            vector,
            plan,
            seed=seed,
            compute=params.compute,
            device=device or torch.device("cpu"),
            normaliser=normaliser,
            camera=camera,
        )
    finally:
        with best_effort("closing the environments of an evaluation"):
            vector.close()
    return FilmedEpisodes(groups, () if camera is None else camera.videos)
