"""A learned agent outside of its training: load it, and let it act."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped

from empo_latent.controller import Controller
from empo_latent.modelfile import load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.params.run import Actor
from empo_latent.planning.mppi import Planner
from empo_latent.types import MultiTaskSpec


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A learned model with planner and controller.

    Attributes:
        model: The networks.
        params: Of the run that learned them.
        spec: What they see and do.
        planner: Plans with them.
        controller: Remembers the plan of each environment.
        task_of: The task of each environment, as a ``TaskVector`` of as many has it.
        discounts: Of each task, per step.
    """

    model: LatentModel
    params: LatentParams
    spec: MultiTaskSpec
    planner: Planner
    controller: Controller
    task_of: Int[np.ndarray, " env"]
    discounts: list[float]

    def act(
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


def load_agent(path: str | Path, *, envs: int = 1, device: str = "cpu") -> Agent:
    """The agent that a run left in ``results/model.safetensors``.

    Args:
        path: The file.
        envs: Environments that it acts in at once; environment ``e`` plays task
            ``e % len(tasks)``.
        device: Where it computes, whatever it was learned on. Nothing is compiled.

    Raises:
        StorageError: It is missing, damaged, foreign, or written by another version.
    """
    model, params, spec = load_model(path)
    model.to(device)
    rates = discounts(params, spec)
    planner = planner_of(model, params, torch.tensor(rates, device=device), compiled=False)
    return Agent(
        model=model,
        params=params,
        spec=spec,
        planner=planner,
        controller=Controller(model, planner, envs=envs, device=device),
        task_of=np.arange(envs) % len(spec.tasks),
        discounts=rates,
    )


def planner_of(
    model: LatentModel, params: LatentParams, rates: Float[torch.Tensor, " task"], *, compiled: bool
) -> Planner:
    """The planner of a run, with its discounts per task."""
    return Planner(
        model,
        params.planner,
        horizon=params.learning.horizon,
        discount=rates,
        episodic=params.reward.episodic,
        critic=params.value.critic,
        values=params.value.heads,
        precision=params.compute.precision,
        compiled=compiled,
    )


def discounts(params: LatentParams, spec: MultiTaskSpec) -> list[float]:
    """The discount of each task: as given, or by the length of its episodes (TD-MPC2)."""
    given, rule = params.gamma, params.discount
    if given is not None:
        return [given] * len(spec.tasks)
    return [
        min(max(1 - rule.denominator / length, rule.least), rule.greatest)
        for length in spec.episode_lengths
    ]
