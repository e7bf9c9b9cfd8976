"""A learned policy in one environment that the caller steps."""

from __future__ import annotations

import logging

import numpy as np
import torch
from jaxtyping import Bool, Shaped

from empo_core.protocols import Agent
from empo_core.protocols.environments import EnvSpec
from empo_learning.agent import observation_row
from empo_learning.observation_bounds import ObservationBounds
from empo_rollout.collector import observation_tensor
from empo_rollout.params import ComputeParams
from empo_rollout.policy import Networks, autocast

log = logging.getLogger(__name__)


class RolloutAgent(Agent):
    """One agent of an environment, with the memory of its policy.

    An observation beyond the bounds that its space had in training is a warning, once.
    """

    def __init__(
        self,
        policy: Networks,
        env_spec: EnvSpec,
        index: int,
        compute: ComputeParams,
        *,
        deterministic: bool,
    ) -> None:
        """Act as agent number ``index`` of ``env_spec.agents``."""
        self._policy, self._spec, self._compute = policy, env_spec, compute
        self._deterministic = deterministic
        self._index = torch.tensor([index])
        # Those of training, which the saved model has, and not those of the environments now.
        self._bounds, self._has_warned = ObservationBounds(policy.observations), False
        self.reset()

    def reset(self) -> None:
        """Begin an episode: the next observation is its first."""
        self._memory, self._starts = self._policy.initial_memory(1), torch.tensor([True])

    @torch.no_grad()
    def act(
        self,
        observation: Shaped[np.ndarray, "*shape"],
        mask: Bool[np.ndarray, " option"] | None = None,
    ) -> Shaped[np.ndarray, "*number"]:
        """The action, drawn, or the likeliest one, as ``reporting.deterministic`` says.

        Args:
            observation: What the environment shows, in its own shape; Dict and Tuple flattened as
                ``gymnasium.spaces.flatten`` does.
            mask: Options that are available, where the environment has masks of them.

        Returns:
            An option, counted from 0, without axes; several choices or numbers in a row.

        Raises:
            CollectError: if the observation has not as many numbers as in the run.
        """
        spec = self._spec.observations
        row = observation_row(
            np.asarray(observation), words=spec.words, dtype=spec.dtype, picture=spec.grid
        )
        if not self._has_warned and (outside := self._bounds.outside(row)):
            self._has_warned = True
            log.warning(
                "the observation is outside of the bounds that its space had in training: %s. What "
                "the policy does there is not learned; this is told once",
                outside,
            )
        rows = observation_tensor(row[None], torch.device("cpu"))
        options = None if mask is None else torch.from_numpy(np.asarray(mask, bool))[None]
        with autocast(self._compute):
            distribution, _, self._memory = self._policy.step(
                rows, self._memory, self._starts, self._index, options
            )
        self._starts = torch.tensor([False])
        chosen = distribution.mode if self._deterministic else distribution.sample()
        action: np.ndarray = chosen[0].numpy()
        actions = self._spec.actions
        if actions.is_discrete:
            return action.reshape(()) if len(actions.choices) == 1 else action
        return action.clip(actions.low, actions.high).astype(np.float32)
