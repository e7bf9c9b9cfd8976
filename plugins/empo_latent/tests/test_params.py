"""Params are merged with presets however they are given, and misfits are told from fits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from empo_core.config import merged
from empo_latent.algorithm import LatentAlgorithm
from empo_latent.params import LatentParams, PlannerParams
from empo_latent.presets import PRESETS, SIZES

USUAL: dict[str, Any] = {
    "total_steps": 10,
    "tasks": ["gymnasium/Pendulum-v1"],
    "policy_loss": "svg",
}


@pytest.mark.parametrize("planner", [{"elites": 3}, PlannerParams(elites=3)])
def test_a_size_holds_for_what_a_group_leaves_open(planner: Any) -> None:
    params = LatentParams(**USUAL, size="tiny", planner=planner)

    assert params.planner.elites == 3
    assert params.planner.samples == SIZES["tiny"]["planner"]["samples"]


@pytest.mark.parametrize("preset", ["awr", "svg"])
def test_an_agent_is_one_word(preset: str) -> None:
    params = LatentParams(total_steps=10, preset=preset)

    assert params.policy_loss.name == preset
    assert params.value.target_rate == 0.05
    assert params == LatentParams(total_steps=10, preset=preset, policy_loss=preset)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", SIZES)
def test_most_elites_of_a_round_are_not_the_policys(size: str, preset: str) -> None:
    planner = LatentParams(total_steps=10, preset=preset, size=size).planner

    assert planner.policy_plans < planner.elites / 2


PUBLISHED = {
    "policy_loss": {
        "name": "svg",
        "params": {
            "samples": 1,
            "reduction": "mean",
            "normaliser": "running_scale",
            "scale_rate": 0.01,
            "entropy": {"coef": 1e-4, "jacobian": 0, "action_power": 1},
        },
    },
    "value": {
        "critic": "q",
        "heads": 5,
        "bootstrap": "pair",
        "target_rate": 0.01,
        "coef": 0.1,
        "dropout": 0.01,
    },
    "bins": {"number": 101, "low": -10, "high": 10},
    "reward": {"coef": 0.1, "heads": 1},
    "latents": {"consistency_coef": 20, "group": 8, "heads": 1},
    "policy": {"min_log_std": -10, "max_log_std": 2},
    "imagination": {"start": "rollout", "value_heads": 2},
    "planner": {
        "iterations": None,  # 6, or 8 where actions have many numbers.
        "samples": 512,
        "elites": 64,
        "policy_plans": 24,
        "min_std": 0.05,
        "max_std": 2,
        "temperature": 0.5,
        "value_heads": 2,
    },
    "learning": {"horizon": 3, "rho": 0.5, "updates_per_step": 1},
    "optimiser": {
        "lr": 3e-4,
        "encoder_lr_scale": 0.3,
        "policy_eps": 1e-5,
        "max_grad_norm": 20,
    },
    "discount": {"denominator": 5, "minimum": 0.95, "maximum": 0.995},
    "replay": {"capacity": 1_000_000, "batch_size": 256},
    "collection": {"acting": "planner", "seed_steps": None, "seed_updates": None},
}
"""Defaults of TD-MPC2 (Hansen et al. 2024, table of hyperparameters), by this agent's names."""


@pytest.mark.parametrize("size", SIZES)
def test_tdmpc2_is_as_published_whatever_its_size(size: str) -> None:
    params = LatentParams(total_steps=10, preset="tdmpc2", size=size)

    assert merged(params.model_dump(mode="json"), PUBLISHED) == params.model_dump(mode="json")
    assert params.latents.size == LatentParams(total_steps=10, size=size).latents.size


