"""Proximal policy optimisation on MiniGrid: ours and Stable-Baselines3's, in one run.

Both get the same environment, networks (two layers of 64 units), hyperparameters and numbers of
steps and updates, one process and one thread, turn by turn with several seeds, and play as many
evaluation episodes with their likeliest actions. Printed are mean returns with 95 % intervals over
seeds (Student's t), and the difference.

MiniGrid shows a grid of codes from 0 to 10 and declares them as bytes from 0 to 255. We divide
them by 10, see ``empo_environments.registries.PICTURE_HIGHS``. Stable-Baselines3 takes them for a
picture and divides by 255, unless the array is flattened or ``normalize_images`` is False;
``--peer`` chooses between the two. The goal is to be within 0.02 of the better one.

Needs what ``requirements-dev.txt`` names; peers that are not installed are left out.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_minigrid.py [--seeds 3] [--steps 50000]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core.config import RunConfig
from empo_core.experiment import run
from empo_learning.statistics import interval

ENVIRONMENT = "MiniGrid-Empty-Random-6x6-v0"
ENVS, HORIZON, MINIBATCH, EPOCHS = 8, 128, 64, 10
GAMMA, LAMBDA, RATE, CLIP, EPSILON = 0.99, 0.95, 2.5e-4, 0.2, 1e-5
ALLOWED = 0.02


def ours(seed: int, steps: int, episodes: int) -> float:
    """Mean return of an evaluation after so many steps."""
    params: dict[str, Any] = {
        "total_steps": steps,
        "environment": {"name": "gymnasium", "params": {"id": ENVIRONMENT, "keys": ["image"]}},
        "num_envs": ENVS,
        "vectorisation": {"backend": "serial"},
        "experience": {"bptt_horizon": HORIZON},
        "gamma": GAMMA,
        "advantages": {"gae_lambda": LAMBDA},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [64, 64]}}},
        "update": {
            "update_epochs": EPOCHS,
            "minibatch_size": MINIBATCH,
            "sampling": "steps",
        },
        "losses": [{"loss": {"name": "ppo", "params": {"clip": CLIP, "entropy": {"coef": 0.0}}}}],
        "optimiser": {"lr": RATE, "eps": EPSILON},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": episodes, "checkpoint_interval": 0},
    }
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig.model_validate(
            {
                "algorithm": {"name": "rollout", "params": params},
                "trackers": [],
                "seed": seed,
                "runs": folder,
            }
        )
        result: Any = run(config)
    found: float = result.evaluations[-1].returns.mean_return
    return found


def theirs(seed: int, steps: int, episodes: int, *, scaled: bool) -> float:
    """The same by Stable-Baselines3; ``scaled``: it divides by 255."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from minigrid.wrappers import ImgObsWrapper
        from stable_baselines3 import PPO
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

    def make() -> Any:
        return ImgObsWrapper(gymnasium.make(ENVIRONMENT))

    model = PPO(
        "MlpPolicy",
        VecMonitor(DummyVecEnv([make] * ENVS)),
        n_steps=HORIZON,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        learning_rate=RATE,
        clip_range=CLIP,
        ent_coef=0.0,
        policy_kwargs={
            "normalize_images": scaled,
            "net_arch": [64, 64],
            "optimizer_kwargs": {"eps": EPSILON},
        },
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    unseen = VecMonitor(DummyVecEnv([make] * min(episodes, 100)))
    unseen.seed(10_000_000 + seed)
    mean, _ = evaluate_policy(model, unseen, n_eval_episodes=episodes, deterministic=True)
    return float(mean)


def main() -> None:
    """Print the table; fails where ours is worse by more than is allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--peer", choices=["raw", "scaled", "both", "none"], default="raw")
    arguments = parser.parse_args()
    if importlib.util.find_spec("minigrid") is None:
        sys.exit("minigrid is not installed: pip install -r requirements-dev.txt")
    peers = {"raw": ["raw"], "scaled": ["scaled"], "both": ["raw", "scaled"], "none": []}
    names = peers[arguments.peer]
    if names and importlib.util.find_spec("stable_baselines3") is None:
        print("Stable-Baselines3 is left out: it is not installed")
        names = []
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {f"Stable-Baselines3, {name}": [] for name in names}
    found["EMPO"] = []
    for seed in range(arguments.seeds):
        for who, returns in found.items():
            began = time.perf_counter()
            if who == "EMPO":
                returns.append(ours(seed, arguments.steps, arguments.episodes))
            else:
                scaled = who.endswith("scaled")
                returns.append(theirs(seed, arguments.steps, arguments.episodes, scaled=scaled))
            seconds = time.perf_counter() - began
            print(f"seed {seed}: {who} {returns[-1]:.4f} ({seconds:.0f} s)", flush=True)
    show(found, arguments.steps, arguments.episodes)
    best = max((float(np.mean(found[f"Stable-Baselines3, {name}"])) for name in names), default=0.0)
    sys.exit(best - float(np.mean(found["EMPO"])) > ALLOWED)


def show(results: dict[str, list[float]], steps: int, episodes: int) -> None:
    """Print means, intervals and differences."""
    table = Table(title=f"PPO, {ENVIRONMENT}, {steps:,} steps, {episodes} episodes per seed")
    for name in ("who", "mean return", "95 % interval", "least", "EMPO minus it"):
        table.add_column(name, justify="left" if name == "who" else "right")
    own = float(np.mean(results["EMPO"]))
    for who, returns in results.items():
        mean, half = (float(each) for each in interval(np.array(returns)))
        bounds = f"{mean - half:.4f} to {mean + half:.4f}"
        difference = "" if who == "EMPO" else f"{own - mean:+.4f}"
        table.add_row(who, f"{mean:.4f}", bounds, f"{min(returns):.4f}", difference)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
