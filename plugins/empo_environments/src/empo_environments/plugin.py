"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


def _environment(name: str, params: str, target: str, summary: str, short: str = "id") -> Component:
    return Component(
        kind="environment",
        name=name,
        params=f"empo_environments.params:{params}",
        target=f"empo_environments.components:{target}",
        api=1,
        summary=summary,
        short=short,
    )


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer environments of Gymnasium, PettingZoo and DeepMind Control."""
    yield _environment(
        "gymnasium",
        "GymnasiumParams",
        "GymnasiumEnvironment",
        "Copies of a registered Gymnasium environment.",
    )
    yield _environment(
        "gymnasium-vector",
        "GymnasiumVectorParams",
        "GymnasiumVectorEnvironment",
        "A registered Gymnasium vector environment, which steps all its copies itself.",
    )
    yield _environment(
        "pettingzoo",
        "PettingZooParams",
        "PettingZooEnvironment",
        "Copies of a ParallelEnv of the packages pettingzoo and mpe2.",
    )
    yield _environment(
        "dmc",
        "DmcParams",
        "DmcEnvironment",
        "Copies of a task of the DeepMind Control Suite.",
        short="task",
    )
