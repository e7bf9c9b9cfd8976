import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_latent_losses import (
    auxiliary_targets_reference,
    td_targets_reference,
    value_target_reference,
)
from torch import Tensor

from empo_latent.learning.latent_rollout import policy_rollout
from empo_latent.learning.targets import (
    auxiliary_target,
    auxiliary_targets,
    reduced,
    target_metrics,
    td_targets,
    value_target,
)
from empo_latent.learning.value_losses import auxiliary_loss
from empo_latent.networks.ensemble import drawn_heads
from empo_latent.params.networks import AuxiliaryParams, ValueParams

FEW = settings(max_examples=7)
GAMMA = torch.tensor(0.9).double()
CERTAIN = {"min_log_std": -40.0, "max_log_std": -39.0}
heads = st.integers(1, 3)


@given(
    dynamics=heads,
    rewards=heads,
    values=heads,
    steps=st.integers(1, 2),
    sequences=st.integers(1, 2),
    candidates=st.integers(1, 2),
    tasks=st.integers(1, 2),
    critic=st.sampled_from(["v", "q"]),
    network=st.sampled_from(["target", "online"]),
)
@FEW
def test_targets_are_those_of_loops_over_states_and_heads(
    small: Any,
    lab: Any,
    dynamics: int,
    rewards: int,
    values: int,
    steps: int,
    sequences: int,
    candidates: int,
    tasks: int,
    critic: Any,
    network: Any,
) -> None:
    params = small(
        latents={"heads": dynamics},
        reward={"heads": rewards, "episodic": True},
        value={"heads": values, "critic": critic},
        auxiliary={"discounts": [0.5, 0.8]},
        policy=CERTAIN,
    )
    model = lab.model(params, tasks=tasks)
    task = torch.arange(sequences) if tasks > 1 else None
    start = torch.rand(2, sequences, 8).double()
    rollout = policy_rollout(model, start, candidates=candidates, steps=steps, task=task)
    discount = GAMMA
    if rollout.task is not None:
        discount = torch.tensor([0.9, 0.6]).double()[rollout.task].unsqueeze(-1)
    td, v_next = td_targets(model, rollout, discount, network=network)
    m = 2 * sequences * candidates
    assert td.shape == (steps, rewards, dynamics, values, m, 1)
    assert v_next.shape == (steps, dynamics, values, m, 1)
    expected = td_targets_reference(model, rollout, discount, network)
    torch.testing.assert_close(td, expected)
    found = auxiliary_targets(model, rollout, torch.tensor([0.5, 0.8]).double())
    assert found.shape == (steps, rewards, dynamics, 2, m, 1)
    torch.testing.assert_close(found, auxiliary_targets_reference(model, rollout, [0.5, 0.8]))


@given(
    dynamics=heads,
    rewards=heads,
    values=st.integers(1, 4),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3)),
    join=st.sampled_from(["mean", "min", "max"]),
    bootstrap=st.sampled_from(["local", "mean", "min", "pair"]),
    average=st.sampled_from(["target", "cross_entropy"]),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_heads_and_candidates_become_targets_as_in_loops_over_them(
    dynamics: int,
    rewards: int,
    values: int,
    shape: tuple[int, int, int],
    join: Any,
    bootstrap: Any,
    average: Any,
    weighted: bool,
    seed: int,
) -> None:
    moments, sequences, candidates = shape
    params = ValueParams(heads=values, dynamics=join, bootstrap=bootstrap, average=average)
    torch.manual_seed(seed)
    td = torch.randn(1, rewards, dynamics, values, moments * sequences * candidates, 1).double()
    weights = torch.rand(moments * sequences, candidates).double().softmax(1) if weighted else None
    torch.manual_seed(seed)
    pair = drawn_heads(values, 2, td.device).tolist() if bootstrap == "pair" and values > 2 else []
    torch.manual_seed(seed)
    found = value_target(td, params, moments, sequences, candidates, weights)
    expected = value_target_reference(td, params, moments, sequences, candidates, weights, pair)
    torch.testing.assert_close(found, expected)


