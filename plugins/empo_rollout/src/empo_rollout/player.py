"""Episodes of a run, while it learns and afterwards, in environments of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from empo_core.best_effort import best_effort
from empo_core.protocols import EpisodePlayer, PlayedEpisodes
from empo_environments.normalisation import Normaliser
from empo_rollout.agent import RolloutAgent
from empo_rollout.evaluation import EvaluationPlan, play
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.policy import ActorCritic


class RolloutPlayer(EpisodePlayer):
    """Lets a policy act in the environments of its run; an ``empo_core.protocols.EpisodePlayer``.

    Actions are drawn, or the likeliest ones, as ``reporting.deterministic`` says.
    """

    def __init__(
        self,
        params: RolloutParams,
        environments: EnvironmentFactory,
        policy: ActorCritic,
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
        reporting = self._params.reporting
        vector, episodes_each = self._environments.evaluation(episodes * len(self.members))
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
            )
        finally:
            with best_effort("closing the environments of an evaluation"):
                vector.close()

    def _agent(self, number: int) -> RolloutAgent:
        return RolloutAgent(
            self._policy,
            self._environments.spec,
            number,
            self._params.compute,
            deterministic=self._params.reporting.deterministic,
        )
