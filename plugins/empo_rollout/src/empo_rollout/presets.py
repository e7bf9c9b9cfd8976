"""Presets: defaults for few environments, for thousands, and those of other projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["default", "few", "large", "metta", "cleanrl"]

FEW = 64
"""Most environments for which ``few`` is the default."""
SHORT, ENVS_OF_SHORT_RUNS = 5_000_000, 8
"""Runs of fewer steps have so many environments by default: thousands of them would learn from a
handful of rollouts, or take more steps in one than the whole run should."""

PRESETS: dict[str, Mapping[str, Any]] = {
    # For 1 to 64 environments, chosen with tests/benchmarks/bench_ppo_defaults.py.
    "few": {
        "experience": {"bptt_horizon": None},
        "update": {"update_epochs": 10, "sampling": "auto"},
        "optimiser": {"lr": 1e-3},
    },
    # For thousands of agents: the defaults of the params, few steps of the optimiser.
    "large": {},
    # The trainer of the project Metta, as of August 2025.
    "metta": {
        "experience": {"bptt_horizon": 64, "batch_size": 524_288},
        "gamma": 0.977,
        "advantages": {"gae_lambda": 0.916, "vtrace": "minibatch"},
        "losses": [{"loss": {"name": "ppo", "params": {"clip": 0.1, "entropy": {"coef": 0.0021}}}}],
        "update": {"value_coef": 0.44, "value_clip": 0.1, "minibatch_size": 16_384},
        "optimiser": {"lr": 4.57e-4, "eps": 1e-12},
        "reporting": {"checkpoint_interval": 5, "evaluation_interval": 50},
    },
    # One-file PPO for classic control; four environments, four minibatches, four epochs.
    "cleanrl": {
        "num_envs": 4,
        "vectorisation": {"backend": "serial", "async_factor": 1, "workers": 1},
        "experience": {"bptt_horizon": 128},
        "update": {
            "update_epochs": 4,
            "minibatch_size": 128,
            "sampling": "steps",
            "value_clip": 0.2,
        },
        "optimiser": {"lr": 2.5e-4, "lr_schedule": "linear", "eps": 1e-5},
    },
}
