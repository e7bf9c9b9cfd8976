"""Configs of runs of a second, one of each learner."""

from __future__ import annotations

from typing import Any

LATENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 60,
    "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}}],
    "policy_loss": "awr",
    "collection": {"seed_steps": 30, "seed_updates": 3},
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "replay": {"capacity": 70, "batch_size": 8},
    "learning": {"horizon": 2, "updates_per_step": 0.5},
    "imagination": {"candidates": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
    "compute": {"threads": 1},
    "reporting": {"log_interval": 4, "evaluation_episodes": 0, "checkpoint_interval": 10},
}
ROLLOUT: dict[str, Any] = {
    "total_steps": 320,
    "num_envs": 4,
    "environment": "gymnasium/Pendulum-v1",
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
    "update": {"minibatch_size": 32},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 0, "checkpoint_interval": 2},
}
PHASE2: dict[str, Any] = {
    "human_prior": "exact",
    "values": {"q_r": "mlp", "v_h_e": "mlp"},
    "total_steps": 30,
    "num_envs": 16,
    "warm_up": {"v_h_e": 2, "q_r": 2, "ramp": 2},
    "optimiser": {"target_interval": 12},
    "replay": {"batch_size": 8},
    "collector": {"name": "sync", "params": {"min_env_steps": 8}},
    "reporting": {"log_interval": 1, "checkpoint_interval": 4},
}
WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
CONFIGS: dict[str, dict[str, Any]] = {
    "phase2": {"world_model": WORLD, "algorithm": {"name": "phase2", "params": PHASE2}},
    "rollout": {"algorithm": {"name": "rollout", "params": ROLLOUT}},
    "latent": {"algorithm": {"name": "latent", "params": LATENT}},
}
