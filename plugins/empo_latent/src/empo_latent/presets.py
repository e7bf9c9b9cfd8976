"""Sizes of models, by about how many parameters they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["tiny", "1M", "5M", "19M", "48M", "317M"]


def _sizes(encoder: int, layers: int, width: int, latent: int, values: int) -> dict[str, Any]:
    return {
        "encoder": {"width": encoder, "layers": layers},
        "latents": {"width": width, "size": latent},
        "value": {"heads": values},
    }


PRESETS: dict[str, Mapping[str, Any]] = {
    # For CPUs: it also learns from smaller batches, and plans with less.
    "tiny": {
        **_sizes(128, 2, 128, 64, 2),
        "replay": {"batch_size": 128},
        "planner": {"samples": 192, "iterations": 3, "elites": 24, "policy_plans": 16},
    },
    "1M": _sizes(256, 2, 384, 128, 2),
    "5M": _sizes(256, 2, 512, 512, 5),
    "19M": _sizes(1024, 3, 1024, 768, 5),
    "48M": _sizes(1792, 4, 1792, 768, 5),
    "317M": _sizes(4096, 5, 4096, 1376, 8),
}
"""Where one sees 17 numbers and does 6, 0.19, 1.21, 4.96, 18.1, 47.2 and 312.6 million parameters
are trained (critic ``q``); names are those of TD-MPC2, whose counts have one value head more."""
