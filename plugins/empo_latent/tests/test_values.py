import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_world_losses import NoLoss
from reference_latent_losses import cross_entropy_reference, value_loss_reference
from torch import Tensor

from empo_latent.learning.agent_losses import AgentLosses
from empo_latent.learning.latent_rollout import latent_rollout, policy_rollout
from empo_latent.learning.loss_terms import alive, step_weights
from empo_latent.learning.targets import (
    auxiliary_target,
    auxiliary_targets,
    td_targets,
    value_target,
)
from empo_latent.learning.value_losses import (
    auxiliary_loss,
    prediction_latents,
    q_target,
    q_value_loss,
    value_loss,
)
from empo_latent.networks.ensemble import drawn_heads
from empo_latent.params.networks import ValueParams

GAMMA = torch.tensor(0.9).double()
STILL = {"dropout": 0.0}
CERTAIN = {"min_log_std": -40.0, "max_log_std": -39.0}


@given(
    heads=st.integers(1, 3),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    tasks=st.integers(1, 2),
    weighted=st.booleans(),
)
@settings(max_examples=12)
def test_the_loss_is_that_of_loops_over_starts_heads_and_targets(
    small: Any, lab: Any, heads: int, shape: tuple[int, int, int], tasks: int, weighted: bool
) -> None:
    moments, sequences, targets = shape
    params = small(value={"heads": heads, **STILL})
    model = lab.model(params, tasks=tasks)
    task = torch.arange(sequences) % tasks if tasks > 1 else None
    latents = torch.rand(moments, sequences, 8).double()
    target = 3 * torch.randn(heads, moments, sequences, targets, 1).double()
    weight = torch.rand(moments, sequences).double()
    weights = torch.rand(moments * sequences, targets).double().softmax(1) if weighted else None
    losses = value_loss(model, latents, target, weight, params.value, task=task, weights=weights)
    expected = value_loss_reference(model, latents, target, weight, task, weights)
    assert losses.metrics["loss/value"].item() == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(0.1 * expected)


def without_opinion(small: Any, lab: Any, bins: int = 11, **value: Any) -> tuple[Any, Any]:
    """A model whose value heads say all bins are alike, so that each loss is ``log(bins)``."""
    params = small(value={**STILL, "coef": 1.0, **value}, bins={"number": bins})
    model = lab.model(params)
    with torch.no_grad():
        model.heads["value"].weights[-1].zero_()
        model.heads["value"].biases[-1].zero_()
    return model, params.value


@pytest.mark.parametrize(("normalise", "share"), [(False, 1.875 / 4), (True, 1.0)])
def test_four_steps_count_as_computed_by_hand(
    small: Any, lab: Any, normalise: bool, share: float
) -> None:
    model, params = without_opinion(small, lab)
    weight = step_weights(0.5, 4, normalise).double()[:, None].expand(4, 3)
    latents, target = torch.rand(4, 3, 8).double(), torch.zeros(params.heads, 4, 3, 1, 1).double()
    losses = value_loss(model, latents, target, weight, params)
    assert losses.total.item() == pytest.approx(share * math.log(11))
    for step in range(4):
        assert losses.metrics[f"value/step_{step}"].item() == pytest.approx(math.log(11))


@pytest.mark.parametrize("normalise", [False, True])
def test_what_changes_at_one_step_changes_the_loss_by_its_power_of_rho(
    small: Any, lab: Any, normalise: bool
) -> None:
    params = small(value=STILL)
    model = lab.model(params)
    weight = step_weights(0.5, 4, normalise).double()[:, None].expand(4, 2)
    latents = torch.rand(1, 2, 8).double().expand(4, 2, 8)
    target = torch.zeros(params.value.heads, 4, 2, 1, 1).double()
    before = value_loss(model, latents, target, weight, params.value).total
    changes = []
    for step in range(4):
        other = target.clone()
        other[:, step] = 3.0
        changes.append(value_loss(model, latents, other, weight, params.value).total - before)
    found = torch.stack(changes) / changes[0]
    torch.testing.assert_close(found, torch.tensor([1, 0.5, 0.25, 0.125]).double())


