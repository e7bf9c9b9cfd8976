"""Networks hear which task it is, and nothing of numbers that a task does not use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from empo_latent.networks.model import LatentModel, TaskEmbedding
from empo_latent.types import MultiTaskSpec


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spec(active: tuple[tuple[bool, ...], ...]) -> MultiTaskSpec:
    tasks = len(active)
    return MultiTaskSpec(
        words=3,
        pictures=False,
        shape=(3,),
        actions=2,
        active=active,
        tasks=("one", "two")[:tasks],
        action_repeats=(1,) * tasks,
        episode_lengths=(100,) * tasks,
    )


def test_numbers_of_an_action_that_a_task_does_not_use_reach_nothing(small: Any, lab: Any) -> None:
    model = lab.model(small(latents={"heads": 3}, value={"critic": "q"}), tasks=2)
    task = torch.tensor([0, 1])
    z, action = normal(2, 8), normal(2, 2).tanh()
    other = action.clone()
    other[:, 1] = 0.9

    for ask in (model.next_latent, model.reward, model.value):
        changed = (ask(z, action, task=task) != ask(z, other, task=task)).flatten(2).any(2).any(0)
        assert changed.tolist() == [True, False], ask
    used = action.clone().requires_grad_()
    total = sum(ask(z, used, task=task).sum() for ask in (model.reward, model.value))
    (gradient,) = torch.autograd.grad(total, used)
    assert gradient[0, 1] != 0
    assert gradient[1, 1] == 0


def test_policies_ignore_numbers_that_a_task_does_not_use(small: Any, lab: Any) -> None:
    model = lab.model(small(), tasks=2)
    z, task, u = normal(2, 8), torch.tensor([0, 1]), normal(2, 2)
    other = u.clone()
    other[:, 1] += 1

    policy = model.policy(z, task=task)

    assert ((policy.log_prob(u) != policy.log_prob(other)).tolist()) == [True, False]
    assert policy.sample()[1, 1] == 0
    assert policy.bounded(u)[1, 1] == 0
    assert policy.num_active.tolist() == [2, 1]


def test_a_single_task_may_leave_numbers_unused(small: Any) -> None:
    place, generator = spec(((True, False),)), torch.Generator().manual_seed(0)
    model = LatentModel(small(), place, generator=generator)
    z, action = torch.rand(4, 8), torch.rand(4, 2)

    assert torch.equal(
        model.next_latent(z, action), model.next_latent(z, action * torch.tensor([1.0, 5.0]))
    )
    assert not model.policy(z).sample()[:, 1].any()


def test_several_tasks_must_be_told_apart(small: Any, lab: Any) -> None:
    model = lab.model(small(), tasks=2)

    with pytest.raises(ValueError, match=r"several tasks \(one, two\)"):
        model.policy(normal(2, 8))


def test_embeddings_are_no_longer_than_one() -> None:
    place, generator = spec(((True, True), (True, False))), torch.Generator().manual_seed(0)
    task_embedding = TaskEmbedding(place, 6, generator=generator)
    assert task_embedding.table is not None
    assert task_embedding.table.abs().max() <= 0.02
    short = task_embedding.table[0].detach().clone()
    with torch.no_grad():
        task_embedding.table[1] *= 1e4

    found = task_embedding.embedded(torch.tensor([0, 1]))

    assert found is not None
    assert torch.equal(found[0], short)
    torch.testing.assert_close(found[1], task_embedding.table[1] / task_embedding.table[1].norm())


def test_embeddings_are_learned_by_the_model_and_not_by_policies(small: Any, lab: Any) -> None:
    model = lab.model(small(latents={"task_size": 5}), tasks=2)
    z, task = normal(2, 8), torch.tensor([0, 1])
    (table,) = model.groups()["task"]
    assert table.shape == (2, 5)

    model.policy(z, task=task).mean.sum().backward()
    assert table.grad is None

    model.value(z, task=task).sum().backward()
    assert table.grad is not None
    assert table.grad.any(1).all()
