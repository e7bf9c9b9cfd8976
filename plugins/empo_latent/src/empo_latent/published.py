"""Published results on tasks of the DeepMind Control Suite, to be shown beside one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from empo_core.config import EnvironmentRef
from empo_environments.params import DmcParams

STEPS = 100_000
"""Environment steps after which these returns were found; an action repeat of 2 is two steps."""
SOURCE = (
    "TD-MPC2 with 5M parameters, mean ± sd of 3 seeds (results folder of nicklashansen/tdmpc2, "
    "which also has SAC and DreamerV3)"
)


class PublishedReturns(NamedTuple):
    """Mean returns after so many environment steps.

    Attributes:
        tdmpc2: Of TD-MPC2 with 5 million parameters.
        spread: Standard deviation of that over seeds.
        sac: Of soft actor-critic.
        dreamer: Of DreamerV3.
    """

    tdmpc2: int
    spread: int
    sac: int
    dreamer: int


PUBLISHED: Mapping[tuple[str, str], PublishedReturns] = {
    ("cartpole", "balance"): PublishedReturns(998, 1, 999, 913),
    ("cartpole", "swingup"): PublishedReturns(839, 43, 835, 677),
    ("cartpole", "swingup_sparse"): PublishedReturns(0, 1, 0, 315),
    ("pendulum", "swingup"): PublishedReturns(724, 147, 96, 699),
    ("reacher", "easy"): PublishedReturns(937, 67, 540, 872),
    ("reacher", "hard"): PublishedReturns(414, 137, 161, 813),
    ("ball_in_cup", "catch"): PublishedReturns(981, 7, 958, 870),
    ("finger", "spin"): PublishedReturns(948, 34, 762, 328),
    ("walker", "stand"): PublishedReturns(981, 3, 341, 885),
    ("walker", "walk"): PublishedReturns(962, 13, 708, 630),
    ("walker", "run"): PublishedReturns(723, 34, 340, 245),
    ("cheetah", "run"): PublishedReturns(519, 84, 310, 336),
    ("hopper", "stand"): PublishedReturns(28, 35, 2, 150),
    ("acrobot", "swingup"): PublishedReturns(179, 85, 8, 101),
}
"""By domain and task."""


def published(task: EnvironmentRef) -> PublishedReturns | None:
    """Scores of other agents on the same task: states are observed, and episodes are whole."""
    params = task.params
    if not isinstance(params, DmcParams) or params.pixels or params.max_episode_steps is not None:
        return None
    domain, _, name = params.task.partition("-")
    return PUBLISHED.get((domain, name))