def test_starts_after_the_end_of_their_episode_do_not_count(small: Any, lab: Any) -> None:
    params = small(value=STILL)
    model, sequences = lab.model(params), lab.sequences()
    ended = sequences.terminated.clone()
    ended[2, 1] = 1
    sequences = replace(sequences, terminated=ended)
    weight = step_weights(0.5, 4, False).double()[:, None] * alive(sequences)
    latents = torch.rand(4, 2, 8).double()
    target = torch.zeros(params.value.heads, 4, 2, 1, 1).double()

    def found(changed: Tensor) -> tuple[float, ...]:
        losses = value_loss(model, latents, changed, weight, params.value)
        names = ("value/step_3", "value/error", "loss/value")
        return tuple(losses.metrics[name].item() for name in names)

    other = target.clone()
    other[:, 3, 1] = 5
    assert found(other) == found(target)
    other[:, 2, 1] = 5
    assert found(other)[1:] != found(target)[1:]


def test_the_moment_that_ends_an_episode_is_worth_nothing(small: Any, lab: Any) -> None:
    params = small(
        value=STILL, auxiliary={"discounts": [0.5]}, reward={"episodic": True}, policy=CERTAIN
    )
    model, sequences = lab.model(params), lab.sequences()
    ended = torch.zeros_like(sequences.terminated)
    ended[1, 0] = 1  # The step from moment 1 to moment 2 of the first sequence.
    sequences = replace(sequences, terminated=ended)
    losses = AgentLosses(model, {"policy": NoLoss()}, params, GAMMA[None])
    _, metrics, _ = losses.model_loss(sequences, True, False)

    encodings = model.encode(sequences.observation).detach()
    rollout = policy_rollout(model, encodings, candidates=2)
    target = value_target(td_targets(model, rollout, GAMMA)[0], params.value, 4, 2, 2)
    auxiliary = auxiliary_targets(model, rollout, torch.tensor([0.5]).double())
    further = auxiliary_target(auxiliary, params.auxiliary, 4, 2)
    target[:, 2, 0] = further[:, 2, 0] = 0
    counts = torch.tensor([[1, 1], [1, 1], [1, 1], [0, 1]])
    weight = step_weights(0.5, 4, False).double()[:, None] * counts
    latents = latent_rollout(model, encodings[0], sequences)[:, 0]
    expected = value_loss_reference(model, latents, target, weight)
    assert metrics["loss/value"].item() == pytest.approx(expected)
    loss = auxiliary_loss(model, encodings, further, weight, params.auxiliary)
    torch.testing.assert_close(metrics["loss/auxiliary"], loss.metrics["loss/auxiliary"])


@pytest.mark.parametrize("average", ["target", "cross_entropy"])
def test_averages_of_targets_are_learned_as_means_and_averages_of_losses_as_means_of_symlogs(
    small: Any, lab: Any, average: Any
) -> None:
    params = ValueParams(heads=1, average=average, dropout=0.0)
    model, _ = without_opinion(small, lab, bins=101, heads=1)
    td = torch.tensor([0.0, 100.0]).double().view(1, 1, 1, 1, 2, 1)
    target = value_target(td, params, 1, 1, 2)
    latents, weight = torch.rand(1, 1, 8).double(), torch.ones(1, 1).double()
    value_loss(model, latents, target, weight, params).total.backward()
    slope = model.heads["value"].biases[-1].grad
    # From even odds p, the slope is p minus what is to be learned.
    learned = 1 / 101 - slope.flatten() / params.coef
    torch.testing.assert_close(learned.sum(), torch.tensor(1.0).double())
    decoded = model.two_hot.decode(learned.clamp(min=1e-30).log())
    expected = 50.0 if average == "target" else 9.05
    assert decoded.item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("average", ["target", "cross_entropy"])
