"""A learned model in one environment that the caller steps."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Shaped

from empo_core.protocols import Agent
from empo_latent.controller import Controller
from empo_latent.environments.tasks import ActionBounds
from empo_latent.networks.model import LatentModel
from empo_latent.params import Actor, LatentParams
from empo_latent.planner import planner_of
from empo_latent.types import MultiTaskSpec
from empo_learning.agent import observation_row


class LatentAgent(Agent):
    """A model that acts in one of its tasks, on the CPU, with a plan that it remembers."""

    def __init__(
        self, model: LatentModel, params: LatentParams, spec: MultiTaskSpec, task: int
    ) -> None:
        """Act in task number ``task`` of ``spec.tasks``."""
        planner = planner_of(model, params, spec, compiled=False)
        self._controller = Controller(model, planner, envs=1, device="cpu")
        self._spec, self._task = spec, task
        self._tasks = torch.tensor([task]) if len(spec.tasks) > 1 else None
        self._bounds = ActionBounds(*zip(*spec.bounds[task], strict=True))
        self.reset()

    def reset(self) -> None:
        """Begin an episode: the plan so far is forgotten."""
        self._first, self._repeats = True, 0
        self._action: Float[np.ndarray, " number"] = np.empty(0, np.float32)

    def act(
        self, observation: Shaped[np.ndarray, "*shape"], *, actor: Actor = "planner"
    ) -> Float[np.ndarray, " number"]:
        """The action between the environment's own bounds.

        An agent that learned with actions repeated decides as rarely, and returns each action as
        often.

        Args:
            observation: What the environment shows, in its own shape; Dict and Tuple flattened as
                ``gymnasium.spaces.flatten`` does, pictures with frames stacked as in training.
            actor: Who acts.

        Raises:
            CollectError: if the observation has not as many numbers as those of the task.
        """
        if not self._repeats:
            row, first = self._row(np.asarray(observation)), np.array([self._first])
            acted = self._controller.act(
                row[None], first, task=self._tasks, actor=actor, explore=False
            )
            self._action, self._first = self._bounds.action(acted.action[0].numpy()), False
            self._repeats = self._spec.action_repeats[self._task]
        self._repeats -= 1
        return self._action.copy()

    def _row(self, observation: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, " word"]:
        """The observation flat, with zeros behind where other tasks show more."""
        spec = self._spec
        row = observation_row(
            observation,
            words=spec.sizes[self._task],
            dtype="uint8" if spec.pictures else "float32",
            picture=spec.shape if spec.pictures else None,
        )
        return np.pad(row, (0, spec.words - len(row)))
