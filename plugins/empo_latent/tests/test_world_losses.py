from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_world_losses import NoLoss, world_losses
from reference_latent_losses import world_losses_reference
from torch import Tensor

from empo_latent.learning.agent_losses import AgentLosses
from empo_latent.learning.latent_rollout import latent_rollout
from empo_latent.learning.loss_terms import step_weights
from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch, WeightedLoss

RHO = torch.tensor([1.0, 0.5, 0.25]).double()
EVERYTHING: dict[str, Any] = {
    "latents": {"heads": 2},
    "reward": {"heads": 2, "episodic": True},
    "encoder": {"consistency_coef": 0.5},
}


def losses_of(
    model: Any,
    sequences: SequenceBatch,
    params: LatentParams,
    rho: Tensor = RHO,
    average: bool = False,
) -> tuple[WeightedLoss, Tensor]:
    encodings = model.encode(sequences.observation, task=sequences.task)
    targets = model.encode(sequences.observation, task=sequences.task, average=average)
    return world_losses(model, sequences, encodings, targets, params, rho)


@given(
    dynamics=st.integers(1, 3),
    rewards=st.integers(1, 2),
    time=st.integers(1, 3),
    number=st.integers(1, 2),
    tasks=st.integers(1, 2),
    source=st.sampled_from(["rollout", "encoding"]),
    episodic=st.booleans(),
    ends=st.lists(st.booleans(), min_size=6, max_size=6),
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=2),
)
@settings(max_examples=12)
def test_losses_are_those_of_loops_over_slices_steps_and_heads(
    small: Any,
    lab: Any,
    dynamics: int,
    rewards: int,
    time: int,
    number: int,
    tasks: int,
    source: str,
    episodic: bool,
    ends: list[bool],
    lengths: list[int],
) -> None:
    params = small(
        latents={"heads": dynamics},
        reward={"heads": rewards, "predict_from": source, "episodic": episodic},
        encoder={"consistency_coef": 0.5},
    )
    model = lab.model(params, tasks=tasks)
    sequences = lab.sequences(time=time, number=number, tasks=tasks)
    if episodic:
        ended = torch.tensor(ends).double()[: time * number].view(time, number, 1)
        sequences = replace(sequences, terminated=ended)
    if max(lengths) < 4:  # Episodes that were cut off after so many steps.
        happened = torch.arange(time)[:, None, None] < torch.tensor(lengths[:number])[:, None]
        sequences = replace(
            sequences, valid=happened.double(), terminated=sequences.terminated * happened
        )
    encodings = model.encode(sequences.observation, task=sequences.task)
    targets = torch.rand(time + 1, number, 8).double()
    rho = step_weights(0.5, time, True).double()
    losses, _ = world_losses(model, sequences, encodings, targets, params, rho)
    expected = world_losses_reference(model, sequences, encodings, targets, params, rho)
    coefs = {
        "consistency": 20.0,
        "encoder_consistency": 0.5,
        "reward": 0.1,
        **({"termination": 1.0} if episodic else {}),
    }
    assert expected.keys() == coefs.keys()
    for name, loss in expected.items():
        assert losses.metrics[f"loss/{name}"].item() == pytest.approx(loss)
        assert losses.metrics[f"weighted/{name}"].item() == pytest.approx(coefs[name] * loss)
    total = sum(coefs[name] * loss for name, loss in expected.items())
    assert losses.total.item() == pytest.approx(total)


@pytest.mark.parametrize("source", ["rollout", "encoding"])
@pytest.mark.parametrize("with_value", [False, True])
def test_an_update_adds_up_the_losses_of_loops(
    small: Any, lab: Any, source: str, with_value: bool
) -> None:
    params = small(
        latents={"heads": 2},
        reward={"heads": 2, "predict_from": source, "episodic": True, "termination_coef": 2.0},
        encoder={"consistency_coef": 0.5, "target": "average"},
        value={"dropout": 0.0},
    )
    model, sequences = lab.model(params), lab.sequences()
    sequences = replace(sequences, terminated=torch.eye(3, 2)[..., None].double())
    losses = AgentLosses(model, {"policy": NoLoss()}, params, torch.tensor([0.9]))
    total, metrics, _ = losses.model_loss(sequences, with_value, False)
    encodings = model.encode(sequences.observation)
    targets = model.encode(sequences.observation, average=True)
    rho = step_weights(0.5, 3, False).double()
    expected = world_losses_reference(model, sequences, encodings, targets, params, rho)
    coefs = {"consistency": 20.0, "reward": 0.1, "encoder_consistency": 0.5, "termination": 2.0}
    assert expected.keys() == coefs.keys()
    for name, loss in expected.items():
        assert metrics[f"loss/{name}"].item() == pytest.approx(loss)
        assert metrics[f"weighted/{name}"].item() == pytest.approx(coefs[name] * loss)
    parts = [number for name, number in metrics.items() if name.startswith("weighted/")]
    assert len(parts) == 4 + with_value
    assert total.item() == pytest.approx(float(sum(parts)))


