"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer the training loop, its networks and its loss."""
    yield Component(
        kind="algorithm",
        name="rollout",
        params="empo_rollout.params:RolloutParams",
        target="empo_rollout.algorithm:RolloutAlgorithm",
        api=1,
        summary="Large-batch rollouts of many environments, and PPO or other losses on them.",
    )
    yield Component(
        kind="policy_network",
        name="mlp",
        params="empo_rollout.network_params:MlpParams",
        target="empo_rollout.networks:Mlp",
        api=1,
        summary="Dense layers.",
    )
    yield Component(
        kind="policy_network",
        name="conv",
        params="empo_rollout.network_params:ConvParams",
        target="empo_rollout.networks:Conv",
        api=1,
        summary="Convolutions over a picture, then dense layers.",
    )
    yield Component(
        kind="policy_network",
        name="lstm",
        params="empo_rollout.network_params:LstmParams",
        target="empo_rollout.networks:Lstm",
        api=1,
        summary="A recurrent layer, LSTM or GRU, behind another network.",
    )
    yield Component(
        kind="policy_loss",
        name="ppo",
        params="empo_rollout.ppo_params:PpoParams",
        target="empo_rollout.ppo:Ppo",
        api=1,
        summary="Clipped policy improvement with an entropy bonus.",
    )
