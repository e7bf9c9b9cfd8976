"""Keys under which trackers log what losses, planner and targets report."""

from __future__ import annotations

FAMILIES = {
    "auxiliary": "value/auxiliary_",
    "consistency": "loss/consistency_",
    "latent": "value/latent_",
    "optimistic": "policy/optimistic_",
    "reward": "loss/reward_",
    "td": "value/td_",
    "weighted": "loss/weighted_",
}
"""Beginning of a logged key by the part of the agent that a number is about."""


def logged_key(name: str) -> str:
    """The key of a number, in one of the families of ``docs/reference/metrics.md``."""
    part, _, suffix = name.partition("/")
    return f"{FAMILIES[part]}{suffix}" if part in FAMILIES else name
