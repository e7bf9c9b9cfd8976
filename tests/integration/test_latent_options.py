"""Every option of the latent agent has an effect of its own on what is learned, or planned.

Sizes and counts change how many random numbers are drawn, and so everything drawn after them. Here
nothing depends on that: weights that two agents have in common begin alike, and noise is a function
of its position. What differs is therefore the work of the option itself.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.components import build
from empo_core.config import merged
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Noise, Planner
from empo_latent.types import MultiTaskSpec, SequenceBatch
from empo_latent.update import Updater
from empo_learning.distributions import BoundedNormal

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
    "size": "tiny",
    "total_steps": 100,
    "tasks": ["gymnasium/Pendulum-v1"],
    "policy_loss": "awr",
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8, "heads": 2},
    "bins": {"number": 11},
    "reward": {"heads": 2},
    "value": {"heads": 3, "dropout": 0.0},
    "replay": {"batch_size": 8},
    "learning": {"horizon": 2},
    "imagination": {"candidates": 3},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 1},
}
LEARNING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # What it is called: what else is set, and the option itself.
    "policy_loss": ({}, {"policy_loss": "svg"}),
    "encoder.layers": ({}, {"encoder": {"layers": 3}}),
    "encoder.width": ({}, {"encoder": {"width": 9}}),
    "encoder.average_rate": ({}, {"encoder": {"average_rate": 0.5}}),
    "latents.size": ({}, {"latents": {"size": 12}}),
    "latents.group": ({}, {"latents": {"group": 2}}),
    "latents.width": ({}, {"latents": {"width": 9}}),
    "latents.layers": ({}, {"latents": {"layers": 3}}),
    "latents.heads": ({}, {"latents": {"heads": 1}}),
    "latents.consistency_coef": ({}, {"latents": {"consistency_coef": 2.0}}),
    "bins.number": ({}, {"bins": {"number": 13}}),
    "bins.low": ({}, {"bins": {"low": -5.0}}),
    "bins.high": ({}, {"bins": {"high": 5.0}}),
    "reward.heads": ({}, {"reward": {"heads": 1}}),
    "reward.coef": ({}, {"reward": {"coef": 1.0}}),
    "reward.episodic": ({}, {"reward": {"episodic": True}}),
    "reward.termination_coef": (
        {"reward": {"episodic": True}},
        {"reward": {"episodic": True, "termination_coef": 5.0}},
    ),
    "value.critic": ({}, {"value": {"critic": "q"}}),
    "value.heads": ({}, {"value": {"heads": 2}}),
    "value.dropout": ({}, {"value": {"dropout": 0.5}}),
    "value.target_rate": ({}, {"value": {"target_rate": 0.5}}),
    "value.coef": ({}, {"value": {"coef": 1.0}}),
    "value.bootstrap": ({}, {"value": {"bootstrap": "pair"}}),
    "value.dynamics: min": ({}, {"value": {"dynamics": "min"}}),
    "value.dynamics: max": ({}, {"value": {"dynamics": "max"}}),
    "value.average": ({}, {"value": {"average": "cross_entropy"}}),
    "value.gradient: encoder": ({}, {"value": {"gradient": "encoder"}}),
    "auxiliary.discounts": ({}, {"auxiliary": {"discounts": [0.5]}}),
    "auxiliary.coef": (
        {"auxiliary": {"discounts": [0.5]}},
        {"auxiliary": {"discounts": [0.5], "coef": 1.0}},
    ),
    "policy.min_log_std": ({}, {"policy": {"min_log_std": -6.0}}),
    "policy.max_log_std": ({}, {"policy": {"max_log_std": 2.0}}),
    "policy.average_rate": ({}, {"policy": {"average_rate": 0.5}}),
    "a trust region around an average": (
        {"policy": {"average_rate": 0.05}},
        {
            "policy": {"average_rate": 0.05},
            "policy_loss": {"name": "awr", "params": {"trust_region": {"multiplier": 100.0}}},
        },
    ),
    "imagination.candidates": ({}, {"imagination": {"candidates": 4}}),
    "imagination.start": ({}, {"imagination": {"start": "rollout"}}),
    "imagination.value_heads: targets": ({}, {"imagination": {"value_heads": 2}}),
    "imagination.value_heads: critic": (
        {"policy_loss": "svg"},
        {"policy_loss": "svg", "imagination": {"value_heads": 2}},
    ),
    "imagination.critic": ({}, {"imagination": {"critic": "online"}}),
    "imagination.rho": ({}, {"imagination": {"rho": 0.9}}),
    "learning.rho": ({}, {"learning": {"rho": 0.9}}),
    "optimiser.lr": ({}, {"optimiser": {"lr": 1e-3}}),
    "optimiser.encoder_lr_scale": ({}, {"optimiser": {"encoder_lr_scale": 1.0}}),
    "optimiser.policy_eps": ({}, {"optimiser": {"policy_eps": 1e-2}}),
    "optimiser.weight_decay": ({}, {"optimiser": {"weight_decay": 0.1}}),
    "optimiser.max_grad_norm": ({}, {"optimiser": {"max_grad_norm": 1e-4}}),
}
PLANNING = {
    name: {"planner": {name: value}}
    for name, value in {
        "iterations": 3,
        "samples": 10,
        "elites": 2,
        "policy_plans": 2,
        "min_std": 0.4,
        "max_std": 1.0,
        "temperature": 5.0,
        "exploration": 0.1,
        "heads": "min",
        "value_heads": 2,
        "disagreement": 5.0,
    }.items()
}


ELSEWHERE = {
    "encoder.channels": "test_encoders.py",
    "encoder.shift": "test_encoders.py",
    "latents.task_size": "test_task_embedding.py",
    "learning.horizon": "test_a_longer_horizon_reads_more_of_each_sequence",
    "learning.updates_per_step": "test_latent_learning.py",
    "optimiser.lr_schedule": "tests/reliability/test_lr_schedules.py",
}
"""Tests of options that these tables are not fit for."""


@pytest.fixture(autouse=True)
def _noise_of_position_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def steady(self: BoundedNormal, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.loc + self.scale * numbers(shape)

    monkeypatch.setattr(BoundedNormal, "rsample", steady)


def numbers(shape: torch.Size) -> Tensor:
    """Irregular numbers; more along the first axis leave the others as they are."""
    return 1.5 * torch.sin(12.9898 * torch.arange(1.0, shape.numel() + 1)).view(shape)


def agent(
    options: dict[str, Any], base: dict[str, Any] | None = None
) -> tuple[LatentModel, Updater, LatentParams]:
    """An agent whose weights begin as those of an agent of ``base``, as far as that has them."""
    params = LatentParams.model_validate(merged(AGENT, options))
    losses = {"policy": build(params.policy_loss)}
    if params.optimistic_loss is not None:
        losses["optimistic"] = build(params.optimistic_loss)
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, NUMBERS, generator=generator, optimistic=len(losses) > 1)
    with torch.no_grad():
        # Heads that say 0 at first hardly disagree, nor do targets then matter.
        for each in model.state_dict().values():
            if each.is_floating_point():
                each.add_(0.1 * numbers(each.shape))
    if base is not None:
        begin_alike(model.state_dict(), agent(base)[0].state_dict())
    torch.manual_seed(1)
    return model, Updater(model, losses, params, torch.tensor([0.9])), params


def begin_alike(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name in ours.keys() & theirs.keys():
        one, other = in_common(ours[name], theirs[name])
        one.copy_(other)


def in_common(first: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The part of two tensors that both have, as views."""
    if first.ndim != other.ndim:
        return first[..., :0].flatten(), other[..., :0].flatten()
    both = tuple(slice(min(sizes)) for sizes in zip(first.shape, other.shape, strict=True))
    return first[both], other[both]


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


