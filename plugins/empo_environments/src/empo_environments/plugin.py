"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


def _environment(name: str, stem: str, summary: str) -> Component:
    return Component(
        kind="environment",
        name=name,
        params=f"empo_environments.params:{stem}Params",
        target=f"empo_environments.components:{stem}Environment",
        api=1,
        summary=summary,
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer environments of Gymnasium, PettingZoo and DeepMind Control."""
    yield _environment("gymnasium", "Gymnasium", "Copies of a registered Gymnasium environment.")
    yield _environment(
        "gymnasium-vector",
        "GymnasiumVector",
        "A registered Gymnasium vector environment, which steps all its copies itself.",
    )
    yield _environment(
        "pettingzoo", "PettingZoo", "Copies of a ParallelEnv of the packages pettingzoo and mpe2."
    )
    yield _environment("dmc", "Dmc", "Copies of a task of the DeepMind Control Suite.")
