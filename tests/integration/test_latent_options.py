"""Every option of the latent agent changes what is learned, or what is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.config import merged
from empo_core.experiment import build
from empo_latent.learning.updater import Updater
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planning.mppi import Planner
from empo_latent.types import MultiTaskSpec, SequenceBatch

NUMBERS = MultiTaskSpec(
    words=3,
    pictures=False,
    shape=(3,),
    actions=2,
    active=((True, True),),
    tasks=("one",),
    action_repeats=(1,),
    episode_lengths=(50,),
)
AGENT: dict[str, Any] = {
    "preset": "tiny",
    "total_steps": 100,
    "tasks": ["gymnasium/Pendulum-v1"],
    "policy_loss": "awr",
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8, "heads": 2},
    "bins": {"number": 11},
    "reward": {"heads": 2},
    "value": {"heads": 3},
    "replay": {"batch_size": 8},
    "learning": {"horizon": 2},
    "imagination": {"candidates": 3},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 1},
}
LEARNING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # What it is called: what else is set, and the option itself.
    "policy_loss": ({}, {"policy_loss": "svg"}),
    "optimistic_loss": ({}, {"optimistic_loss": {"name": "awr", "params": {"reduction": "max"}}}),
    "encoder.layers": ({}, {"encoder": {"layers": 3}}),
    "encoder.width": ({}, {"encoder": {"width": 9}}),
    "encoder.dropout": ({}, {"encoder": {"dropout": 0.5}}),
    "encoder.target": ({}, {"encoder": {"target": "average"}}),
    "encoder.target_rate": (
        {"encoder": {"target": "average"}},
        {"encoder": {"target": "average", "target_rate": 0.5}},
    ),
    "encoder.consistency_coef": ({}, {"encoder": {"consistency_coef": 1.0}}),
    "latents.size": ({}, {"latents": {"size": 12}}),
    "latents.group": ({}, {"latents": {"group": 2}}),
    "latents.width": ({}, {"latents": {"width": 9}}),
    "latents.heads": ({}, {"latents": {"heads": 1}}),
    "latents.dropout": ({}, {"latents": {"dropout": 0.5}}),
    "latents.layer_norm": ({}, {"latents": {"layer_norm": False}}),
    "latents.consistency_coef": ({}, {"latents": {"consistency_coef": 2.0}}),
    "bins.number": ({}, {"bins": {"number": 13}}),
    "bins.low": ({}, {"bins": {"low": -5.0}}),
    "bins.high": ({}, {"bins": {"high": 5.0}}),
    "reward.heads": ({}, {"reward": {"heads": 1}}),
    "reward.width_divisor": ({}, {"reward": {"width_divisor": 2}}),
    "reward.coef": ({}, {"reward": {"coef": 1.0}}),
    "reward.episodic": ({}, {"reward": {"episodic": True}}),
    "reward.termination_coef": (
        {"reward": {"episodic": True}},
        {"reward": {"episodic": True, "termination_coef": 5.0}},
    ),
    "reward.predict_from": ({}, {"reward": {"predict_from": "encoding"}}),
    "value.critic": ({}, {"value": {"critic": "q"}}),
    "value.heads": ({}, {"value": {"heads": 2}}),
    "value.width_divisor": ({}, {"value": {"width_divisor": 2}}),
    "value.dropout": ({}, {"value": {"dropout": 0.5}}),
    "value.target_rate": ({}, {"value": {"target_rate": 0.5}}),
    "value.coef": ({}, {"value": {"coef": 1.0}}),
    "value.bootstrap: mean": ({}, {"value": {"bootstrap": "mean"}}),
    "value.bootstrap: min": ({}, {"value": {"bootstrap": "min"}}),
    "value.bootstrap: pair": ({}, {"value": {"bootstrap": "pair"}}),
    "value.dynamics: min": ({}, {"value": {"dynamics": "min"}}),
    "value.dynamics: max": ({}, {"value": {"dynamics": "max"}}),
    "value.average": ({}, {"value": {"average": "cross_entropy"}}),
    "value.weighting": ({}, {"value": {"weighting": "policy"}}),
    "value.gradient: encoder": ({}, {"value": {"gradient": "encoder"}}),
    "value.gradient: none": ({}, {"value": {"gradient": "none"}}),
    "auxiliary.discounts": ({}, {"auxiliary": {"discounts": [0.5]}}),
    "auxiliary.networks": (
        {"auxiliary": {"discounts": [0.5, 0.9]}},
        {"auxiliary": {"discounts": [0.5, 0.9], "networks": "joint"}},
    ),
    "auxiliary.width_factor": (
        {"auxiliary": {"discounts": [0.5, 0.9], "networks": "joint"}},
        {"auxiliary": {"discounts": [0.5, 0.9], "networks": "joint", "width_factor": 2}},
    ),
    "auxiliary.coef": (
        {"auxiliary": {"discounts": [0.5]}},
        {"auxiliary": {"discounts": [0.5], "coef": 1.0}},
    ),
    "auxiliary.dynamics": (
        {"auxiliary": {"discounts": [0.5]}},
        {"auxiliary": {"discounts": [0.5], "dynamics": "min"}},
    ),
    "policy.min_log_std": ({}, {"policy": {"min_log_std": -6.0}}),
    "policy.max_log_std": ({}, {"policy": {"max_log_std": 2.0}}),
    "policy.bound": ({}, {"policy": {"bound": "clip"}}),
    "policy.proposal": ({}, {"policy": {"proposal": "average"}}),
    "policy.proposal_rate": (
        {"policy": {"proposal": "average"}},
        {"policy": {"proposal": "average", "proposal_rate": 0.5}},
    ),
    "a trust region around an average": (
        {"policy": {"proposal": "average"}},
        {
            "policy": {"proposal": "average"},
            "policy_loss": {"name": "awr", "params": {"trust_region": {"multiplier": 100.0}}},
        },
    ),
    "imagination.candidates": ({}, {"imagination": {"candidates": 4}}),
    "imagination.start": ({}, {"imagination": {"start": "rollout"}}),
    "imagination.critic: online": ({}, {"imagination": {"critic": "online"}}),
    "imagination.critic: target": (
        {"policy_loss": "svg"},
        {"policy_loss": "svg", "imagination": {"critic": "target"}},
    ),
    "learning.rho": ({}, {"learning": {"rho": 0.9}}),
    "learning.normalise_rho": ({}, {"learning": {"normalise_rho": True}}),
    "learning.value_every": ({}, {"learning": {"value_every": 2}}),
    "learning.policy_every": ({}, {"learning": {"policy_every": 2}}),
    "optimiser.lr": ({}, {"optimiser": {"lr": 1e-3}}),
    "optimiser.encoder_lr_scale": ({}, {"optimiser": {"encoder_lr_scale": 1.0}}),
    "optimiser.policy_lr_scale": ({}, {"optimiser": {"policy_lr_scale": 2.0}}),
    "optimiser.policy_eps": ({}, {"optimiser": {"policy_eps": 1e-2}}),
    "optimiser.weight_decay": ({}, {"optimiser": {"weight_decay": 0.1}}),
    "optimiser.max_grad_norm": ({}, {"optimiser": {"max_grad_norm": 1e-4}}),
}
PLANNING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    name: ({}, {"planner": {name: value}})
    for name, value in {
        "iterations": 3,
        "samples": 10,
        "elites": 2,
        "policy_plans": 2,
        "policy_noise": 0.5,
        "min_std": 0.4,
        "max_std": 1.0,
        "temperature": 5.0,
        "exploration": 0.1,
        "horizon": 1,
        "critic": "target",
        "heads": "min",
        "depths": "all",
        "disagreement": 5.0,
    }.items()
}


def agent(options: dict[str, Any]) -> tuple[LatentModel, Updater, LatentParams]:
    params = LatentParams.model_validate(merged(AGENT, options))
    losses = {"policy": build(params.policy_loss)}
    if params.optimistic_loss is not None:
        losses["optimistic"] = build(params.optimistic_loss)
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, NUMBERS, generator=generator, optimistic=len(losses) > 1)
    torch.manual_seed(1)
    return model, Updater(model, losses, params, torch.tensor([0.9])), params


def experience(params: LatentParams, seed: int = 2) -> SequenceBatch:
    generator = torch.Generator().manual_seed(seed)
    steps, number = params.learning.horizon, params.replay.batch_size
    terminated = torch.zeros(steps, number, 1)
    terminated[-1, 0] = 1
    return SequenceBatch(
        torch.randn(steps + 1, number, 3, generator=generator),
        torch.rand(steps, number, 2, generator=generator) * 2 - 1,
        torch.randn(steps, number, 1, generator=generator),
        terminated,
    )


def learned(options: dict[str, Any]) -> dict[str, Tensor]:
    """All weights after some updates, by name."""
    model, updater, params = agent(options)
    for seed in range(2):
        updater.update(experience(params, seed), 0.5)
    return dict(model.named_parameters())


def planned(options: dict[str, Any]) -> Tensor:
    model, updater, params = agent(options)
    for seed in range(2):
        updater.update(experience(params, seed), 0.5)
    # A model that values nothing leaves a planner nothing to choose by.
    with torch.no_grad():
        for weight in (*model.heads["value"].parameters(), *model.heads["reward"].parameters()):
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
    planner = Planner(
        model,
        params.planner,
        horizon=params.learning.horizon,
        discount=0.9,
        episodic=False,
        critic=params.value.critic,
    )
    torch.manual_seed(4)
    z = model.encode(torch.ones(1, 3))
    mean = torch.zeros(planner.horizon, 1, 2)
    plan = planner.plan(z, mean, task=None, explore=True, optimistic=False)
    return torch.cat([plan.action.flatten(), plan.mean.flatten(), plan.std.flatten()])


def differ(ours: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """True if any weights with the same name and shape in both are unequal."""
    common = [(ours[name], others[name]) for name in ours.keys() & others.keys()]
    return any(one.shape == other.shape and not torch.equal(one, other) for one, other in common)


def test_what_is_learned_is_the_same_every_time() -> None:
    assert not differ(learned({}), learned({}))
    assert torch.equal(planned({}), planned({}))


@pytest.mark.parametrize("name", LEARNING)
def test_an_option_changes_what_is_learned(name: str) -> None:
    base, option = LEARNING[name]
    assert differ(learned(base), learned(option))


@pytest.mark.parametrize("name", PLANNING)
def test_an_option_changes_what_is_planned(name: str) -> None:
    base, option = PLANNING[name]
    ours, theirs = planned(base), planned(option)
    assert ours.shape != theirs.shape or not torch.equal(ours, theirs)


def test_an_imitator_learns_nothing_from_random_steps() -> None:
    model, updater, params = agent({"policy_loss": "distill", "compute": {"check_gradients": True}})
    sequences, shape = (
        experience(params),
        (params.learning.horizon, params.replay.batch_size, 2, 2),
    )
    before = {name: each.clone() for name, each in model.heads["policy"].state_dict().items()}
    updater.update(replace(sequences, expert=torch.full(shape, torch.nan)), 0.5)
    assert not differ(before, dict(model.heads["policy"].state_dict()))
    updater.update(replace(sequences, expert=torch.zeros(shape)), 0.5)
    assert differ(before, dict(model.heads["policy"].state_dict()))
