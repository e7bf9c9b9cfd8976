"""A learned agent outside of its training: load it, and let it act."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols import Agent
from empo_latent.controller import Controller
from empo_latent.environments.tasks import ActionBounds
from empo_latent.modelfile import LoadedModel, load_model
from empo_latent.params import Actor
from empo_latent.planner import discounts, planner_of
from empo_latent.types import MultiTaskSpec


class LatentAgent(Agent):
    """A learned model with planner and controller, which acts in one environment or in several.

    Attributes:
        model: The networks.
        params: Of the run that learned them.
        spec: What they see and do.
        planner: Plans with them.
        controller: Remembers the plan of each environment.
        task_of: The task of each environment, as a ``TaskVector`` of as many has it.
        discounts: Of each task, per step.
    """

    def __init__(
        self, loaded: LoadedModel, *, task_of: Int[np.ndarray, " env"], device: str = "cpu"
    ) -> None:
        """Act with a model that was loaded, in an environment of each of these tasks."""
        self.model, self.params, self.spec = loaded
        self.model.to(device)
        self.task_of, self.discounts = task_of, discounts(self.params, self.spec)
        rates = torch.tensor(self.discounts, device=device)
        self.planner = planner_of(self.model, self.params, rates, compiled=False)
        self.controller = Controller(self.model, self.planner, envs=len(task_of), device=device)
        self._bounds = ActionBounds(*zip(*self.spec.bounds[int(task_of[0])], strict=True))
        self.reset()

    def reset(self) -> None:
        """Say that the next observation ``act`` is given is the first of an episode."""
        self._first, self._repeats = True, 0
        self._action: Float[np.ndarray, " number"] = np.empty(0, np.float32)

    def act(
        self,
        observation: Shaped[np.ndarray, "*shape"],
        *,
        actor: Actor = "planner",
        explore: bool = False,
    ) -> Float[np.ndarray, " number"]:
        """The action in one environment, between its own bounds, as ``env.step`` takes it.

        Call ``reset`` where an episode begins: the plan so far is forgotten then. An agent that
        learned with actions repeated decides as rarely, and returns each action as often.

        Args:
            observation: What the environment shows, in its own shape; Dict and Tuple flattened as
                ``gymnasium.spaces.flatten`` does, pictures as in training: bytes, channel first,
                frames stacked.
            actor: Who acts.
            explore: Whether to act as in training, with noise.

        Raises:
            ConfigError: if the agent is for several environments.
            CollectError: if the observation has not as many numbers as those of the task.
        """
        if len(self.task_of) != 1:
            raise ConfigError(
                f"the agent acts in {len(self.task_of)} environments: call act_all, or load it "
                "with envs=1"
            )
        if not self._repeats:
            row = self._row(np.asarray(observation))
            first = np.array([self._first])
            scaled = self.act_all(row[None], first, actor=actor, explore=explore)[0]
            self._action, self._first = self._bounds.action(scaled), False
            self._repeats = self.spec.action_repeats[int(self.task_of[0])]
        self._repeats -= 1
        return self._action.copy()

    def act_all(
        self,
        observation: Shaped[np.ndarray, "env word"],
        first: Bool[np.ndarray, " env"],
        *,
        actor: Actor = "planner",
        explore: bool = False,
    ) -> Float[np.ndarray, "env action"]:
        """Actions in [-1, 1], as ``TaskVector.step`` takes them.

        Args:
            observation: What environments show, as ``TaskVector`` has it: flat, frames stacked.
            first: Which of them began a new episode: their plans are forgotten.
            actor: Who acts.
            explore: Whether to act as in training, with noise.
        """
        task = self.task_of if len(self.spec.tasks) > 1 else None
        acted = self.controller.act(observation, first, task=task, actor=actor, explore=explore)
        return acted.action.numpy()

    def _row(self, observation: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, " word"]:
        """The observation flat, with zeros behind where other tasks show more."""
        spec, task = self.spec, int(self.task_of[0])
        words = spec.sizes[task]
        if observation.dtype == object or math.prod(observation.shape) != words:
            shape = spec.shape if spec.pictures else (words,)
            raise CollectError(
                f"the observation has shape {observation.shape}, and {spec.tasks[task]} shows "
                f"{words} numbers {shape}: flatten what is a dictionary with "
                "gymnasium.spaces.flatten, and stack and resize pictures as in training"
            )
        row = np.zeros(spec.words, np.uint8 if spec.pictures else np.float32)
        row[:words] = observation.reshape(-1)
        return row


def load_latent_agent(
    path: str | Path, *, envs: int = 1, task: str | None = None, device: str = "cpu"
) -> LatentAgent:
    """The agent that a run left in ``results/model.safetensors``.

    Args:
        path: The file.
        envs: Environments that it acts in at once.
        task: Name of the task that all of them play; None: environment ``e`` plays task
            ``e % len(tasks)``.
        device: Where it computes, whatever it was learned on. Nothing is compiled.

    Raises:
        StorageError: if the file is missing, damaged, foreign, or written by another version.
        ConfigError: if the agent learned no such task.
    """
    loaded = load_model(path)
    return LatentAgent(loaded, task_of=tasks_played(loaded.spec, envs, task), device=device)


def tasks_played(spec: MultiTaskSpec, envs: int, task: str | None) -> Int[np.ndarray, " env"]:
    """The task of each environment; see ``load_latent_agent``.

    Raises:
        ConfigError: if the agent learned no such task.
    """
    if task is None:
        return np.arange(envs) % len(spec.tasks)
    if task not in spec.tasks:
        raise ConfigError(f"the agent did not learn {task!r}; it learned {', '.join(spec.tasks)}")
    return np.full(envs, spec.tasks.index(task))