def learned(options: dict[str, Any], base: dict[str, Any] | None = None) -> dict[str, Tensor]:
    """All weights after some updates, by name."""
    model, updater, params = agent(options, base)
    for seed in range(3):
        updater.update(experience(params, seed), 0.5)
    return {name: each.detach() for name, each in model.named_parameters()}


@cache
def usual(base: str) -> dict[str, Tensor]:
    """Weights that are learned without an option; most options share theirs."""
    return learned(json.loads(base))


def some_noise(planner: Planner, mean: Tensor, rounds: int = 3, plans: int = 12) -> Noise:
    """What is random about a plan: the first of the same numbers for every planner."""
    env, action = mean.shape[1:]
    wanted, generator = planner.noise(mean), torch.Generator().manual_seed(5)

    def first(shape: tuple[int, ...], like: Tensor) -> Tensor:
        drawn = torch.randn(shape, generator=generator)
        return drawn[tuple(slice(size) for size in like.shape)]

    proposals = first((2, env, plans, action), wanted.proposals)
    draws = first((rounds, 2, env, plans, action), wanted.draws)
    choice = first((env, plans), wanted.choice).abs()
    heads = None if wanted.heads is None else torch.arange(len(wanted.heads))
    return Noise(
        proposals,
        draws,
        choice.flip(-1).cumsum(-1).flip(-1),  # Rather not the best elite.
        first((env, action), wanted.action),
        heads,
    )