def test_every_head_is_rolled_out_on_its_own_from_the_first_encoding(small: Any, lab: Any) -> None:
    params = small(latents={"heads": 3})
    model, sequences = lab.model(params), lab.sequences()
    _, predicted = losses_of(model, sequences, params)
    start = model.encode(sequences.observation)[0]
    assert predicted.shape == (4, 3, 2, 8)
    assert torch.equal(predicted[0], start.expand(3, 2, 8))
    torch.testing.assert_close(predicted, latent_rollout(model, start, sequences))
    for t in range(3):
        for head in range(3):
            expected = model.next_latent(predicted[t, head], sequences.action[t])[head]
            torch.testing.assert_close(predicted[t + 1, head], expected)


@pytest.mark.parametrize("normalise", [False, True])
def test_losses_weigh_steps_by_powers_of_rho(small: Any, lab: Any, normalise: bool) -> None:
    params = small(**EVERYTHING)
    model, sequences = lab.model(params), lab.sequences()
    losses, _ = losses_of(model, sequences, params, step_weights(0.5, 3, normalise).double())
    by_step = {
        name: [losses.metrics[f"{name}/step_{t}"].item() for t in range(3)]
        for name in ("consistency", "reward")
    }
    for name, (first, second, third) in by_step.items():
        expected = (first + second / 2 + third / 4) / (1.75 if normalise else 3)
        assert losses.metrics[f"loss/{name}"].item() == pytest.approx(expected)


def test_nothing_counts_after_the_end_of_an_episode(small: Any, lab: Any) -> None:
    params = small(**EVERYTHING)
    model, sequences = lab.model(params), lab.sequences()
    ended = sequences.terminated.clone()
    ended[1] = 1
    sequences = replace(sequences, terminated=ended)

    def total(**changes: Tensor) -> float:
        losses, _ = losses_of(model, replace(sequences, **changes), params)
        assert losses.metrics["reward/step_2"] == 0
        return losses.total.item()

    before = total()
    for name in ("observation", "action", "reward"):
        changed = getattr(sequences, name).clone()
        changed[-1] = changed[-1] + 0.3
        assert total(**{name: changed}) == before
        changed[-2] = changed[-2] + 0.3
        assert total(**{name: changed}) != before
    # The later step of an episode that ended twice says nothing; the earlier one did.
    ended = ended.clone()
    ended[2] = 1
    assert total(terminated=ended) == before


@pytest.mark.parametrize("critic", ["v", "q"])
@pytest.mark.parametrize("start", ["encoding", "rollout"])
def test_no_loss_reads_what_is_padding(small: Any, lab: Any, critic: str, start: str) -> None:
    params = small(
        **EVERYTHING,
        value={"critic": critic, "dropout": 0.0},
        auxiliary={"discounts": [0.5]},
        imagination={"start": start},
    )
    model, sequences = lab.model(params), lab.sequences()
    losses = AgentLosses(model, {"policy": NoLoss()}, params, torch.tensor([0.9]))
    valid = torch.ones(3, 2, 1).double()
    valid[2:, 0] = 0  # An episode of two steps, and one of at least three.

    def total(valid: Tensor | None, **changes: Tensor) -> tuple[float, Tensor]:
        torch.manual_seed(0)
        batch = replace(sequences, valid=valid, **changes)
        loss, _, for_policies = losses.model_loss(batch, True, True)
        assert for_policies is not None
        return loss.item(), for_policies.weight.view(4, 2)

    padded, weight = total(valid)
    assert weight[:, 0].tolist() == [1, 0.5, 0.25, 0]
    assert weight[:, 1].tolist() == [1, 0.5, 0.25, 0.125]
    for name in ("observation", "action", "reward", "terminated"):
        changed = getattr(sequences, name).clone()
        changed[-1, 0] += 1  # The observation after the padding, and the padding.
        assert total(valid, **{name: changed})[0] == padded
        assert total(None, **{name: changed})[0] != padded
    # Without padding, all is as it was where nothing says what happened.
    assert total(torch.ones(3, 2, 1).double())[0] == total(None)[0]


