import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_latent.learning.latent_rollout import policy_rollout

CERTAIN = {"min_log_std": -40.0, "max_log_std": -39.0}
"""A policy that does not depend on noise, up to rounding."""


@given(
    moments=st.integers(1, 4),
    sequences=st.integers(1, 3),
    candidates=st.integers(1, 4),
    heads=st.integers(1, 3),
)
@settings(max_examples=8)
def test_rows_count_candidates_fastest_then_slices_then_moments(
    small: Any, lab: Any, moments: int, sequences: int, candidates: int, heads: int
) -> None:
    model = lab.model(small(latents={"heads": heads}))
    start = torch.rand(moments, sequences, 8).double()
    rollout = policy_rollout(model, start, candidates=candidates, steps=2)
    assert torch.equal(rollout.start, start.flatten(0, 1))
    first = rollout.latent[0].view(heads, moments, sequences, candidates, 8)
    assert torch.equal(first, start[None, :, :, None].expand_as(first))
    assert rollout.latent.shape == (3, heads, moments * sequences * candidates, 8)


def test_slices_that_change_places_change_places_in_all_that_is_imagined(
    small: Any, lab: Any
) -> None:
    model = lab.model(
        small(policy=CERTAIN, latents={"heads": 2}, reward={"episodic": True}), tasks=2
    )
    start, task = torch.rand(3, 4, 8).double(), torch.tensor([0, 1, 1, 0])
    order = torch.tensor([2, 0, 3, 1])
    rows = (torch.arange(3)[:, None] * 4 + order).flatten()
    m = (rows[:, None] * 5 + torch.arange(5)).flatten()
    one = policy_rollout(model, start, candidates=5, steps=2, task=task)
    two = policy_rollout(model, start[:, order], candidates=5, steps=2, task=task[order])
    assert one.task is not None
    assert two.task is not None
    assert torch.equal(two.task, one.task[m])
    torch.testing.assert_close(two.start, one.start[rows])
    torch.testing.assert_close(two.proposal.loc, one.proposal.loc[rows])
    torch.testing.assert_close(two.latent, one.latent[:, :, m])
    torch.testing.assert_close(two.presquash, one.presquash[:, m])
    torch.testing.assert_close(two.termination, one.termination[:, :, m])
    for found, expected in zip(two.reward, one.reward, strict=True):
        torch.testing.assert_close(found, expected[:, :, m])


def test_each_head_goes_on_from_its_own_latent_and_all_follow_the_plan_of_head_0(
    small: Any, lab: Any
) -> None:
    model = lab.model(small(policy=CERTAIN, latents={"heads": 3}, reward={"heads": 2}))
    rollout = policy_rollout(model, torch.rand(2, 2, 8).double(), candidates=2, steps=3)
    for step in range(3):
        plan = model.policy(rollout.latent[step, 0])
        torch.testing.assert_close(rollout.presquash[step], plan.loc)
        action = rollout.action[step]
        for head in range(3):
            here = rollout.latent[step, head]
            expected = model.next_latent(here, action)[head]
            torch.testing.assert_close(rollout.latent[step + 1, head], expected)
            known = rollout.reward[step]
            assert known.shape == (2, 3 if step else 1, 8, 1)
            paid = known[:, head if step else 0]
            torch.testing.assert_close(paid, model.reward(here, action))
    assert not torch.equal(rollout.latent[1, 0], rollout.latent[1, 1])


def test_candidates_are_draws_of_the_policy_and_keep_their_probability(
    small: Any, lab: Any
) -> None:
    model = lab.model(small(policy={"min_log_std": -2, "max_log_std": 0}))
    start = torch.rand(1, 2, 8).double()
    rollout = policy_rollout(model, start, candidates=4000)
    u = rollout.presquash[0].view(2, 4000, 2)
    policy = model.policy(start[0])
    torch.testing.assert_close(u.mean(1), policy.loc, atol=0.05, rtol=0)
    torch.testing.assert_close(u.std(1), policy.scale, atol=0.05, rtol=0)
    torch.testing.assert_close(rollout.action, rollout.presquash.tanh())
    log_prob = policy.log_prob(u.transpose(0, 1)).T.flatten()
    torch.testing.assert_close(rollout.log_prob[0], log_prob)


def test_the_end_is_read_from_the_latent_that_a_step_leads_to(small: Any, lab: Any) -> None:
    model = lab.model(small(latents={"heads": 2}, reward={"episodic": True}))
    rollout = policy_rollout(model, torch.rand(3, 5, 8).double(), candidates=5, steps=2)
    assert torch.equal(rollout.termination, model.termination(rollout.latent[1:]))
    assert not torch.equal(rollout.termination, model.termination(rollout.latent[:-1]))


def test_nothing_that_is_imagined_carries_a_gradient(small: Any, lab: Any) -> None:
    model = lab.model(small(reward={"episodic": True}))
    start = model.encode(lab.sequences().observation)
    rollout = policy_rollout(model, start, candidates=2, steps=2)
    tensors = [rollout.start, rollout.latent, rollout.presquash, rollout.action]
    tensors += [rollout.log_prob, *rollout.reward, rollout.termination]
    tensors += [rollout.proposal.loc, rollout.proposal.log_std]
    assert start.requires_grad
    assert not any(tensor.requires_grad for tensor in tensors)


def test_candidates_come_from_the_pessimistic_policy(small: Any, lab: Any) -> None:
    model = lab.model(small(), optimistic=True)
    other = copy.deepcopy(model)
    assert "optimistic" in other.heads
    with torch.no_grad():
        for weight in other.heads["optimistic"].parameters():
            weight.add_(1.0)
    found = []
    for each in (model, other):
        torch.manual_seed(0)
        found.append(policy_rollout(each, torch.ones(1, 2, 8).double() / 4, candidates=3).presquash)
    assert torch.equal(*found)


@pytest.mark.parametrize("steps", [1, 2])
def test_tasks_do_nothing_with_numbers_that_they_do_not_use(
    small: Any, lab: Any, steps: int
) -> None:
    model = lab.model(small(), tasks=2)
    task = torch.tensor([0, 1, 0])
    rollout = policy_rollout(
        model, torch.rand(2, 3, 8).double(), candidates=2, steps=steps, task=task
    )
    used = rollout.action.view(steps, 2, 3, 2, 2) != 0
    assert used[..., 0].all()
    assert torch.equal(used[..., 1], (task == 0).view(1, 1, 3, 1).expand(steps, 2, 3, 2))
