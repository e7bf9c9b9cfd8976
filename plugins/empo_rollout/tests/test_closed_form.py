"""The loss and gradient of ``ppo`` by closed form, against those by autograd."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from empo_core.protocols.environments import ActionSpec
from empo_rollout.experience.flat_rollout import FlatRollout, Microbatch
from empo_rollout.learning.closed_form import closed_form
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.gradients import PlainGradient
from empo_rollout.learning.losses import PolicyLosses
from empo_rollout.learning.ppo import Ppo
from empo_rollout.policies.networks import Networks
from empo_rollout.ppo_params import PpoParams

NUMBERS = ActionSpec((), (-1.0, -1.0), (1.0, 1.0))


def losses(*terms: tuple[Ppo, float], **entropy: Any) -> PolicyLosses:
    ppo = Ppo(PpoParams.model_validate({"entropy": entropy, "clip": 0.1}))
    return PolicyLosses(terms or [(ppo, 1.0)], target_kl=None, device=torch.device("cpu"))


def microbatch(made: Any, policy: Networks) -> Microbatch:
    """Steps of a policy that was another one when it acted; some of them do not count."""
    rollout = made.rollout(policy, 4, 32)
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.1 * torch.randn(weight.shape)
    rollout.log_prob[0, 0] = -100.0  # Beyond all limits.
    rollout.log_prob[~rollout.valid] = math.nan
    weight = rollout.learnable.float() * (1 + torch.rand(4, 32))
    returns = torch.randn(4, 32).masked_fill(weight == 0, math.nan)
    flat = FlatRollout(rollout, returns, weight, num_agents=1, by_steps=False)
    batch = flat.microbatch(torch.arange(32))
    batch.advantage = torch.randn(128).masked_fill(batch.weight == 0, 0.0)
    return batch


@pytest.mark.parametrize(
    ("groups", "entropy"),
    [
        ({}, {}),
        ({"policy": {"hidden": [5, 4], "critic": "shared"}}, {"coef": 0.0}),
        ({"actions": ActionSpec((2, 3)), "policy": {"activation": "relu", "hidden": [6, 6, 3]}},
         {"coef": 0.5, "action_power": 1.0}),
        ({"actions": NUMBERS, "update": {"value_clip": 0.2, "value_coef": 0.7}}, {"coef": 0.0}),
        ({"actions": NUMBERS, "policy": {"critic": "shared"}}, {"coef": 0.5, "action_power": 1.0}),
    ],
    ids=["choice", "shared critic", "choices", "numbers", "numbers, shared critic"],
)  # fmt: skip
def test_closed_form_and_autograd_agree(scene: Any, groups: Any, entropy: Any) -> None:
    made = scene(**groups)
    policy, summed = made.policy(), losses(**entropy)
    batch = microbatch(made, policy)
    plain = copy.deepcopy(policy)
    forward = ForwardPass(plain, made.params.compute)
    expected = PlainGradient(forward, summed, made.params.update, list(plain.parameters()))(
        batch, 0.0
    )
    closed = closed_form(policy, summed, made.params)
    assert closed is not None
    found = closed(batch, 0.0)
    torch.testing.assert_close(found.gradient, expected.gradient, atol=1e-6, rtol=1e-4)
    assert found.metrics == pytest.approx(expected.metrics, rel=1e-4, abs=1e-6)
    assert 0 < found.metrics["policy/clip_fraction"] < 1
    assert bool((found.gradient != 0).any())


def test_a_value_that_moved_less_than_the_clip_counts_in_full(scene: Any) -> None:
    gradients = []
    for clip in (None, 1e3):
        made = scene(update={"value_clip": clip})
        policy = made.policy()
        closed = closed_form(policy, losses(), made.params)
        assert closed is not None
        gradients.append(closed(microbatch(made, policy), 0.0).gradient)
    torch.testing.assert_close(*gradients, atol=0, rtol=0)


def test_weights_stay_those_of_the_policy(scene: Any) -> None:
    made = scene()
    policy, other = made.policy(), made.policy(seed=1)
    batch = microbatch(made, policy)
    closed = closed_form(policy, losses(), made.params)
    assert closed is not None
    before = closed(batch, 0.0).gradient.clone()
    policy.load_state_dict(other.state_dict())
    torch.testing.assert_close(
        closed.row, torch.cat([weight.detach().flatten() for weight in other.parameters()])
    )
    assert not torch.equal(closed(batch, 0.0).gradient, before)


@pytest.mark.parametrize(
    ("groups", "entropy"),
    [
        ({"compute": {"precision": "bfloat16"}}, {}),
        ({"compute": {"compile": True}}, {}),
        ({"policy": {"memory": "gru", "critic": "shared"}}, {}),
        ({"policy": {"activation": "silu"}}, {}),
        ({"policy": {"hidden": []}}, {}),
        ({"agents": 2, "policy": {"agents": "separate"}}, {}),
        ({}, {"jacobian": 0.5}),
        ({}, {"target_entropy": -1.0}),
    ],
    ids=str,
)
def test_the_rest_is_left_to_autograd(scene: Any, groups: Any, entropy: Any) -> None:
    made = scene(**groups)
    assert closed_form(made.policy(), losses(**entropy), made.params) is None


def test_so_are_other_losses_than_ppo_alone(scene: Any) -> None:
    class Another(Ppo):
        pass

    made, ppo = scene(), Ppo(PpoParams())
    for some in ([(ppo, 0.5)], [(ppo, 1.0), (ppo, 1.0)], [(Another(PpoParams()), 1.0)]):
        assert closed_form(made.policy(), losses(*some), made.params) is None
