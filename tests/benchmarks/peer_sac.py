"""Soft actor-critic of Stable-Baselines3, in the tasks of ``latent_curves.py``.

Hyperparameters are the library's defaults. Like the latent agent it is evaluated by whole episodes
with its likeliest actions, in an environment of its own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import torch

from empo_core.random_streams import Stream, seed_of, stream
from empo_core.storage.arrays import write_file
from empo_environments.dmc import DmcEnv
from empo_latent.result import CurveRow
from empo_learning.report import csv_text

GymEnv = gymnasium.Env[np.ndarray, np.ndarray]


class RepeatedAction(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """Does each action so many times, and adds the rewards up."""

    def __init__(self, env: GymEnv, repeat: int) -> None:
        super().__init__(env)
        self._repeat = repeat

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Results of the last repetition, with the sum of rewards."""
        total = 0.0
        for _ in range(self._repeat):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def environment(task: Mapping[str, Any]) -> GymEnv:
    """A task by its config, as a Gymnasium environment."""
    params = task["params"]
    if task["name"] == "gymnasium":
        return gymnasium.make(params["id"])
    return RepeatedAction(DmcEnv(params["task"]), params.get("action_repeat", 1))


def name_of(task: Mapping[str, Any]) -> str:
    """Name of a task within its library."""
    params = task["params"]
    return str(params.get("task") or params["id"])


def learn(
    task: Mapping[str, Any], *, seed: int, steps: int, interval: int, episodes: int
) -> Iterator[CurveRow]:
    """Learn for so many steps, and evaluate every ``interval`` of them (0: at the end)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_baselines3 import SAC
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    model = SAC("MlpPolicy", environment(task), seed=seed, device="cpu")
    repeat = task["params"].get("action_repeat", 1)
    seconds = 0.0
    while model.num_timesteps < steps:
        began = time.perf_counter()
        model.learn(min(interval or steps, steps - model.num_timesteps), reset_num_timesteps=False)
        seconds += time.perf_counter() - began
        judge = Monitor(environment(task))
        judge.reset(seed=seed_of(stream(seed, Stream.EVALUATION, model.num_timesteps)) % 2**31)
        returns, lengths = evaluate_policy(model, judge, episodes, return_episode_rewards=True)
        yield CurveRow(
            step=model.num_timesteps,
            environment_step=model.num_timesteps * repeat,
            task=name_of(task),
            actor="policy",
            return_mean=float(np.mean(returns)),
            standard_error=float(np.std(returns, ddof=int(episodes > 1)) / episodes**0.5),
            length=float(np.mean(lengths)),
            seconds=round(seconds, 1),
            seed=seed,
        )


def save_curve(path: Path, **options: Any) -> None:
    """Learn with the options of ``learn``, and write its rows as the latent agent's runs do.

    A run that is broken off leaves its rows so far in a file ``.part`` beside ``path``.
    """
    draft, rows = path.with_suffix(".part"), []
    for row in learn(**options):
        rows.append(row)
        write_file(draft, csv_text(CurveRow._fields, rows))
    draft.rename(path)
