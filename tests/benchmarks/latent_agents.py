"""Tasks and agents of the latent agent's learning curves, by name."""

from __future__ import annotations

from typing import Any

from empo_latent.presets import PRESETS

PIXELS = {"pixels": True, "shadows": False, "picture_size": 48, "frame_stack": 3}


def dmc(domain: str, task: str, **params: Any) -> dict[str, Any]:
    """A task of the DeepMind Control Suite."""
    return {"name": "dmc", "params": {"task": f"{domain}-{task}", "action_repeat": 2, **params}}


TASKS: dict[str, dict[str, Any]] = {
    "pendulum": {"name": "gymnasium", "params": {"id": "Pendulum-v1"}},
    "cartpole-swingup": dmc("cartpole", "swingup"),
    "cup-catch": dmc("ball_in_cup", "catch"),
    "reacher-easy": dmc("reacher", "easy"),
    "finger-spin": dmc("finger", "spin"),
    "cartpole-swingup-pixels": dmc("cartpole", "swingup", **PIXELS),
    # These two need the extra ``empo-environments[mujoco]``.
    "half-cheetah": {"name": "gymnasium", "params": {"id": "HalfCheetah-v5"}},
    "hopper": {"name": "gymnasium", "params": {"id": "Hopper-v5"}},
}
AGENTS: dict[str, dict[str, Any]] = {
    "awr": {"preset": "awr"},
    "svg": {"preset": "svg"},
    "tdmpc2": {"preset": "tdmpc2"},
    "tdmpc2-awr": {"preset": "tdmpc2", "policy_loss": "awr"},
    "tdmpc2-states": {"preset": "tdmpc2", "value": {"critic": "v"}},
    "tdmpc2-encodings": {"preset": "tdmpc2", "imagination": {"start": "encoding"}},
    "tdmpc2-narrow": {"preset": "tdmpc2", "policy": {"min_log_std": -3.0, "max_log_std": 1.0}},
    "tdmpc2-entropy": {"preset": "tdmpc2", "policy_loss": "svg"},
    "tdmpc2-rate": {"preset": "tdmpc2", "value": {"target_rate": 0.05}},
    "svg-rate": {"preset": "svg", "value": {"target_rate": 0.01}},
    "svg-candidates": {"preset": "svg", "imagination": {"candidates": 16}},
    "svg-actions": {"preset": "svg", "value": {"critic": "q"}},
    "svg-actions-policy": {
        "preset": "svg",
        "value": {"critic": "q"},
        "collection": {"acting": "policy"},
    },
    "awr-actions": {"preset": "awr", "value": {"critic": "q"}},
    "svg-heads": {"preset": "svg", "value": {"heads": 5, "bootstrap": "pair"}},
    "svg-rollout": {"preset": "svg", "imagination": {"start": "rollout"}},
    "svg-wide": {"preset": "svg", "policy": {"min_log_std": -10.0, "max_log_std": 2.0}},
    "svg-entropy": {"preset": "svg", "policy_loss": PRESETS["tdmpc2"]["policy_loss"]},
    "svg-policy": {"preset": "svg", "collection": {"acting": "policy"}},
    "svg-plans": {"preset": "svg", "planner": {"policy_plans": 16}},
    "svg-episodes": {"preset": "svg", "replay": {"running": False}},
    "svg-discount": {"preset": "svg", "discount": {"greatest": 0.97}},
    "svg-repeat": {"preset": "svg"},
    "awr-rate": {"preset": "awr", "value": {"target_rate": 0.01}},
    "svg-batch": {"preset": "svg", "replay": {"batch_size": 256}},
    "svg-samples": {
        "preset": "svg",
        "planner": {"samples": 512, "iterations": 6, "elites": 64, "policy_plans": 24},
    },
}
"""Presets; ``tdmpc2`` with its loss, critic, starts, log-std, entropy or rate of target networks
exchanged; ``awr`` with the critic or rate of ``tdmpc2``; and ``svg``, whose runs are shorter, with
as many candidates as ``awr``, with the rate, critic, value heads, starts, log-std, entropy, batches
or plans of ``tdmpc2``, with the policy acting (with that critic, too: it then learns from the
policy's own actions), with more plans of the policy, which then are most of the elites of size
``tiny``, with episodes that are learned from once they have ended, with a discount of at most 0.97,
or with every action done four times."""
PLAYED: dict[str, dict[str, Any]] = {"svg-repeat": {"action_repeat": 4}}
"""What agents that do not leave it to the task change in its params."""
SAC = "sac"