def planned(options: dict[str, Any], *, explore: bool = True) -> Tensor:
    model, updater, params = agent(options)
    updater.update(experience(params), 0.5)  # Behind which target networks lag.
    planner = Planner(
        model,
        params.planner,
        horizon=params.learning.horizon,
        discount=0.9,
        critic=params.value.critic,
        value_heads=params.value.heads,
    )
    z = model.encode(torch.ones(1, 3))
    mean = torch.zeros(planner.horizon, 1, 2)
    plan = planner.plan(z, mean, explore=explore, noise=some_noise(planner, mean))
    return torch.cat([plan.action.flatten(), plan.mean[0].flatten(), plan.std.flatten()])


def differ(ours: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """True if any weights that both have are unequal, by more than rounding."""
    common = [in_common(ours[name], others[name]) for name in ours.keys() & others.keys()]
    return any(bool(((one - other).abs() > 1e-7).any()) for one, other in common)


def test_what_is_learned_is_the_same_every_time() -> None:
    assert not differ(learned({}), learned({}))
    assert torch.equal(planned({}), planned({}))


def test_every_option_of_what_is_learned_and_planned_is_in_a_table() -> None:
    groups = "encoder latents bins reward value auxiliary policy imagination learning optimiser"
    named = {name.split(":")[0] for name in LEARNING} | ELSEWHERE.keys()
    named |= {f"planner.{name}" for name in PLANNING}
    params = LatentParams.model_validate(AGENT | {"auxiliary": {"discounts": [0.5]}})
    for group in (*groups.split(), "planner"):
        fields = type(getattr(params, group)).model_fields
        assert {f"{group}.{name}" for name in fields} - named == set()


def test_random_numbers_that_are_drawn_before_have_no_effect() -> None:
    """Weights that only begin otherwise are no effect: this is what the tables rule out."""
    one, other = agent({}), agent({"latents": {"width": 9}})
    assert differ(dict(one[0].state_dict()), dict(other[0].state_dict()))
    alike = agent({"latents": {"width": 9}}, {})
    assert not differ(dict(one[0].state_dict()), dict(alike[0].state_dict()))


@pytest.mark.parametrize("name", LEARNING)
def test_an_option_changes_what_is_learned(name: str) -> None:
    base, option = LEARNING[name]
    assert differ(learned(option, base), usual(json.dumps(base)))


def test_an_optimistic_loss_teaches_a_policy_of_its_own_and_no_other() -> None:
    option = {"optimistic_loss": {"name": "awr", "params": {"reduction": "max"}}}
    ours = learned(option, {})
    assert not differ(ours, learned({}))
    before = dict(agent(option, {})[0].named_parameters())
    own = {name: each for name, each in ours.items() if name.startswith("parts.optimistic")}
    assert own
    assert differ(own, before)


def test_a_longer_horizon_reads_more_of_each_sequence() -> None:
    whole = LatentParams.model_validate(merged(AGENT, {"learning": {"horizon": 3}}))
    sequences = experience(whole)
    changed = replace(sequences, reward=sequences.reward.clone())
    changed.reward[2] += 5.0
    results = []
    for each in (sequences, changed):
        model, updater, _ = agent({"learning": {"horizon": 3}}, {})
        updater.update(each, 0.5)
        results.append(dict(model.named_parameters()))
    assert differ(*results)


@pytest.mark.parametrize("name", PLANNING)
def test_an_option_changes_what_is_planned(name: str) -> None:
    """With the same random numbers, of which more plans or rounds only use more."""
    assert not torch.allclose(planned({}), planned(PLANNING[name]))


def test_exploration_leaves_evaluations_alone() -> None:
    assert torch.equal(planned({}, explore=False), planned(PLANNING["exploration"], explore=False))


def test_an_imitator_learns_nothing_from_random_steps() -> None:
    model, updater, params = agent({"policy_loss": "distill"})
    sequences, shape = (
        experience(params),
        (params.learning.horizon, params.replay.batch_size, 2, 2),
    )
    before = {name: each.clone() for name, each in model.parts["policy"].state_dict().items()}
    updater.update(replace(sequences, expert=torch.full(shape, torch.nan)), 0.5)
    assert not differ(before, dict(model.parts["policy"].state_dict()))
    updater.update(replace(sequences, expert=torch.zeros(shape)), 0.5)
    assert differ(before, dict(model.parts["policy"].state_dict()))
