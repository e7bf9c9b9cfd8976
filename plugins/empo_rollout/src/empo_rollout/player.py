"""Episodes of a run, while it learns and afterwards, in environments of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from empo_core.best_effort import best_effort
from empo_core.protocols import EpisodePlayer, PlayedEpisodes
from empo_core.protocols.environments import VectorEnv
from empo_environments.normalisation import Normaliser
from empo_learning.evaluation.videos import EpisodeCamera, save_videos
from empo_rollout.agent import RolloutAgent
from empo_rollout.evaluation import EvaluationPlan, play
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.onnx_policy import export_policy
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Networks


class RolloutPlayer(EpisodePlayer):
    """Lets a policy act in the environments of its run; an ``empo_core.protocols.EpisodePlayer``.

    Actions are drawn, or the likeliest ones, as ``reporting.deterministic`` says.
    """

    films = True

    def __init__(
        self,
        params: RolloutParams,
        environments: EnvironmentFactory,
        policy: Networks,
        *,
        device: torch.device | None = None,
        normaliser: Normaliser | None = None,
    ) -> None:
        """Prepare; no environment is made yet.

        Args:
            params: Of the run.
            environments: Makes its environments.
            policy: Who acts.
            device: Where the policy is; None: on the CPU.
            normaliser: Normalises observations for a policy that does not do so itself.
        """
        self._params, self._environments, self._policy = params, environments, policy
        self._device, self._normaliser = device or torch.device("cpu"), normaliser
        self.members = environments.spec.agents

    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Episodes of each agent; see ``EpisodePlayer.play``.

        An episode that goes on after ``max_steps`` (``reporting.evaluation_steps``) counts as it
        stands.
        """
        vector, episodes_each = self._environments.evaluation(episodes * len(self.members))
        return self._played(vector, episodes_each, seed, max_steps)

    def film(
        self, directory: Path, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[Path]:
        """Animations of episodes of one copy, with all its agents; see ``EpisodePlayer.film``."""
        vector, draw = self._environments.filmed()
        camera = EpisodeCamera(
            draw,
            episodes=episodes,
            name=self._environments.name,
            actor="policy",
            fps=vector.spec.render_fps,
        )
        self._played(vector, episodes, seed, max_steps, camera)
        return save_videos(camera.videos, directory)

    def _played(
        self,
        vector: VectorEnv,
        episodes_each: int,
        seed: int,
        max_steps: int | None = None,
        camera: EpisodeCamera | None = None,
    ) -> Sequence[PlayedEpisodes]:
        """Episodes of each agent in environments that are closed in the end."""
        reporting = self._params.reporting
        plan = EvaluationPlan(
            episodes_each=episodes_each,
            most_steps=reporting.evaluation_steps if max_steps is None else max_steps,
            deterministic=reporting.deterministic,
        )
        try:
            return play(
                self._policy,
                vector,
                plan,
                seed=seed,
                compute=self._params.compute,
                device=self._device,
                normaliser=self._normaliser,
                camera=camera,
            )
        finally:
            with best_effort("closing the environments of an evaluation"):
                vector.close()

    def _export_onnx(self, path: Path, number: int) -> None:
        export_policy(self._policy, self._environments.spec, number, path)

    def _agent(self, number: int) -> RolloutAgent:
        return RolloutAgent(
            self._policy,
            self._environments.spec,
            number,
            self._params.compute,
            deterministic=self._params.reporting.deterministic,
        )
