"""Warnings about sweeps that are easily misread."""

from __future__ import annotations

from empo_sweep.sweep_config import SweepConfig
from empo_theory.parameters import CompleteTheory


def theory_warning(config: SweepConfig) -> str | None:
    """A warning where an objective would choose between values of the theory's parameters."""
    names = [key for key in config.swept() if key.split(".")[-1] in CompleteTheory.model_fields]
    searched = set(config.search.space if config.search else ())
    varying = [key for key in names if key in searched or len(config.over.get(key, "..")) > 1]
    if config.goal is None or not varying:
        return None
    return (
        f"{', '.join(varying)}: a parameter of the theory says what is to be maximised, and not "
        f"how well; values of {config.goal.key!r} under different ones do not compare, and "
        "choosing by them tunes a norm"
    )
