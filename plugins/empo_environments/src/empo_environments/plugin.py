"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer environments of Gymnasium, PettingZoo and DeepMind Control."""
    yield Component(
        kind="environment",
        name="gymnasium",
        params="empo_environments.params:GymnasiumParams",
        target="empo_environments.components:GymnasiumEnvironment",
        api=1,
        summary="Copies of a registered Gymnasium environment.",
        short="id",
    )
    yield Component(
        kind="environment",
        name="gymnasium-vector",
        params="empo_environments.params:GymnasiumVectorParams",
        target="empo_environments.components:GymnasiumVectorEnvironment",
        api=1,
        summary="A registered Gymnasium vector environment, which steps all its copies itself.",
        short="id",
    )
    yield Component(
        kind="environment",
        name="pettingzoo",
        params="empo_environments.params:PettingZooParams",
        target="empo_environments.components:PettingZooEnvironment",
        api=1,
        summary="Copies of a ParallelEnv of the packages pettingzoo and mpe2.",
        short="id",
    )
    yield Component(
        kind="environment",
        name="dmc",
        params="empo_environments.params:DmcParams",
        target="empo_environments.components:DmcEnvironment",
        api=1,
        summary="Copies of a task of the DeepMind Control Suite.",
        short="task",
    )