def imagined_by(model: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return policy_rollout(model, torch.rand(2, 3, 8).double(), candidates=2, **options)


def test_targets_are_contiguous_constants(small: Any, lab: Any) -> None:
    params = small(latents={"heads": 2}, auxiliary={"discounts": [0.5]})
    model = lab.model(params)
    rollout = imagined_by(model, steps=2)
    found = [*td_targets(model, rollout, GAMMA)]
    found.append(auxiliary_targets(model, rollout, torch.tensor([0.5])))
    found.append(value_target(found[0], params.value, 2, 3, 2))
    assert all(tensor.is_contiguous() for tensor in found[:3])
    assert not any(tensor.requires_grad for tensor in found)


def moved(model: Any, *parts: str) -> Any:
    """A copy of a model with other weights in some parts."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for part in parts:
            for weight in other.get_submodule(part).parameters():
                weight.add_(0.5)
    return other


@pytest.mark.parametrize("critic", ["v", "q"])
def test_targets_come_from_the_networks_that_follow_slowly(
    small: Any, lab: Any, critic: str
) -> None:
    params = small(value={"critic": critic}, auxiliary={"discounts": [0.5]}, policy=CERTAIN)
    model = lab.model(params)
    rollout = imagined_by(model)

    def found(model: Any) -> tuple[Tensor, Tensor, Tensor]:
        gammas = torch.tensor([0.5]).double()
        return (
            td_targets(model, rollout, GAMMA)[0],
            td_targets(model, rollout, GAMMA, network="online")[0],
            auxiliary_targets(model, rollout, gammas),
        )

    before = found(model)
    online = found(moved(model, "heads.value", "heads.auxiliary"))
    slow = found(moved(model, "averages.value", "averages.auxiliary"))
    same = [torch.allclose(x, y) for x, y in zip(before, online, strict=True)]
    assert same == [True, False, True]
    same = [torch.allclose(x, y) for x, y in zip(before, slow, strict=True)]
    assert same == [False, True, False]


def test_a_step_that_ends_the_episode_is_worth_what_it_pays(small: Any, lab: Any) -> None:
    params = small(latents={"heads": 2}, reward={"heads": 2}, auxiliary={"discounts": [0.5, 0.9]})
    model = lab.model(params)
    rollout = imagined_by(model)
    gammas = torch.tensor([0.5, 0.9]).double()
    going_on, _ = td_targets(model, rollout, GAMMA)
    ended = rollout.termination.clone()
    ended[0, 1, 3] = 1
    rollout = replace(rollout, termination=ended)
    td, _ = td_targets(model, rollout, GAMMA)
    auxiliary = auxiliary_targets(model, rollout, gammas)
    paid = rollout.reward[0][:, 0, 3]
    assert torch.equal(td[0, :, 1, :, 3], paid[:, None].expand(2, params.value.heads, 1))
    assert torch.equal(auxiliary[0, :, 1, :, 3], paid[:, None].expand(2, 2, 1))
    ended[0, 1, 3] = 0
    kept = torch.ones_like(td, dtype=torch.bool)
    kept[0, :, 1, :, 3] = False
    assert torch.equal(td[kept], going_on[kept])
    assert not torch.isclose(td[~kept], going_on[~kept]).any()


def test_joining_all_heads_at_once_is_joining_them_one_sort_after_the_other(
    small: Any, lab: Any
) -> None:
    model = lab.model(small(latents={"heads": 3}, reward={"heads": 2}, value={"heads": 4}))
    rollout = imagined_by(model)
    td, v_next = td_targets(model, rollout, GAMMA)
    reward = rollout.reward[0][:, 0]
    for mode in ("min", "max"):
        paid = reduced(reward, mode, (0,))  # type: ignore[arg-type]
        later = reduced(v_next[0], mode, (0, 1))  # type: ignore[arg-type]
        at_once = reduced(td[0], mode, (0, 1, 2))  # type: ignore[arg-type]
        assert torch.equal(at_once, paid + GAMMA * later)
        in_turn = reduced(reduced(td[0], mode, (2,)), mode, (0, 1))  # type: ignore[arg-type]
        assert torch.equal(at_once, in_turn)
    means = reward.mean(0) + GAMMA * v_next[0].mean((0, 1))
    torch.testing.assert_close(reduced(td[0], "mean", (0, 1, 2)), means)


def test_heads_learn_from_themselves_or_all_from_the_same() -> None:
    td = torch.randn(1, 2, 2, 3, 8, 1)
    for bootstrap, distinct in [("local", 3), ("mean", 1), ("min", 1), ("pair", 1)]:
        params = ValueParams.model_validate({"heads": 3, "bootstrap": bootstrap})
        target = value_target(td, params, 2, 2, 2)
        assert len(target.unique(dim=0)) == distinct


def test_pairs_are_drawn_anew_each_time_and_evenly() -> None:
    torch.manual_seed(0)
    drawn = [tuple(sorted(drawn_heads(4, 2, torch.device("cpu")).tolist())) for _ in range(600)]
    counts = {pair: drawn.count(pair) for pair in drawn}
    assert all(one != other for one, other in counts)
    assert len(counts) == 6
    assert min(counts.values()) > 70


def test_disagreement_of_a_single_head_is_0(small: Any, lab: Any) -> None:
    for number in (1, 3):
        model = lab.model(small(latents={"heads": number}, value={"heads": number}))
        metrics = target_metrics(*td_targets(model, imagined_by(model), GAMMA))
        assert all(value.ndim == 0 and value.isfinite() for value in metrics.values())
        assert (metrics["td/disagreement"] > 0) == (number > 1)
        assert (metrics["value/disagreement"] > 0) == (number > 1)


def test_metrics_say_what_targets_are_like() -> None:
    td = torch.arange(24.0).view(1, 1, 2, 3, 4, 1)
    metrics = target_metrics(td, td[:, 0])
    assert metrics["td/mean"] == 11.5
    assert metrics["td/min"] == 0
    assert metrics["td/max"] == 23
    torch.testing.assert_close(metrics["td/std"], torch.tensor(575 / 12).sqrt())
    # Heads are 4 apart: 0, 4, ..., 20.
    torch.testing.assert_close(metrics["td/disagreement"], torch.tensor(56.0).sqrt())


def test_auxiliary_targets_have_their_own_discount_and_no_other(small: Any, lab: Any) -> None:
    model = lab.model(small(auxiliary={"discounts": [0.5, 0.8]}))
    rollout = imagined_by(model)
    zero = auxiliary_targets(model, rollout, torch.tensor([0.0, 0.0]).double())
    one = auxiliary_targets(model, rollout, torch.tensor([0.5, 0.8]).double())
    value = model.auxiliary(rollout.latent[1, 0], network="target")
    torch.testing.assert_close((one - zero)[0, 0, 0, 0], 0.5 * value[0])
    torch.testing.assert_close((one - zero)[0, 0, 0, 1], 0.8 * value[1])


def test_auxiliary_targets_join_heads_and_candidates() -> None:
    targets = torch.randn(1, 2, 3, 4, 12, 1)
    for mode in ("mean", "min"):
        params = AuxiliaryParams(discounts=[0.1, 0.2, 0.3, 0.4], dynamics=mode)  # type: ignore[arg-type]
        found = auxiliary_target(targets, params, 3, 2)
        assert found.shape == (4, 3, 2, 1, 1)
        each = targets[0].flatten(0, 1)[..., 0]
        heads = each.mean(0) if mode == "mean" else each.amin(0)
        for gamma, moment, b in [(0, 0, 0), (3, 2, 1), (1, 1, 0)]:
            m = (moment * 2 + b) * 2
            torch.testing.assert_close(
                found[gamma, moment, b, 0, 0], heads[gamma, m : m + 2].mean()
            )


@pytest.mark.parametrize("networks", ["separate", "joint"])
def test_auxiliary_values_of_always_1_become_1_over_1_minus_gamma(
    small: Any, lab: Any, networks: str
) -> None:
    gammas = [0.5, 0.8]
    params = small(
        auxiliary={"discounts": gammas, "networks": networks, "coef": 1.0},
        value={"target_rate": 1.0, "dropout": 0.0},
        bins={"number": 21, "low": -2.0, "high": 2.0},
    )
    model = lab.model(params)
    heads = model.heads["auxiliary"]
    assert heads is not None
    with torch.no_grad():
        model.heads["reward"].weights[-1].zero_()
        model.heads["reward"].biases[-1].copy_(logits(model, torch.ones(1, 1).double()))
        heads.weights[-1].zero_()
    start, weight = torch.rand(2, 4, 8).double(), torch.ones(2, 4).double()
    rollout = policy_rollout(model, start, candidates=2)
    torch.testing.assert_close(rollout.reward[0], torch.ones(1, 1, 16, 1).double())
    for _ in range(60):  # What minimises the loss exactly, since all states are alike.
        model.update_targets()
        targets = auxiliary_targets(model, rollout, torch.tensor(gammas).double())
        target = auxiliary_target(targets, params.auxiliary, 2, 4)
        with torch.no_grad():
            heads.biases[-1].copy_(logits(model, target[:, 0, 0, 0]).view_as(heads.biases[-1]))
    expected = torch.tensor([2.0, 5.0]).double()
    found = model.auxiliary(start)
    torch.testing.assert_close(found[:, 0, 0, 0], expected, rtol=1e-4, atol=0)
    auxiliary_loss(model, start, target, weight, params.auxiliary).total.backward()
    slopes = heads.biases[-1].grad
    assert slopes is not None
    assert slopes.abs().max() < 1e-6


def logits(model: Any, y: Tensor) -> Tensor:
    """Of all probability on the two bins next to each number."""
    weights: Tensor = model.two_hot.encode(y)
    return weights.clamp(min=1e-20).log()
