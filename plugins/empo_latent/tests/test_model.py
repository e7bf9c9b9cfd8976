"""The model begins as it should, keeps its parts apart, and hears about tasks what it should."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from reference_latent_networks import reference_model
from torch import Tensor

from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.presets import SIZES
from empo_latent.types import MultiTaskSpec

OPTIONAL: dict[str, Any] = {
    "auxiliary": {"discounts": [0.5, 0.9]},
    "reward": {"episodic": True, "heads": 2},
    "encoder": {"average_rate": 0.05},
    "latents": {"heads": 3},
    "value": {"heads": 4},
    "policy": {"average_rate": 0.05},
}
"""All that a model can have."""


def spec(tasks: int = 1, words: int = 3, actions: int = 2) -> MultiTaskSpec:
    """Of two tasks, the second uses the first number of an action only."""
    active = ((True,) * actions, (True,) + (False,) * (actions - 1))
    return MultiTaskSpec(
        words=words,
        pictures=False,
        shape=(words,),
        actions=actions,
        active=active[:tasks],
        tasks=("one", "two")[:tasks],
        action_repeats=(1,) * tasks,
        episode_lengths=(100,) * tasks,
    )


def fresh(params: LatentParams, tasks: int = 1, seed: int = 0, **options: Any) -> LatentModel:
    """A model as it is before it has learned anything."""
    generator = torch.Generator().manual_seed(seed)
    return LatentModel(params, spec(tasks), generator=generator, **options)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def answers(model: LatentModel, task: Tensor | None = None, **options: Any) -> dict[str, Tensor]:
    """Outputs of a model for random observations and actions, of batch shape 2 by 3."""
    observation, action = normal(2, 3, 3, seed=1), normal(2, 3, 2, seed=2).tanh()
    z = model.encode(observation, task=task)
    after = model.next_latent(z, action, task=task)
    policy = model.policy(z, task=task)
    said = {
        "encode": z,
        "next": after,
        "split": model.next_latent(after, action, task=task, split=True),
        "reward": model.reward(z, action, task=task),
        "value": model.value(after, action, task=task),
        "target": model.value(after, action, task=task, network="target"),
        "mean": policy.mean,
        "log_std": policy.log_std,
    }
    if "termination" in model.parts:
        said["termination"] = model.logits("termination", after, task=task)[0]
    if "auxiliary" in model.parts:
        said["auxiliary"] = model.auxiliary(after, task=task)
        said["auxiliary target"] = model.auxiliary(after, task=task, network="target")
    if "encoder" in model.averages:
        said["average"] = model.encode(observation, task=task, average=True)
    if "optimistic" in model.parts:
        said["optimistic"] = model.policy(z, task=task, optimistic=True).mean
    return said


def differing(first: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    return {name for name in first if not torch.equal(first[name], other[name])}


def test_answers_have_heads_first(small: Any, lab: Any) -> None:
    said = answers(lab.model(small(**OPTIONAL), optimistic=True))

    assert {name: tuple(tensor.shape) for name, tensor in said.items()} == {
        "encode": (2, 3, 8),
        "average": (2, 3, 8),
        "next": (3, 2, 3, 8),
        "split": (3, 2, 3, 8),
        "reward": (2, 2, 3, 1),
        "value": (4, 3, 2, 3, 1),
        "target": (4, 3, 2, 3, 1),
        "termination": (3, 2, 3, 1),
        "auxiliary": (2, 3, 2, 3, 1),
        "auxiliary target": (2, 3, 2, 3, 1),
        "mean": (2, 3, 2),
        "log_std": (2, 3, 2),
        "optimistic": (2, 3, 2),
    }


@pytest.mark.parametrize("heads", [1, 5])
def test_at_first_nothing_pays_nothing_is_worth_anything_and_any_step_may_be_the_last(
    small: Any, heads: int
) -> None:
    count = {"heads": heads}
    model = fresh(
        small(
            latents=count,
            value=count,
            reward={"episodic": True, **count},
            auxiliary={"discounts": [0.5, 0.9]},
        )
    )
    z, action = torch.rand(6, 8), torch.rand(6, 2)

    assert model.reward(z, action).abs().max() < 1e-6
    assert model.auxiliary(z).abs().max() < 1e-6
    torch.testing.assert_close(model.termination(z), torch.full((6, 1), 0.5))
    for network in ("online", "target"):
        assert model.value(z, network=network).abs().max() < 1e-6
    assert model.next_latent(z, action).std(1).min() > 0
    assert model.policy(z).mean.abs().max() > 0


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("groups", [{}, OPTIONAL], ids=["little", "everything"])
def test_every_parameter_is_in_exactly_one_group_or_an_average(
    small: Any, tasks: int, groups: dict[str, Any]
) -> None:
    model = fresh(small(**groups), tasks, optimistic=bool(groups))

    found = model.groups()

    names = {id(parameter): name for name, parameter in model.named_parameters()}
    grouped = [id(parameter) for group in found.values() for parameter in group]
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == trained
    averages = ("averages.value.", "averages.auxiliary.", "averages.encoder.", "averages.policy.")
    assert all(names[key].startswith(averages) for key in names.keys() - trained)
    expected = {"encoder", "dynamics", "reward", "value", "policy"}
    expected |= {"termination", "auxiliary", "optimistic"} if groups else set()
    assert set(found) == expected | ({"task"} if tasks == 2 else set())


@pytest.mark.parametrize("heads", [1, 5])
def test_averages_follow_their_networks_at_their_rates(small: Any, lab: Any, heads: int) -> None:
    groups = {
        "value": {"heads": heads, "target_rate": 0.1},
        "auxiliary": {"discounts": [0.5]},
        "encoder": {"average_rate": 0.3},
        "policy": {"average_rate": 0.6},
    }
    model = lab.model(small(**groups))
    pairs = (
        (model.parts["value"], model.averages["value"], 0.1),
        (model.parts["auxiliary"], model.averages["auxiliary"], 0.1),
        (model.encoder, model.averages["encoder"], 0.3),
        (model.parts["policy"], model.averages["policy"], 0.6),
    )
    before = [[p.clone() for p in average.parameters()] for _, average, _ in pairs]
    online = [parameter.clone() for group in model.groups().values() for parameter in group]
    said = answers(model)

    model.update_targets()

    for (network, average, rate), old in zip(pairs, before, strict=True):
        for new, was, source in zip(average.parameters(), old, network.parameters(), strict=True):
            torch.testing.assert_close(new, was + rate * (source - was))
    now = [parameter for group in model.groups().values() for parameter in group]
    assert all(map(torch.equal, online, now))
    assert differing(said, answers(model)) == {"target", "auxiliary target", "average"}


def test_averages_begin_as_their_networks(small: Any) -> None:
    said = answers(fresh(small(**OPTIONAL)).double())

    assert torch.equal(said["average"], said["encode"])
    assert torch.equal(said["target"], said["value"])


@pytest.mark.parametrize(
    ("part", "affected"),
    [
        ("parts.value", {"value"}),
        ("averages.value", {"target"}),
        ("parts.auxiliary", {"auxiliary"}),
        ("averages.auxiliary", {"auxiliary target"}),
        ("averages.encoder", {"average"}),
        ("parts.termination", {"termination"}),
        ("parts.reward", {"reward"}),
        ("parts.policy", {"mean", "log_std"}),
        ("parts.optimistic", {"optimistic"}),
    ],
)
def test_parts_have_parameters_of_their_own(
    small: Any, lab: Any, part: str, affected: set[str]
) -> None:
    model = lab.model(small(**OPTIONAL), optimistic=True)
    said = answers(model)

    with torch.no_grad():
        for parameter in model.get_submodule(part).parameters():
            parameter += 0.1

    assert differing(said, answers(model)) == affected


def test_weights_depend_on_the_generator_alone_and_optional_parts_draw_last(small: Any) -> None:
    torch.manual_seed(1)
    plain = fresh(small(), seed=7)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    extras = {name: OPTIONAL[name] for name in ("auxiliary", "encoder")}
    more = fresh(small(**extras, reward={"episodic": True}), seed=7, optimistic=True)
    other = fresh(small(), seed=8)

    assert torch.equal(before, torch.get_rng_state())
    assert answers(plain.double()).keys() < answers(more.double()).keys()
    assert not differing(answers(plain), answers(more))
    assert "encode" in differing(answers(plain), answers(other.double()))


def test_the_second_policy_begins_on_its_own(small: Any) -> None:
    model = fresh(small(), optimistic=True)

    one, other = model.parts["policy"].weights, model.parts["optimistic"].weights

    assert not any(map(torch.equal, one, other))


def test_each_head_goes_on_from_its_own_latent(small: Any, lab: Any) -> None:
    model = lab.model(small(**OPTIONAL))
    z, action = normal(3, 5, 8).softmax(-1), normal(5, 2)

    found = model.next_latent(z, action, split=True)

    for head in range(3):
        torch.testing.assert_close(found[head], model.next_latent(z[head], action)[head])


@pytest.mark.parametrize("critic", ["v", "q"])
@pytest.mark.parametrize("network", ["online", "target"])
def test_chosen_value_heads_say_what_they_say_among_all(
    small: Any, lab: Any, critic: str, network: str
) -> None:
    model = lab.model(small(value={"heads": 4, "critic": critic}))
    z, action, heads = normal(5, 8), normal(5, 2), torch.tensor([3, 1])

    found = model.value(z, action, network=network, heads=heads)

    torch.testing.assert_close(found, model.value(z, action, network=network)[heads])


def test_q_depends_on_actions_and_v_does_not(small: Any, lab: Any) -> None:
    z, one, other = normal(5, 8), normal(5, 2), normal(5, 2, seed=1)
    v, q = (lab.model(small(value={"critic": critic})) for critic in "vq")

    assert torch.equal(v.value(z, one), v.value(z))
    assert not torch.equal(q.value(z, one), q.value(z, other))
    with pytest.raises(ValueError, match="say which"):
        q.value(z)


def test_what_there_is_not_is_refused_by_name(small: Any) -> None:
    model, z = fresh(small()), torch.rand(2, 8)

    with pytest.raises(ValueError, match=r"set auxiliary"):
        model.auxiliary(z)
    with pytest.raises(ValueError, match=r"reward\.episodic"):
        model.logits("termination", z)[0]
    with pytest.raises(ValueError, match="optimistic_loss"):
        model.policy(z, optimistic=True)
    with pytest.raises(ValueError, match=r"encoder\.average_rate"):
        model.encode(torch.rand(2, 3), average=True)
    assert torch.equal(model.termination(z), torch.zeros(2, 1))


def test_auxiliary_values_keep_their_discounts_order(small: Any, lab: Any) -> None:
    """The output for the second discount says 3 in symlog space, the others nothing."""
    groups = {"auxiliary": {"discounts": [0.1, 0.5, 0.9]}}
    model = lab.model(small(**groups, bins={"number": 21}))
    last = model.parts["auxiliary"]
    with torch.no_grad():
        last.weights[-1].zero_()
        last.biases[-1].zero_()
        last.biases[-1].view(3, 21)[1, 13] = 100.0

    found = model.logits("auxiliary", normal(2, 5, 8))

    assert found.shape == (3, 2, 5, 21)
    decoded = model.auxiliary(normal(2, 5, 8)).amax((1, 2, 3))
    expected = torch.tensor([0.0, torch.tensor(3.0).expm1(), 0.0], dtype=torch.float64)
    torch.testing.assert_close(decoded, expected, atol=1e-4, rtol=1e-4)


DROPPING: list[tuple[dict[str, Any], Callable[[LatentModel, bool], Tensor]]] = [
    (
        {"value": {"dropout": 0.5}},
        lambda model, training: model.logits("value", normal(9, 8), training=training),
    ),
    (
        {"value": {"dropout": 0.5}, "auxiliary": {"discounts": [0.5]}},
        lambda model, training: model.logits("auxiliary", normal(9, 8), training=training),
    ),
]


@pytest.mark.parametrize(("groups", "ask"), DROPPING)
def test_units_are_dropped_where_and_when_that_is_asked_for(
    small: Any, lab: Any, groups: dict[str, Any], ask: Callable[[LatentModel, bool], Tensor]
) -> None:
    dropping, plain = lab.model(small(**groups)), lab.model(small(value={"dropout": 0.0}))
    torch.manual_seed(0)

    assert torch.equal(ask(dropping, False), ask(dropping, False))
    assert not torch.equal(ask(dropping, False), ask(dropping, True))
    if "auxiliary" not in groups:
        assert torch.equal(ask(plain, False), ask(plain, True))


def test_target_networks_never_drop_units(small: Any, lab: Any) -> None:
    model = lab.model(small(value={"dropout": 0.5}, auxiliary={"discounts": [0.5]}))
    z = normal(9, 8)

    for head in ("value", "auxiliary"):
        ask = partial(model.logits, head, z, network="target")
        assert torch.equal(ask(training=True), ask())


def test_the_policy_s_spread_stays_within_its_bounds(small: Any, lab: Any) -> None:
    model = lab.model(small(policy={"min_log_std": -3.0, "max_log_std": 1.0}))
    z = normal(400, 8)
    with torch.no_grad():
        model.parts["policy"].weights[-1].mul_(5)

    policy = model.policy(z)

    raw_mean, raw = model.parts["policy"](z)[0].chunk(2, -1)
    torch.testing.assert_close(policy.log_std, -3 + 0.5 * 4 * (raw.tanh() + 1))
    torch.testing.assert_close(policy.mean, raw_mean)
    assert policy.log_std.min() < -2.9
    assert policy.log_std.max() > 0.9
    torch.testing.assert_close(policy.bounded(raw_mean), raw_mean.tanh())


def test_everything_but_constants_hears_which_task_it_is(small: Any, lab: Any) -> None:
    model = lab.model(small(**OPTIONAL), tasks=2, optimistic=True)

    one, other = (answers(model, torch.full((3,), task)) for task in (0, 1))
    both = answers(model, torch.tensor([0, 1, 0]))

    assert differing(one, other) == set(one)
    for name, said in both.items():
        torch.testing.assert_close(said.select(-2, 0), one[name].select(-2, 0))
        torch.testing.assert_close(said.select(-2, 1), other[name].select(-2, 1))


def test_each_network_reads_the_task_itself(small: Any, lab: Any) -> None:
    """Not only through latents: these are the same for both tasks here."""
    model = lab.model(small(**OPTIONAL), tasks=2, optimistic=True)
    z, action = normal(4, 8), torch.zeros(4, 2).double()
    asks: list[Callable[[Tensor], Tensor]] = [
        lambda task: model.next_latent(z, action, task=task),
        lambda task: model.reward(z, action, task=task),
        lambda task: model.value(z, task=task),
        lambda task: model.value(z, task=task, network="target"),
        lambda task: model.auxiliary(z, task=task),
        lambda task: model.logits("termination", z, task=task)[0],
        lambda task: model.policy(z, task=task).log_std,
        lambda task: model.policy(z, task=task, optimistic=True).log_std,
    ]

    for ask in asks:
        assert not torch.equal(ask(torch.tensor(0)), ask(torch.tensor(1)))


def test_the_whole_model_is_what_plain_torch_says(small: Any, lab: Any) -> None:
    model = lab.model(small(**OPTIONAL), tasks=2, optimistic=True)
    plain, task = reference_model(model), torch.tensor([0, 1, 1])

    found, expected = answers(model, task), answers(plain, task)

    for name, said in expected.items():
        torch.testing.assert_close(found[name], said, rtol=1e-5, atol=1e-5)
    for said in (found, expected):
        sum(tensor.sin().sum() for tensor in said.values()).backward()
    torch.testing.assert_close(
        model.task_embedding.table.grad, plain.task_embedding.table.grad, rtol=1e-5, atol=1e-5
    )
    gradient = plain.encoder.perceptron.networks[0][0].weight.grad
    torch.testing.assert_close(
        model.encoder.perceptron.weights[0].grad[0], gradient, rtol=1e-5, atol=1e-5
    )


MILLIONS = {"tiny": 0.19, "1M": 1.21, "5M": 4.96, "19M": 18.1, "48M": 47.2, "317M": 312.6}
"""Millions of parameters that are trained, of a critic ``q`` that sees 17 numbers and does 6."""


@pytest.mark.parametrize("size", SIZES)
def test_sizes_have_about_as_many_parameters_as_their_names_say(small: Any, size: str) -> None:
    params = LatentParams.model_validate(
        {
            "size": size,
            "total_steps": 1,
            "tasks": ["gymnasium/Pendulum-v1"],
            "policy_loss": "any",
            "value": {"critic": "q"},
        },
        context={"registry": small.registry},
    )
    place, generator = spec(words=17, actions=6), torch.Generator().manual_seed(0)

    with torch.device("meta"):  # Only shapes; the largest would take gigabytes.
        model = LatentModel(params, place, generator=generator)

    found = sum(tensor.numel() for group in model.groups().values() for tensor in group)
    assert found / 1e6 == pytest.approx(MILLIONS[size], rel=0.01)


def test_half_precision_is_near(small: Any) -> None:
    model = fresh(small()).requires_grad_(False)
    observation, action = torch.randn(5, 3), torch.rand(5, 2)
    z = model.encode(observation)
    exact = model.next_latent(z, action)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model.next_latent(model.encode(observation), action)

    torch.testing.assert_close(rough.float(), exact, rtol=0.1, atol=0.02)