DESIGN = {
    # Least of all heads, their running scale, temperature 1, eight candidates (sections 4 and 9).
    "policy_loss": {
        "name": "awr",
        "params": {
            "reduction": "min",
            "normaliser": "running_scale",
            "temperature": {"rule": "fixed", "value": 1},
            # That of TD-MPC2, before ``tanh`` ("existing entropy coefficient", section 5).
            "entropy": {"coef": 1e-4, "jacobian": 0},
        },
    },
    # Cross-entropies of all candidates, at the encodings that targets are made at (section 3).
    "value": {"critic": "v", "average": "cross_entropy", "gradient": "encoder"},
    # Of one imagined step, whose weight is 1, with the values as they are learned (section 2).
    "imagination": {"candidates": 8, "start": "encoding", "critic": "online", "rho": 1},
}
"""What the agent's first design says, by this agent's names."""


def test_the_seed_is_as_designed() -> None:
    params = LatentParams(total_steps=10, preset="seed").model_dump(mode="json")

    assert merged(params, DESIGN) == params


def test_what_is_given_wins_over_a_preset() -> None:
    params = LatentParams(
        total_steps=10, preset="tdmpc2", policy_loss={"name": "awr"}, value={"heads": 3}
    )

    assert params.policy_loss == LatentParams(total_steps=10, preset="awr").policy_loss
    assert (params.value.heads, params.value.critic) == (3, "q")


def test_a_size_is_no_preset() -> None:
    with pytest.raises(ValidationError, match="size: tiny"):
        LatentParams(total_steps=10, preset="tiny")


@pytest.mark.parametrize(("size", "fits"), [(38, False), (39, True)])
def test_pictures_that_no_encoder_can_read_are_refused_at_once(size: int, fits: bool) -> None:
    task = {"name": "gymnasium", "params": {"id": "a", "picture_size": size}}
    if fits:
        LatentParams.model_validate({**USUAL, "tasks": [task]})
        return
    with pytest.raises(ValidationError, match="picture_size 38"):
        LatentParams.model_validate({**USUAL, "tasks": [task]})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "optimism that nobody asks": (
        {"optimistic_loss": "awr", "collection": {"acting": "policy"}},
        "optimistic_loss: ",
    ),
    "optimism without proposals": (
        {"optimistic_loss": "awr", "planner": {"policy_plans": 0}},
        "optimistic_loss: ",
    ),
    "tasks without environments": (
        {"tasks": ["gymnasium/Pendulum-v1", "gymnasium/MountainCarContinuous-v0"]},
        "num_envs: 1 ",
    ),
    "too little memory": ({"replay": {"capacity": 3}}, "replay.capacity: 3 .* 4"),
    "too little memory for each": (
        {"num_envs": 3, "replay": {"capacity": 11}},
        r"replay.capacity: .*num_envs: 3.* 12",
    ),
    "more judges than heads": (
        {"planner": {"value_heads": 3}},
        "planner.value_heads: 3.*value.heads is 2",
    ),
    "more critics than heads": (
        {"imagination": {"value_heads": 3}},
        "imagination.value_heads: 3.*value.heads is 2",
    ),
    "elites that are not tried": (
        {"planner": {"elites": 600}},
        r"elites \(600\) .*samples \(512\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_fits_nothing_is_refused_with_its_key(name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises(ValidationError, match=message):
        LatentParams.model_validate({**USUAL, **options})


def test_a_proposal_that_never_differs_from_the_policy_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loss = {"name": "awr", "params": {"trust_region": {}}}
    for rate in (None, 0.05):
        caplog.clear()
        params = LatentParams.model_validate(
            {**USUAL, "policy_loss": loss, "policy": {"average_rate": rate}}
        )
        LatentAlgorithm(params).check(None)
        assert ("a trust region does nothing" in caplog.text) == (rate is None)


@pytest.mark.parametrize(("candidates", "is_few"), [(7, True), (8, False), (None, False)])
def test_few_candidates_are_a_warning(
    caplog: pytest.LogCaptureFixture, candidates: int | None, is_few: bool
) -> None:
    params = LatentParams.model_validate(
        {**USUAL, "policy_loss": "awr", "imagination": {"candidates": candidates}}
    )
    LatentAlgorithm(params).check(None)
    assert ("imagination.candidates" in caplog.text) == is_few
