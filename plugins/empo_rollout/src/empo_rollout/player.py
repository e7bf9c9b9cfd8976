"""Episodes of a finished or interrupted run, in environments of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from empo_core.best_effort import best_effort
from empo_core.errors import ConfigError
from empo_core.protocols import EpisodePlayer, PlayedEpisodes
from empo_rollout.agent import RolloutAgent
from empo_rollout.evaluation import EvaluationPlan, outcomes
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Networks

UNFINISHED = "unfinished"
"""Reason of episodes that had not ended when waiting ended."""


class RolloutPlayer(EpisodePlayer):
    """Lets a policy act in the environments of its run; an ``empo_core.protocols.EpisodePlayer``.

    Actions are drawn, or the likeliest ones, as ``reporting.deterministic`` says.
    """

    def __init__(
        self, params: RolloutParams, environments: EnvironmentFactory, policy: Networks
    ) -> None:
        """Prepare; no environment is made yet."""
        self._params, self._environments, self._policy = params, environments, policy

    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Episodes of each agent; see ``EpisodePlayer.play``.

        An episode that goes on after ``max_steps`` (``reporting.evaluation_steps``) counts as it
        stands.
        """
        reporting = self._params.reporting
        agents = self._environments.spec.agents
        vector, episodes_each = self._environments.evaluation(episodes * len(agents))
        plan = EvaluationPlan(
            episodes_each=episodes_each,
            most_steps=reporting.evaluation_steps if max_steps is None else max_steps,
            deterministic=reporting.deterministic,
        )
        try:
            outcome = outcomes(
                self._policy,
                vector,
                plan,
                seed=seed,
                compute=self._params.compute,
                device=torch.device("cpu"),
            )
            reasons = [*vector.spec.reasons, UNFINISHED]  # At -1.
        finally:
            with best_effort("closing the environments"):
                vector.close()
        played = []
        for index, name in enumerate(agents):
            mine = outcome.agent == index
            if not mine.any():
                continue  # An agent that never acted.
            counts = np.bincount(outcome.reasons[mine] % len(reasons), minlength=len(reasons))
            played.append(
                PlayedEpisodes(
                    group={"agent": name},
                    returns=outcome.returns[mine],
                    lengths=outcome.lengths[mine],
                    ends={name: int(n) for name, n in zip(reasons, counts, strict=True) if n},
                )
            )
        return played

    def agent(self, member: str | None = None) -> RolloutAgent:
        """One agent of the environments; see ``EpisodePlayer.agent``."""
        spec = self._environments.spec
        name = spec.agents[0] if member is None else member
        if name not in spec.agents:
            raise ConfigError(f"there is no agent {name!r}; there are {', '.join(spec.agents)}")
        return RolloutAgent(
            self._policy,
            spec,
            spec.agents.index(name),
            self._params.compute,
            deterministic=self._params.reporting.deterministic,
        )
