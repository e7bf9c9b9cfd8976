"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer three explorers."""
    yield Component(
        kind="explorer",
        name="count-bonus",
        params="empo_explorers.params:CountBonusParams",
        target="empo_explorers.counts:CountBonus",
        api=1,
        summary="Prefers actions that lead to states seen rarely; counts states.",
    )
    yield Component(
        kind="explorer",
        name="rnd",
        params="empo_explorers.params:RndParams",
        target="empo_explorers.rnd:Rnd",
        api=1,
        summary="Prefers what a network trained on experience cannot predict yet.",
    )
    yield Component(
        kind="explorer",
        name="action-sequences",
        params="empo_explorers.params:ActionSequencesParams",
        target="empo_explorers.sequences:ActionSequences",
        api=1,
        summary="Now and then follows a random sequence of movements for several steps.",
    )
