"""Warnings of rollouts that teach little, normalisation of single steps, and defaults by size."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.algorithm import RolloutAlgorithm
from empo_rollout.params import RolloutParams
from empo_rollout.plan import SizeRequest, plan_vectorisation
from empo_rollout.run_warnings import RolloutWatch

SPEC = EnvSpec(ObservationSpec(2), ActionSpec(low=(0.0,), high=(1.0,)), ("a",), 1)


def params(**options: Any) -> RolloutParams:
    base = {"total_steps": 1000, "environment": "gymnasium/CartPole-v1", "num_envs": 4}
    return RolloutParams.model_validate({**base, "vectorisation": {"backend": "serial"}, **options})


def rollout(*, observation: float = 1.0, reward: float = 1.0, action: float = 0.5) -> Any:
    shape = 8, 2
    return SimpleNamespace(
        observation=torch.full((*shape, 2), observation),
        reward=torch.full(shape, reward),
        action=torch.full((*shape, 1), action),
        valid=torch.ones(shape, dtype=torch.bool),
    )


@pytest.mark.parametrize(
    ("columns", "options", "word"),
    [
        ({"observation": -2e6}, {}, "observation of size 2e+06"),
        ({"reward": 3e7}, {}, "reward of size 3e+07"),
        ({"action": 1.5}, {}, "number 0, from 0 to 1"),
        ({"observation": 2e6, "reward": 3e7}, {"normalise": {}}, None),
        ({"observation": 1e6, "reward": -1e6, "action": 0.9}, {}, None),
    ],
)
def test_rollouts_are_warned_of_once(
    columns: dict[str, float], options: Any, word: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watch = RolloutWatch(params(**options), SPEC)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watch.see(rollout(**columns))
    assert len(caplog.records) == len(watch.warnings) == (word is not None)
    assert word is None or word in watch.warnings[0]


def test_check_warns_of_minibatches_that_cannot_be_normalised_and_of_no_clip() -> None:
    sizes = {"experience": {"bptt_horizon": 16}}
    one = {"minibatch_size": 1, "update_epochs": 2}
    (found,) = RolloutAlgorithm(params(**sizes, update=one)).check(None)["warnings"]
    assert "update.minibatch_size" in found
    whole = {"minibatch_size": 64, "update_epochs": 1}
    (found,) = RolloutAlgorithm(params(**sizes, update=whole)).check(None)["warnings"]
    assert "clip" in found
    assert RolloutAlgorithm(params()).check(None)["warnings"] == []


@pytest.mark.parametrize(
    ("envs", "agents", "remembers", "sizes"),
    [
        (1, 1, False, (1024, 1, 64)),
        (4, 1, False, (256, 4, 64)),
        (64, 1, False, (16, 64, 64)),
        (8, 4, False, (32, 32, 64)),
        (1, 1, True, (64, 16, 256)),
        (64, 1, True, (16, 64, 256)),
    ],
)
def test_sizes_of_few_environments(
    envs: int, agents: int, remembers: bool, sizes: tuple[int, int, int]
) -> None:
    plan = plan_vectorisation(
        SizeRequest(
            agents=agents, envs=envs, bptt_horizon=None, minibatch_size=None, processes=False,
            by_steps=not remembers, remembers=remembers,
        )
    )  # fmt: skip
    assert (plan.horizon, plan.segments, plan.minibatch_size) == sizes


def test_defaults_depend_on_the_number_of_environments() -> None:
    def about(**options: Any) -> tuple[Any, ...]:
        found = params(**options)
        return (
            found.experience.bptt_horizon, found.update.update_epochs,
            found.update.minibatch_size, found.update.sampling, found.optimiser.lr,
        )  # fmt: skip

    few, large = (None, 10, None, "steps", 1e-3), (64, 1, None, "shuffled", 3e-4)
    assert about(num_envs=1) == about(num_envs=64) == about(num_envs=99, preset="few") == few
    assert about(num_envs=65) == about(num_envs=None) == about(num_envs=1, preset="large") == large
    assert about(policy={"network": "lstm", "critic": "shared"})[3] == "shuffled"
    assert about(update={"update_epochs": 3})[1] == 3
