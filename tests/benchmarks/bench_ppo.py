"""Proximal policy optimisation on CartPole: ours, by both gradients, and Stable-Baselines3's.

Both get the same environment, networks, hyperparameters and numbers of steps and updates, one
process and one thread, turn by turn with several seeds. Printed are steps per second of processor
time, milliseconds of it per minibatch and per step of all environments, medians over the seeds, and
the mean return of the newest 100 episodes at shares of the run.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_ppo.py [--seeds 5] [--steps 131072]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core.config import RunConfig
from empo_core.experiment import run
from empo_core.protocols import Tracker
from empo_rollout.collector import RolloutCollector
from empo_rollout.ppo import Updater

ENVS = 64
GAMMA, LAMBDA, RATE, CLIP = 0.98, 0.8, 1e-3, 0.2
SETTINGS = {"32 steps, 10 x 8 minibatches": (32, 256, 10), "128 steps, 4 x 4": (128, 2048, 4)}
"""Steps of each environment in a rollout, steps of a minibatch, and how often all is gone through:
many small updates as in example ppo_cartpole.yaml, or few large ones as in CleanRL."""

Setting = tuple[int, int, int]
SHARES = (0.1, 0.25, 0.5, 1.0)


class Measured(NamedTuple):
    """A run: steps per second of processor time, parts of it, and how well it learned.

    Attributes:
        speed: Steps per second.
        minibatch_ms: Of an update, per minibatch.
        step_ms: Of collection, per step of all environments.
        returns: Mean returns at shares of the run.
    """

    speed: float
    minibatch_ms: float
    step_ms: float
    returns: list[float]


def measured(
    seconds: float,
    update_s: float,
    collect_s: float,
    steps: int,
    setting: Setting,
    curve: list[float],
) -> Measured:
    """A run of so many steps, of seconds of processor time."""
    _, minibatch, epochs = setting
    return Measured(
        steps / seconds,
        1e3 * update_s * minibatch / (steps * epochs),
        1e3 * collect_s * ENVS / steps,
        at_shares(curve),
    )


@contextmanager
def timed(kind: type, name: str) -> Iterator[list[float]]:
    """Processor seconds of each call of a method, while entered."""
    seconds: list[float] = []
    method = getattr(kind, name)

    def measuring(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return method(*arguments, **named)
        finally:
            seconds.append(time.process_time() - began)

    setattr(kind, name, measuring)
    try:
        yield seconds
    finally:
        setattr(kind, name, method)


def ours(seed: int, steps: int, setting: Setting, gradient: str = "autograd") -> Measured:
    """A run of our own."""
    horizon, minibatch, epochs = setting
    params: dict[str, Any] = {
        "total_steps": steps,
        "environment": "gymnasium/CartPole-v1",
        "num_envs": ENVS,
        "vectorisation": {"backend": "serial"},
        "experience": {"bptt_horizon": horizon},
        "gamma": GAMMA,
        "advantages": {"gae_lambda": LAMBDA},
        "update": {
            "update_epochs": epochs,
            "minibatch_size": minibatch,
            "sampling": "steps",
            "gradient": gradient,
        },
        "losses": [{"loss": {"name": "ppo", "params": {"clip": CLIP, "entropy": {"coef": 0.0}}}}],
        "optimiser": {"lr": RATE, "lr_schedule": "linear", "eps": 1e-5},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 0, "checkpoint_interval": 0},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        timed(Updater, "update") as update,
        timed(RolloutCollector, "collect") as collect,
    ):
        config = RunConfig.model_validate(
            {
                "algorithm": {"name": "rollout", "params": params},
                "trackers": [],
                "seed": seed,
                "runs": folder,
            }
        )
        clock = Clock()
        result: Any = run(config, watchers=[clock])
    means = (row.mean_return for row in result.record.history)
    curve = [float("nan") if mean is None else mean for mean in means]
    return measured(clock.seconds, sum(update), sum(collect), steps, setting, curve)


class Clock(Tracker):
    """A tracker that takes the time from the start of a run to the end of its last iteration.

    So making environments and networks counts, as it does for the others, and writing results
    does not, which they do not do.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Take the time."""
        self._began = time.process_time()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take the time again."""
        self.seconds = time.process_time() - self._began


def theirs(seed: int, steps: int, setting: Setting) -> Measured:
    """The same by Stable-Baselines3."""
    horizon, minibatch, epochs = setting
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    class Curve(BaseCallback):
        """Notes the mean return of the newest episodes after each rollout."""

        def __init__(self) -> None:
            super().__init__()
            self.curve: list[float] = []
            self.newest: deque[float] = deque(maxlen=100)

        def _on_step(self) -> bool:
            self.newest.extend(i["episode"]["r"] for i in self.locals["infos"] if "episode" in i)
            return True

        def _on_rollout_end(self) -> None:
            self.curve.append(float(np.mean(self.newest)) if self.newest else float("nan"))

    curve = Curve()
    began = time.process_time()
    envs = VecMonitor(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS))
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=horizon,
        batch_size=minibatch,
        n_epochs=epochs,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        learning_rate=lambda left: RATE * left,
        clip_range=CLIP,
        ent_coef=0.0,
        seed=seed,
        device="cpu",
    )
    with timed(PPO, "train") as update, timed(PPO, "collect_rollouts") as collect:
        model.learn(steps, callback=curve)
    seconds = time.process_time() - began
    return measured(seconds, sum(update), sum(collect), steps, setting, curve.curve)


def at_shares(curve: Sequence[float]) -> list[float]:
    """The numbers of a curve at ``SHARES`` of its length."""
    return [curve[max(0, round(share * len(curve)) - 1)] for share in SHARES]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=131_072)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for learn in (theirs, ours):  # Imports, and what is done only once.
        learn(0, 2048, (32, 256, 1))
    table = Table(title=f"PPO, CartPole x {ENVS}, {arguments.steps:,} steps, one thread")
    table.add_column("updates")
    table.add_column("who")
    table.add_column("steps/s", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("minibatch, ms", justify="right")
    table.add_column("step, ms", justify="right")
    for share in SHARES:
        table.add_column(f"return at {share:.0%}", justify="right")
    for name, setting in SETTINGS.items():
        compare(table, name, setting, arguments.seeds, arguments.steps)
    Console(width=180).print(table)


def compare(table: Table, name: str, setting: Setting, seeds: int, steps: int) -> None:
    """Add three rows, of runs that took turns."""
    results: dict[str, list[Measured]] = {
        who: [] for who in ("Stable-Baselines3", "EMPO, autograd", "EMPO, closed-form")
    }
    for seed in range(seeds):
        results["Stable-Baselines3"].append(theirs(seed, steps, setting))
        for gradient in ("autograd", "closed-form"):
            results[f"EMPO, {gradient}"].append(ours(seed, steps, setting, gradient))
    baseline = median(run.speed for run in results["Stable-Baselines3"])
    for who, runs in results.items():
        speed = median(run.speed for run in runs)
        returns = np.nanmean([run.returns for run in runs], axis=0)
        table.add_row(
            name,
            who,
            f"{speed:,.0f}",
            f"{speed / baseline:.2f} x",
            f"{median(run.minibatch_ms for run in runs):.2f}",
            f"{median(run.step_ms for run in runs):.2f}",
            *(f"{number:.0f}" for number in returns),
        )


if __name__ == "__main__":
    main()