def test_candidates_count_as_they_are_weighed(small: Any, lab: Any, average: Any) -> None:
    params = small(value={**STILL, "average": average}).value
    model = lab.model(small(value=STILL))
    td = torch.randn(1, 1, 1, params.heads, 3 * 2 * 2, 1).double()
    latents, weight = torch.rand(3, 2, 8).double(), torch.ones(3, 2).double()

    def loss(weights: Tensor | None, td: Tensor = td) -> float:
        target = value_target(td, params, 3, 2, 2, weights)
        kept = weights if average == "cross_entropy" else None
        losses = value_loss(model, latents, target, weight, params, weights=kept)
        return losses.total.item()

    first = torch.tensor([1.0, 0.0]).double().expand(6, 2)
    even = torch.full((6, 2), 0.5).double()
    only = td.view(1, 1, 1, -1, 6, 2, 1)[..., :1, :].expand(-1, -1, -1, -1, 6, 2, 1)
    assert loss(even) == pytest.approx(loss(None))
    assert loss(first) == pytest.approx(loss(None, only.reshape(td.shape)))
    assert loss(first) != pytest.approx(loss(even))


def test_predictions_are_made_where_the_gradient_is_wanted(small: Any, lab: Any) -> None:
    model, sequences = lab.model(small(latents={"heads": 2})), lab.sequences()
    encodings = model.encode(sequences.observation)
    predicted = latent_rollout(model, encodings[0], sequences)
    assert torch.equal(prediction_latents(encodings, predicted, "rollout"), predicted[:, 0])
    assert prediction_latents(encodings, predicted, "encoder") is encodings
    nothing = prediction_latents(encodings, predicted, "none")
    assert torch.equal(nothing, encodings)
    assert not nothing.requires_grad


def test_losses_of_values_do_not_reach_their_targets(small: Any, lab: Any) -> None:
    params = small(auxiliary={"discounts": [0.5]})
    model = lab.model(params)
    latents, weight = torch.rand(2, 2, 8).double(), torch.ones(2, 2).double()
    value = torch.randn(params.value.heads, 2, 2, 1, 1).double().requires_grad_()
    auxiliary = torch.randn(1, 2, 2, 1, 1).double().requires_grad_()
    total = value_loss(model, latents, value, weight, params.value).total
    total = total + auxiliary_loss(model, latents, auxiliary, weight, params.auxiliary).total
    total.backward()
    assert value.grad is None
    assert auxiliary.grad is None


def test_auxiliary_losses_are_means_over_discounts(small: Any, lab: Any) -> None:
    params = small(auxiliary={"discounts": [0.5, 0.7], "coef": 3.0}, value=STILL)
    model = lab.model(params, tasks=2)
    task = torch.tensor([0, 1])
    latents, weight = torch.rand(2, 2, 8).double(), torch.tensor([[1, 1], [0.5, 0]]).double()
    target = torch.randn(2, 2, 2, 1, 1).double()
    losses = auxiliary_loss(model, latents, target, weight, params.auxiliary, task=task)
    logits = model.logits("auxiliary", latents, task=task).detach()
    expected = 0.0
    for g in range(2):
        for s in range(2):
            for b in range(2):
                loss = cross_entropy_reference(model, logits[g, s, b], target[g, s, b, 0, 0])
                expected += float(weight[s, b]) * loss / 8
    assert losses.metrics["loss/auxiliary"].item() == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(3 * expected)


