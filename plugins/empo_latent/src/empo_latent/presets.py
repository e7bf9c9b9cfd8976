"""Sizes of models, and agents by name: parameters where none are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Size = Literal["tiny", "1M", "5M", "19M", "48M", "317M"]
Preset = Literal["awr", "svg", "tdmpc2", "seed"]


def _sizes(encoder: int, layers: int, width: int, latent: int, values: int) -> dict[str, Any]:
    return {
        "encoder": {"width": encoder, "layers": layers},
        "latents": {"width": width, "size": latent},
        "value": {"heads": values},
    }


SIZES: dict[str, Mapping[str, Any]] = {
    # For CPUs: it also learns from smaller batches, and plans with less. Plans of the policy are a
    # quarter of the elites at most: where they are most of them, little else is tried.
    "tiny": {
        **_sizes(128, 2, 128, 64, 2),
        "replay": {"batch_size": 128},
        "planner": {"samples": 192, "iterations": 3, "elites": 24, "policy_plans": 6},
    },
    "1M": _sizes(256, 2, 384, 128, 2),
    "5M": _sizes(256, 2, 512, 512, 5),
    "19M": _sizes(1024, 3, 1024, 768, 5),
    "48M": _sizes(1792, 4, 1792, 768, 5),
    "317M": _sizes(4096, 5, 4096, 1376, 8),
}
"""Where one sees 17 numbers and does 6, 0.19, 1.21, 4.96, 18.1, 47.2 and 312.6 million parameters
are trained (critic ``q``); names are those of TD-MPC2, whose counts have one value head more."""

PRESETS: dict[str, Mapping[str, Any]] = {
    # Values of states are imagined ahead; at the published rate they follow too late.
    "awr": {"policy_loss": "awr", "value": {"target_rate": 0.05}},
    "svg": {"policy_loss": "svg", "value": {"target_rate": 0.05}},
    "tdmpc2": {
        "policy_loss": {
            "name": "svg",
            "params": {"entropy": {"coef": 1e-4, "jacobian": 0.0}},
        },
        "replay": {"batch_size": 256},
        "value": {"critic": "q", "heads": 5, "bootstrap": "pair"},
        "policy": {"min_log_std": -10.0, "max_log_std": 2.0},
        "imagination": {"start": "rollout", "value_heads": 2},
        "planner": {
            "samples": 512,
            "iterations": None,
            "elites": 64,
            "policy_plans": 24,
            "value_heads": 2,
        },
    },
    "seed": {
        "policy_loss": {
            "name": "awr",
            "params": {
                "reduction": "min",
                "normaliser": "running_scale",
                "temperature": {"rule": "fixed", "value": 1.0},
                "entropy": {"coef": 1e-4, "jacobian": 0.0},
            },
        },
        "value": {"average": "cross_entropy", "gradient": "encoder"},
        "imagination": {"candidates": 8, "critic": "online", "rho": 1.0},
    },
}
"""Agents, each with what it needs whatever its size. ``tdmpc2`` is the agent of Hansen et al. 2024
as published, as far as that differs from the defaults; ``seed`` the choices of this agent's first
design, where there are options for them; ``docs/explanation/latent_differences.md`` says what
differs."""
