"""Losses of an update are those of plain loops over states, heads and steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from reference_latent_losses import losses_reference, returns
from torch import Tensor

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams, ValueParams
from empo_latent.types import SequenceBatch
from empo_latent.update import (
    Imagined,
    Updater,
    action_values,
    bootstrapped,
    policy_critic,
    weights_of,
)

GAMMAS = (0.9, 0.5)
DISCOUNTS = torch.tensor(GAMMAS).double()
HEADS: dict[str, Any] = {
    "latents": {"heads": 2},
    "reward": {"heads": 3, "episodic": True},
    "value": {"heads": 2, "dropout": 0.0},
}


class NoLoss(PolicyLoss):
    """A policy loss that only says how many candidates it wants."""

    takes = CandidateBatch
    needs = LossNeeds(candidates=3)

    def forward(self, distribution: Any, batch: Any, critic: Any = None) -> LossOutput:
        raise NotImplementedError


def lived(lab: Any, *, tasks: int = 2) -> SequenceBatch:
    """Episodes that go on, that end at once or at last, and one that is cut off and padded."""
    sequences: SequenceBatch = lab.sequences(time=3, number=4, tasks=tasks)
    terminated, valid = torch.zeros(2, 3, 4, 1).double()
    valid = valid + 1
    terminated[0:, 1], terminated[2, 2], valid[1:, 3] = 1, 1, 0
    return replace(sequences, terminated=terminated, valid=valid)


def losses_of(
    model: LatentModel, params: LatentParams, sequences: SequenceBatch
) -> tuple[dict[str, Tensor], Imagined]:
    torch.manual_seed(1)
    updater = Updater(model, {"policy": NoLoss()}, params, DISCOUNTS)
    _, metrics, imagined = updater.model_loss(sequences)
    return metrics, imagined


CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "rollouts": {"imagination": {"start": "rollout"}},
    "encodings": {
        "value": {**HEADS["value"], "gradient": "encoder"},
        "imagination": {"rho": 1.0, "critic": "online"},
        "learning": {"rho": 0.9},
    },
    "averages of losses": {"value": {**HEADS["value"], "average": "cross_entropy"}},
    "the least of a pair": {"value": {**HEADS["value"], "dynamics": "min", "bootstrap": "pair"}},
    "the greatest of a pair": {"value": {**HEADS["value"], "dynamics": "max", "bootstrap": "pair"}},
    "everything": {
        "encoder": {"average_rate": 0.1},
        "policy": {"average_rate": 0.1},
        "auxiliary": {"discounts": [0.5, 0.8]},
    },
    "values of actions": {"value": {**HEADS["value"], "critic": "q"}},
    "values of actions at encodings": {
        "value": {**HEADS["value"], "critic": "q", "gradient": "encoder", "bootstrap": "pair"},
    },
    "no ends": {"reward": {"heads": 1}},
}


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_loops_over_states_heads_and_steps(
    small: Any, lab: Any, name: str, tasks: int
) -> None:
    params: LatentParams = small(**{**HEADS, **CASES[name]})
    model, sequences = lab.model(params, tasks=tasks), lived(lab, tasks=tasks)
    metrics, imagined = losses_of(model, params, sequences)
    torch.manual_seed(1)
    torch.randn_like(imagined.u)  # What candidates were drawn with.
    after = model.encode(sequences.observation[1:], task=sequences.task)
    policy = model.policy(after, task=sequences.task)
    following = policy.bounded(policy.sample()).detach()
    expected = losses_reference(model, params, sequences, imagined.u, following, GAMMAS)
    coefficients = {
        "consistency": params.latents.consistency_coef,
        "reward": params.reward.coef,
        "termination": params.reward.termination_coef,
        "value": params.value.coef,
        "auxiliary": 0 if params.auxiliary is None else params.auxiliary.coef,
    }
    total = 0.0
    for loss, coefficient in coefficients.items():
        if coefficient and loss in expected:
            assert float(metrics[f"loss/{loss}"]) == pytest.approx(expected[loss], rel=1e-6), loss
            total += coefficient * expected[loss]
    assert float(metrics["loss/total"]) == pytest.approx(total, rel=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("tasks", [1, 2])
def test_candidates_are_judged_by_every_combination_of_heads(
    small: Any, lab: Any, tasks: int
) -> None:
    params = small(**HEADS)
    model, sequences = lab.model(params, tasks=tasks), lived(lab, tasks=tasks)
    _, imagined = losses_of(model, params, sequences)
    assert imagined.target.shape == (3, 16, 3 * 2 * 2)
    assert not any(x.requires_grad for x in imagined if isinstance(x, Tensor))
    for n, start in ((0, 0), (2, 7), (1, 13)):
        task = None if imagined.task is None else imagined.task[start]
        assert task is None or int(task) == start % 4 % 2
        z = imagined.start[start]
        torch.testing.assert_close(z, model.encode(sequences.observation[start // 4, start % 4],
                                                   task=task))  # fmt: skip
        action, gamma = imagined.u[n, start].tanh(), GAMMAS[int(task or 0)]
        by_value = returns(model, z, action, task, gamma, params)
        found = imagined.target[n, start].view(3 * 2, 2)
        torch.testing.assert_close(found, torch.tensor(by_value).double().T, rtol=1e-5, atol=1e-5)
        log_prob = model.policy(z, task=task).log_prob(imagined.u[n, start])
        torch.testing.assert_close(imagined.log_prob[n, start], log_prob)


def test_weights_follow_what_happened(lab: Any) -> None:
    sequences = lived(lab)
    rho = torch.tensor([1.0, 0.5, 0.25])
    weights = weights_of(sequences, rho, torch.tensor([1.0, 0.1, 0.01, 0.001]))
    # Columns: goes on, ends in the first step, ends in the last, is padded after one.
    assert weights.happened.tolist() == [[1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]]
    torch.testing.assert_close(weights.step, rho[:, None] * weights.happened)
    alive = torch.tensor([[1.0, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 0, 0]])
    value = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]])
    by_moment = torch.tensor([1.0, 0.1, 0.01, 0.001])[:, None]
    for found, expected in (
        (weights.alive, alive),
        (weights.start, by_moment * alive),
        (weights.value, by_moment * value),
    ):
        torch.testing.assert_close(found.view(4, 4).float(), expected)


@pytest.mark.parametrize("critic", ["v", "q"])
@pytest.mark.parametrize("start", ["encoding", "rollout"])
def test_no_loss_reads_what_is_padding(small: Any, lab: Any, critic: str, start: str) -> None:
    options = {"value": {**HEADS["value"], "critic": critic}, "imagination": {"start": start}}
    params = small(**{**HEADS, **options, "auxiliary": {"discounts": [0.5]}})
    model, sequences = lab.model(params), lived(lab, tasks=1)
    other = replace(sequences, **{
        name: getattr(sequences, name).clone() for name in ("observation", "action", "reward")
    })  # fmt: skip
    other.observation[2:, 3], other.action[1:, 3], other.reward[1:, 3] = 5.0, 0.3, 7.0
    ours, theirs = (losses_of(model, params, each)[0] for each in (sequences, other))
    for name in ours:
        if name.startswith("loss/"):
            torch.testing.assert_close(ours[name], theirs[name])


@pytest.mark.parametrize("kind", ["v", "q"])
def test_the_critic_has_the_slope_of_its_values_and_leaves_the_model_alone(
    small: Any, lab: Any, kind: str
) -> None:
    params = small(**{**HEADS, "value": {**HEADS["value"], "critic": kind}})
    model = lab.model(params, tasks=2)
    task, z = torch.tensor([0, 1]), torch.rand(2, 8).double()
    u = torch.randn(3, 2, 2).double()
    judge = policy_critic(model, DISCOUNTS, task)
    with torch.no_grad():
        slope = torch.func.grad(lambda u: judge(z, u).mean(-1).sum())(u)
    assert all(weight.grad is None for weight in model.parameters())
    # A number that a task does not use has no slope.
    assert (slope != 0).all((0,)).tolist() == [[True, True], [True, False]]
    attached = u.clone().requires_grad_()
    (expected,) = torch.autograd.grad(judge(z, attached).mean(-1).sum(), attached)
    torch.testing.assert_close(slope, expected)
    model.requires_grad_(False)
    assert torch.autograd.gradcheck(lambda u: judge(z, u), u.requires_grad_())


@pytest.mark.parametrize("kind", ["v", "q"])
def test_chosen_value_heads_judge_as_they_do_among_all(small: Any, lab: Any, kind: str) -> None:
    model = lab.model(small(value={"critic": kind, "heads": 4}))
    z, u, chosen = torch.rand(5, 8).double(), torch.randn(5, 2).double(), torch.tensor([3, 1])
    some, every = (
        action_values(model, z, u, discount=DISCOUNTS[0], heads=heads) for heads in (chosen, None)
    )
    torch.testing.assert_close(some, every[:, :, chosen])


def test_pairs_of_heads_are_drawn_anew_each_time_and_evenly() -> None:
    params, heads = ValueParams(heads=3, bootstrap="pair"), torch.tensor([1.0, 2.0, 3.0])
    torch.manual_seed(0)
    drawn = [bootstrapped(heads, params) for _ in range(900)]
    assert all(each.shape == (3,) and len(each.unique()) == 1 for each in drawn)
    counts = Counter(float(each[0]) for each in drawn)
    assert counts.keys() == {1.0, 2.0}
    assert counts[2.0] == pytest.approx(300, abs=60)


def test_terminations_make_actions_worth_less(small: Any, lab: Any) -> None:
    model = lab.model(small(reward={"episodic": True}))
    z, u = torch.rand(3, 8).double(), torch.randn(3, 2).double()
    with torch.no_grad():
        model.parts["termination"].biases[-1].fill_(1e3)
    worth = action_values(model, z, u, discount=DISCOUNTS[0])
    paid = model.reward(z, u.tanh()).squeeze(-1)
    torch.testing.assert_close(worth[0, 0], paid.expand_as(worth[0, 0]))
