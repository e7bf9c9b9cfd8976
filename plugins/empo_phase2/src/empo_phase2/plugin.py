"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the algorithm, and its usual way to explore."""
    yield Component(
        kind="algorithm",
        name="phase2",
        params="empo_phase2.params:Phase2Params",
        target="empo_phase2.algorithm:Phase2",
        api=1,
        summary="Learns robot policies and human power from experience, in tables or networks.",
    )
    yield Component(
        kind="explorer",
        name="epsilon-greedy",
        params="empo_phase2.params:EpsilonGreedyParams",
        target="empo_phase2.epsilon:EpsilonGreedy",
        api=1,
        summary="Acts at random with a probability that falls linearly.",
    )