@pytest.mark.parametrize("bootstrap", ["local", "mean", "min", "pair"])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_actions_that_were_taken_are_worth_what_they_paid_and_what_follows(
    small: Any, lab: Any, bootstrap: str, heads: int
) -> None:
    value = {"critic": "q", "heads": heads, "bootstrap": bootstrap}
    params = small(value=value, policy=CERTAIN)
    model, sequences = lab.model(params, tasks=2), lab.sequences(tasks=2)
    ended = sequences.terminated.clone()
    ended[1, 0] = 1
    sequences = replace(sequences, terminated=ended)
    encodings = model.encode(sequences.observation, task=sequences.task)
    discount = torch.tensor([[0.9], [0.5]]).double()
    torch.manual_seed(0)
    noise = torch.randn(3, 2, 2, dtype=torch.float64)  # Of the policy, which comes first.
    assert noise.shape == sequences.action.shape
    pair = drawn_heads(heads, 2, noise.device) if heads > 2 else torch.arange(heads)
    torch.manual_seed(0)
    found = q_target(model, sequences, encodings, discount, params.value)
    assert not found.requires_grad
    for t in range(3):
        for b in range(2):
            task = torch.tensor(b)
            after = encodings[t + 1, b]
            policy = model.policy(after, task=task)
            action = policy.bounded(policy.loc)
            later = model.value(after, action, task=task, network="target").squeeze(-1)
            if bootstrap == "pair":
                later = later[pair].min().expand(heads)
            elif bootstrap != "local":
                later = (later.mean() if bootstrap == "mean" else later.min()).expand(heads)
            expected = sequences.reward[t, b] + discount[b] * (1 - ended[t, b]) * later
            torch.testing.assert_close(found[:, t, b, 0], expected.detach())
    assert torch.equal(found[:, 1, 0], sequences.reward[1, 0].expand(heads, 1))


def test_values_of_actions_are_predicted_before_each_action(small: Any, lab: Any) -> None:
    params = small(value={"critic": "q", "heads": 2, **STILL})
    model, sequences = lab.model(params, tasks=2), lab.sequences(tasks=2)
    latents, target = torch.rand(4, 2, 8).double(), torch.randn(2, 3, 2, 1).double()
    weight = torch.rand(3, 2).double()
    losses = q_value_loss(model, sequences, latents, target, weight, params.value)
    expected = 0.0
    for t in range(3):
        for b in range(2):
            action, task = sequences.action[t, b], torch.tensor(b)
            logits = model.logits("value", latents[t, b], action, task=task).detach()
            for e in range(2):
                loss = cross_entropy_reference(model, logits[e], target[e, t, b, 0])
                expected += float(weight[t, b]) * loss / 12
    assert losses.metrics["loss/value"].item() == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(0.1 * expected)


def test_metrics_say_how_far_values_are_off_where_anything_counts(small: Any, lab: Any) -> None:
    params = small(value={"heads": 2, **STILL})
    model = lab.model(params)
    latents, target = torch.rand(2, 2, 8).double(), torch.randn(2, 2, 2, 3, 1).double()
    weight = torch.tensor([[1, 1], [0.5, 0]]).double()
    metrics = value_loss(model, latents, target, weight, params.value).metrics
    value = model.value(latents).detach()
    off = (value - target.mean(3)).abs().squeeze(-1)
    error = (off[:, 0].sum() + off[:, 1, 0].sum()) / 6
    torch.testing.assert_close(metrics["value/error"], error)
    torch.testing.assert_close(metrics["value/mean"], value.mean())
    torch.testing.assert_close(metrics["value/target_mean"], target.mean())
    apart = (value[0] - value[1]).abs().mean() / 2**0.5
    torch.testing.assert_close(metrics["value/prediction_disagreement"], apart)
    assert all(each.ndim == 0 and not each.requires_grad for each in metrics.values())


def test_dropout_is_used_in_training_values_and_in_nothing_else(small: Any, lab: Any) -> None:
    params = small(value={"dropout": 0.5})
    model = lab.model(params)
    start, weight = torch.rand(2, 2, 8).double(), torch.ones(2, 2).double()
    rollout = policy_rollout(model, start, candidates=1)
    target = value_target(td_targets(model, rollout, GAMMA)[0], params.value, 2, 2, 1)
    same = value_target(td_targets(model, rollout, GAMMA)[0], params.value, 2, 2, 1)
    assert torch.equal(target, same)
    one, other = (value_loss(model, start, target, weight, params.value) for _ in range(2))
    assert one.total != other.total
