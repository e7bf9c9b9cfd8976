"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the algorithm and ways to explore."""
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
        params="empo_phase2.explorers.params:EpsilonGreedyParams",
        target="empo_phase2.explorers.epsilon:EpsilonGreedy",
        api=1,
        summary="Acts at random with a probability that falls linearly.",
    )
    yield Component(
        kind="explorer",
        name="count-bonus",
        params="empo_phase2.explorers.params:CountBonusParams",
        target="empo_phase2.explorers.counts:CountBonus",
        api=1,
        summary="Prefers actions that lead to states seen rarely; counts states.",
    )
    yield Component(
        kind="explorer",
        name="rnd",
        params="empo_phase2.explorers.params:RndParams",
        target="empo_phase2.explorers.rnd:Rnd",
        api=1,
        summary="Prefers what a network trained on experience cannot predict yet.",
    )
    yield Component(
        kind="explorer",
        name="action-sequences",
        params="empo_phase2.explorers.params:ActionSequencesParams",
        target="empo_phase2.explorers.sequences:ActionSequences",
        api=1,
        summary="Now and then follows a random sequence of movements for several steps.",
    )
