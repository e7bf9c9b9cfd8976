from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_latent.learning.latent_rollout import policy_rollout
from empo_latent.learning.loss_terms import alive, step_weights
from empo_latent.learning.policy_batch import critic, judged_batch
from empo_latent.learning.targets import td_targets

HEADS: dict[str, Any] = {
    "latents": {"heads": 2},
    "reward": {"heads": 3, "episodic": True},
    "value": {"heads": 2},
}


@pytest.mark.parametrize(
    ("normalise", "expected"),
    [(False, [1, 0.5, 0.25, 0.125]), (True, [32 / 15, 16 / 15, 8 / 15, 4 / 15])],
)
def test_weights_of_steps_are_powers_of_rho_and_have_mean_one_if_normalised(
    normalise: bool, expected: list[float]
) -> None:
    torch.testing.assert_close(step_weights(0.5, 4, normalise), torch.tensor(expected))
    torch.testing.assert_close(step_weights(1.0, 4, normalise), torch.ones(4))


def test_nothing_is_alive_after_the_step_that_ended_an_episode(lab: Any) -> None:
    sequences = lab.sequences(time=3, number=4)
    ended = sequences.terminated.clone()
    ended[2, 1], ended[0, 2], ended[1, 3], ended[2, 3] = 1, 1, 1, 1
    found = alive(replace(sequences, terminated=ended))
    expected = [[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    assert found.tolist() == expected


def test_a_policy_batch_lists_candidates_and_heads_of_each_start(small: Any, lab: Any) -> None:
    model = lab.model(small(**HEADS))
    start = torch.rand(3, 2, 8).double()
    rollout = policy_rollout(model, start, candidates=4, steps=2)
    td, _ = td_targets(model, rollout, torch.tensor(0.9))
    weight = torch.rand(3, 2).double()
    batch = judged_batch(rollout, td, weight)
    assert batch.target.shape == (4, 6, 3 * 2 * 2)
    assert torch.equal(batch.loc, rollout.proposal.loc)
    assert torch.equal(batch.log_std, rollout.proposal.log_std)
    for moment, b, n in [(0, 0, 0), (1, 1, 2), (2, 0, 3)]:
        row, m = moment * 2 + b, (moment * 2 + b) * 4 + n
        assert torch.equal(batch.start[row], start[moment, b])
        assert torch.equal(batch.action[n, row], rollout.presquash[0, m])
        assert torch.equal(batch.log_prob[n, row], rollout.log_prob[0, m])
        assert batch.weight[row] == weight[moment, b]
        for reward, dynamics, value in [(0, 0, 1), (2, 1, 0)]:
            head = (reward * 2 + dynamics) * 2 + value
            assert batch.target[n, row, head] == td[0, reward, dynamics, value, m, 0]


def judged(model: Any, tasks: int, critic_of: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """Critic values and targets of the same candidates, and the candidate actions."""
    start = torch.rand(3, 2, 8).double()
    task = torch.tensor([0, 1]) if tasks > 1 else None
    rollout = policy_rollout(model, start, candidates=4, task=task)
    starts_task = None if task is None else task.repeat(3)
    discount = starts_discount = torch.tensor(0.9).double()
    if task is not None and rollout.task is not None and starts_task is not None:
        by_task = torch.tensor([0.9, 0.5]).double()
        discount = by_task[rollout.task].unsqueeze(-1)
        starts_discount = by_task[starts_task].unsqueeze(-1)
    td, _ = td_targets(model, rollout, discount, network="online")
    batch = judged_batch(rollout, td, torch.ones(3, 2).double())
    judge = critic(model, starts_discount, starts_task, "online")
    return judge(batch.start, batch.action), batch.target, batch.action


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_critic_says_of_actions_what_targets_say(small: Any, lab: Any, tasks: int) -> None:
    found, expected, _ = judged(lab.model(small(**HEADS), tasks=tasks), tasks)
    assert found.std() > 0
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_chosen_value_heads_judge_as_they_do_among_all(small: Any, lab: Any, kind: str) -> None:
    model = lab.model(small(value={"critic": kind, "heads": 4}))
    z, u = torch.rand(5, 8).double(), torch.randn(5, 2).double()
    chosen = torch.tensor([3, 1])
    found = critic(model, torch.tensor(0.9), heads=chosen)(z, u)
    torch.testing.assert_close(found, critic(model, torch.tensor(0.9))(z, u)[:, chosen])


@pytest.mark.parametrize("bound", ["tanh", "clip"])
def test_a_critic_of_actions_says_what_its_heads_say(small: Any, lab: Any, bound: str) -> None:
    model = lab.model(small(value={"critic": "q", "heads": 3}, policy={"bound": bound}))
    z, u = torch.rand(5, 8).double(), torch.randn(5, 2).double()
    action = u.tanh() if bound == "tanh" else u.clamp(-1, 1)
    for network in ("online", "target"):
        found = critic(model, torch.tensor(0.9), network=network)(z, u)  # type: ignore[arg-type]
        expected = model.value(z, action, network=network)  # type: ignore[arg-type]
        assert torch.equal(found, expected.squeeze(-1).T)
    assert not torch.equal(critic(model, torch.tensor(0.9), network="online")(z, u), found)


@pytest.mark.parametrize("kind", ["v", "q"])
def test_the_critics_slope_is_that_of_its_values(small: Any, lab: Any, kind: str) -> None:
    model = lab.model(small(latents={"heads": 2}, value={"critic": kind, "heads": 2}))
    model.requires_grad_(False)
    z = torch.rand(3, 8).double()
    u = torch.randn(3, 2).double().requires_grad_()
    judge = critic(model, torch.tensor(0.9))
    assert torch.autograd.gradcheck(lambda u: judge(z, u), u, check_undefined_grad=False)


def test_the_slope_in_actions_alone_leaves_the_model_without_gradients(
    small: Any, lab: Any
) -> None:
    model = lab.model(small(**HEADS))
    judge, z = critic(model, torch.tensor(0.9)), torch.rand(3, 8).double()
    u = torch.randn(3, 2).double()
    with torch.no_grad():
        slope = torch.func.grad(lambda u: judge(z, u).mean(-1).sum())(u)
    attached = u.requires_grad_()
    (expected,) = torch.autograd.grad(judge(z, attached).mean(-1).sum(), attached)
    assert slope.abs().min() > 0
    torch.testing.assert_close(slope, expected)
    assert all(weight.grad is None for weight in model.parameters())


def test_actions_that_a_task_does_not_use_have_no_slope(small: Any, lab: Any) -> None:
    model = lab.model(small(), tasks=2)
    judge = critic(model, torch.tensor(0.9), torch.tensor([0, 1]))
    z, u = torch.rand(2, 8).double(), torch.randn(2, 2).double().requires_grad_()
    (slope,) = torch.autograd.grad(judge(z, u).sum(), u)
    assert (slope != 0).tolist() == [[True, True], [True, False]]


def test_a_step_is_worth_less_the_likelier_it_ends_the_episode(small: Any, lab: Any) -> None:
    model = lab.model(small(reward={"episodic": True}))
    assert "termination" in model.heads
    judge = critic(model, torch.tensor(0.9))
    z, u = torch.rand(3, 8).double(), torch.randn(3, 2).double().requires_grad_()
    after = model.next_latent(z, u.tanh())
    chance, value = model.termination(after), model.value(after)
    paid = model.reward(z, u.tanh())
    expected = (paid + 0.9 * (1 - chance) * value)[:, 0, :, 0].T
    torch.testing.assert_close(judge(z, u), expected)
    # Actions count by how likely they end it, too: the slope is that of finite differences.
    assert torch.autograd.gradcheck(lambda u: judge(z, u), u)
    with torch.no_grad():
        model.heads["termination"].biases[-1].fill_(1e3)
    always = judge(z, u)
    torch.testing.assert_close(always, paid.squeeze(-1).T.expand_as(always))