def test_steps_on_the_way_to_the_end_count_less_the_later_they_are_but_ends_do_not(
    small: Any, lab: Any
) -> None:
    params = small(**EVERYTHING)
    model, sequences = lab.model(params), lab.sequences()
    full, _ = losses_of(model, sequences, params, torch.ones(3).double())
    less, _ = losses_of(model, sequences, params, 0.5 * torch.ones(3).double())
    for name in ("consistency", "encoder_consistency", "reward"):
        half = 0.5 * full.metrics[f"loss/{name}"]
        torch.testing.assert_close(less.metrics[f"loss/{name}"], half)
    assert less.metrics["loss/termination"] == full.metrics["loss/termination"]


def test_dynamics_learn_what_the_averaged_encoder_says_where_there_is_one(
    small: Any, lab: Any
) -> None:
    params = small(encoder={"target": "average"})
    model, sequences = lab.model(params), lab.sequences()
    before = [
        losses_of(model, sequences, params, average=each)[0].metrics for each in (False, True)
    ]
    assert "encoder" in model.averages
    with torch.no_grad():
        for weight in model.averages["encoder"].parameters():
            weight.mul_(-1)
    after = [losses_of(model, sequences, params, average=each)[0].metrics for each in (False, True)]
    assert after[0]["loss/consistency"] == before[0]["loss/consistency"]
    assert after[1]["loss/consistency"] != before[1]["loss/consistency"]
    assert after[1]["loss/reward"] == before[1]["loss/reward"]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ({"latents": {"consistency_coef": 7.0}}, "consistency"),
        ({"encoder": {"consistency_coef": 7.0}}, "encoder_consistency"),
        ({"reward": {"coef": 7.0}}, "reward"),
        ({"reward": {"episodic": True, "termination_coef": 7.0}}, "termination"),
    ],
)
def test_coefficients_multiply_their_losses(
    small: Any, lab: Any, group: dict[str, Any], name: str
) -> None:
    params = small(**group)
    losses, _ = losses_of(lab.model(params), lab.sequences(), params)
    expected = 7 * losses.metrics[f"loss/{name}"]
    torch.testing.assert_close(losses.metrics[f"weighted/{name}"], expected)
    weighted = [value for key, value in losses.metrics.items() if key.startswith("weighted/")]
    torch.testing.assert_close(losses.total, torch.stack(weighted).sum())
    usual = {"consistency", "reward", name}
    assert {key[5:] for key in losses.metrics if key.startswith("loss/")} == usual


def test_rewards_and_ends_are_read_from_predictions_or_encodings(small: Any, lab: Any) -> None:
    found = {}
    for source in ("rollout", "encoding"):
        params = small(reward={"predict_from": source, "episodic": True})
        model = lab.model(params)
        found[source] = losses_of(model, lab.sequences(), params)[0].metrics
    rollout, encoding = found["rollout"], found["encoding"]
    torch.testing.assert_close(rollout["reward/step_0"], encoding["reward/step_0"])
    assert rollout["reward/step_1"] != encoding["reward/step_1"]
    assert rollout["loss/termination"] != encoding["loss/termination"]
    assert rollout["loss/consistency"] == encoding["loss/consistency"]


def test_metrics_tell_when_encodings_have_collapsed_and_heads_disagree(
    small: Any, lab: Any
) -> None:
    params = small(latents={"heads": 2})
    model, sequences = lab.model(params), lab.sequences(number=3)
    metrics = losses_of(model, sequences, params)[0].metrics
    assert metrics["latent/variance"] > 1e-4
    assert metrics["latent/disagreement"] > 1e-4
    same = sequences.observation[:, :1].expand_as(sequences.observation)
    metrics = losses_of(model, replace(sequences, observation=same), params)[0].metrics
    assert metrics["latent/variance"] < 1e-30
    single = small()
    metrics = losses_of(lab.model(single), sequences, single)[0].metrics
    assert metrics["latent/disagreement"] == 0
    assert all(value.ndim == 0 and not value.requires_grad for value in metrics.values())


def test_what_should_be_predicted_is_a_constant(small: Any, lab: Any) -> None:
    params = small(**EVERYTHING)
    model, sequences = lab.model(params), lab.sequences()
    targets = torch.rand(4, 2, 8).double().requires_grad_()
    encodings = model.encode(sequences.observation).detach().requires_grad_()
    losses, predicted = world_losses(model, sequences, encodings, targets, params, RHO)
    losses.total.backward()
    assert targets.grad is None
    assert encodings.grad is not None
    assert predicted.requires_grad
