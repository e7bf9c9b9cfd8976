"""Components of this distribution; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer humans who learned to reach their goals, or by self-play."""
    yield Component(
        kind="human_prior",
        name="goal-ppo",
        params="empo_learned_humans.params:GoalPpoParams",
        target="empo_learned_humans.goal_ppo:GoalPpo",
        api=1,
        summary="Humans who learned to reach each goal, from a run of 'rollout'.",
    )
    yield Component(
        kind="human_prior",
        name="self-play",
        params="empo_learned_humans.params:SelfPlayParams",
        target="empo_learned_humans.self_play:SelfPlay",
        api=1,
        summary="Humans who pursue some goals as they learned it by self-play in a run of "
        "'rollout'.",
    )
