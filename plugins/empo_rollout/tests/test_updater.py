"""Updates from one rollout, against a short reference implementation."""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import PolicyLoss
from empo_core.protocols.environments import ActionSpec
from empo_core.types import CandidateBatch, LossOutput, RecordedBatch
from empo_learning.state_tree import flatten, unflatten
from empo_rollout.buffer import Rollout, advantages, probabilities
from empo_rollout.closed_form import DensePolicy
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks
from empo_rollout.ppo import Ppo, Updater
from empo_rollout.ppo_params import PpoParams

HORIZON, SEGMENTS = 6, 8
ALL = HORIZON * SEGMENTS
LSTM = {"memory": "lstm", "critic": "shared"}


def updater(made: Any, policy: Networks, plan: VecPlan, losses: Any = None, seed: int = 1) -> Any:
    return Updater(
        policy,
        losses or [(Ppo(PpoParams()), 1.0)],
        made.params,
        plan,
        made.spec,
        device="cpu",
        generator=torch.Generator().manual_seed(seed),
    )


def ppo(**entropy: Any) -> Ppo:
    return Ppo(PpoParams.model_validate({"entropy": entropy}))


def plain_loss(
    made: Any, policy: Networks, rollout: Rollout, columns: list[int], advantage: Tensor,
    importance: Tensor | float = 1.0, value_clip: float | None = None,
) -> Tensor:  # fmt: skip
    """PPO on some segments, in plain words."""
    turn = rollout.agent % len(made.spec.agents)
    hidden, value, _ = policy.unroll(rollout.observation, rollout.memory, rollout.starts, turn)
    mask = None if rollout.mask is None else rollout.mask.flatten(0, 1)
    rows = turn.repeat(len(value))
    distribution = policy.distribution(hidden.flatten(0, 1), rows, mask)
    log_prob = distribution.log_prob(rollout.action.flatten(0, 1)).view_as(value)
    entropy = distribution.entropy().view_as(value)
    some = rollout.learnable[:, columns]

    def picked(x: Tensor) -> Tensor:
        return x[:, columns][some]

    a = picked(advantage)
    a = (a - a.mean()) / (a.std(unbiased=False) + 1e-8)
    a = a * picked(torch.ones_like(value) * importance)
    ratio = (picked(log_prob) - picked(rollout.log_prob)).exp()
    gain = torch.minimum(a * ratio, a * ratio.clamp(0.8, 1.2)).mean()
    returns = picked(advantages(rollout, made.params.advantages, made.params.gamma)[1])
    old, new = picked(rollout.value), picked(value)
    near = new if value_clip is None else old + (new - old).clamp(-value_clip, value_clip)
    error = torch.maximum((new - returns) ** 2, (near - returns) ** 2).mean() / 2
    return -gain - 0.01 * picked(entropy).mean() + 0.5 * error


def plain_step(policy: Networks, loss: Tensor, lr: float = 0.1) -> None:
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    with torch.no_grad():
        for weight, gradient in zip(policy.parameters(), gradients, strict=True):
            weight -= lr * gradient


def require_close(first: Networks, other: Networks, tolerance: float = 1e-6) -> None:
    for (name, mine), theirs in zip(first.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(
            mine, theirs, atol=tolerance, rtol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )


KINDS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "lstm": {"policy": LSTM},
    "several choices, an agent each": {
        "agents": 2, "actions": ActionSpec((2, 3)), "policy": {"agents": "separate"},
    },
    "numbers, gru": {
        "actions": ActionSpec((), (-1.0, -1.0), (1.0, 1.0)), "policy": {**LSTM, "memory": "gru"},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_follows_the_gradient_of_ppo(scene: Any, kind: str) -> None:
    made = scene(**KINDS[kind])
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    plain = copy.deepcopy(policy)
    advantage, _ = advantages(rollout, made.params.advantages, made.params.gamma)
    plain_step(plain, plain_loss(made, plain, rollout, list(range(SEGMENTS)), advantage))
    before = copy.deepcopy(policy)
    metrics = updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    require_close(policy, plain)
    assert all(  # Gradients reach every weight, through constants though the loss gets.
        not torch.equal(*pair)
        for pair in zip(policy.parameters(), before.parameters(), strict=True)
    )
    assert metrics["optim/minibatches"] == 1
    # Nothing has moved yet: the memory begins, and is forgotten, where it was when acting.
    assert abs(metrics["policy/importance"] - 1) < 1e-6
    assert abs(metrics["policy/approx_kl"]) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_many_parts_have_the_gradient_of_one(scene: Any, kind: str) -> None:
    made = scene(**KINDS[kind])
    at_once = made.policy()
    rollout = made.rollout(at_once, HORIZON, SEGMENTS)
    in_parts = copy.deepcopy(at_once)
    size = ALL // 2
    whole = updater(made, at_once, made.plan(HORIZON, SEGMENTS, size)).update(rollout, 0.0)
    parts = updater(made, in_parts, made.plan(HORIZON, SEGMENTS, size, 4)).update(rollout, 0.0)
    require_close(in_parts, at_once)
    assert whole["optim/minibatches"] == parts["optim/minibatches"] == 2
    assert parts == pytest.approx(whole, abs=1e-5)


def test_a_part_of_nothing_that_counts_adds_nothing(scene: Any) -> None:
    made = scene(update={"sampling": "sequential"})
    at_once = made.policy()
    rollout = made.rollout(at_once, HORIZON, SEGMENTS)
    rollout.valid[:, :4] = False
    in_parts = copy.deepcopy(at_once)
    updater(made, at_once, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    updater(made, in_parts, made.plan(HORIZON, SEGMENTS, ALL, 8)).update(rollout, 0.0)
    require_close(in_parts, at_once)
    rollout.valid[:] = False
    before = copy.deepcopy(at_once)
    metrics = updater(made, at_once, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    assert metrics["optim/minibatches"] == metrics["optim/usable"] == 0
    require_close(at_once, before, 0.0)


@pytest.mark.parametrize("gradient", ["autograd", "closed-form"])
def test_a_part_of_nothing_that_counts_may_be_infinite(scene: Any, gradient: str) -> None:
    made = scene(update={"sampling": "sequential", "gradient": gradient})
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    rollout.valid[:, 0] = False
    other, plan = copy.deepcopy(policy), made.plan(HORIZON, SEGMENTS, ALL, SEGMENTS)
    expected = updater(made, policy, plan).update(rollout, 0.0)
    rollout.observation[:, 0] = float("inf")
    assert updater(made, other, plan).update(rollout, 0.0) == expected
    require_close(other, policy, 0.0)


@pytest.mark.parametrize("advantages", [{}, {"vtrace": "epoch"}])
def test_steps_together_teach_what_their_segments_do(
    scene: Any, advantages: dict[str, Any]
) -> None:
    made = scene(update={"update_epochs": 2}, advantages=advantages)
    by_steps = scene(update={"update_epochs": 2, "sampling": "steps"}, advantages=advantages)
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    other = copy.deepcopy(policy)
    updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    updater(by_steps, other, by_steps.plan(HORIZON, SEGMENTS, ALL, 3)).update(rollout, 0.0)
    require_close(other, policy)
    # Fewer steps than a segment has.
    metrics = updater(by_steps, other, by_steps.plan(HORIZON, SEGMENTS, 4)).update(rollout, 0.0)
    assert metrics["optim/minibatches"] == 2 * ALL // 4


def test_what_does_not_count_is_never_read(scene: Any) -> None:
    made = scene(policy=LSTM)
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    other = copy.deepcopy(policy)
    updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    silent = ~rollout.learnable
    for values in (rollout.log_prob, rollout.reward):
        values[silent] = float("nan")
    metrics = updater(made, other, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    require_close(other, policy, 0.0)
    assert metrics["optim/usable"] == pytest.approx(float((~silent).float().mean()))


def test_sampling_weights_scale_normalised_advantages(scene: Any) -> None:
    made = scene(update={"sampling": "prioritized", "prio_alpha": 0.8, "prio_beta0": 0.4})
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    plain = copy.deepcopy(policy)
    advantage, _ = advantages(rollout, made.params.advantages, made.params.gamma)
    weight = (SEGMENTS * probabilities(advantage, 0.8)).pow(-0.7).float()  # Half-way to 1.
    columns = list(range(SEGMENTS))
    plain_step(plain, plain_loss(made, plain, rollout, columns, advantage, weight))
    updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.5)
    require_close(policy, plain)


@pytest.mark.parametrize("vtrace", ["epoch", "minibatch"])
def test_advantages_follow_the_policy_returns_do_not(scene: Any, vtrace: str) -> None:
    made = scene(
        policy=LSTM,
        advantages={"vtrace": vtrace, "c_clip": 0.9},
        update={"sampling": "sequential", "update_epochs": 2},
    )
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    plain = copy.deepcopy(policy)
    advantage, _ = advantages(rollout, made.params.advantages, made.params.gamma)
    halves = list(range(SEGMENTS // 2)), list(range(SEGMENTS // 2, SEGMENTS))
    for step, columns in enumerate(halves * 2):
        if step and (vtrace == "minibatch" or step == 2):
            with torch.no_grad():
                hidden, _, _ = plain.unroll(
                    rollout.observation, rollout.memory, rollout.starts, rollout.agent
                )
                distribution = plain.distribution(
                    hidden.flatten(0, 1), rollout.agent.repeat(HORIZON), rollout.mask.flatten(0, 1)
                )
                log_prob = distribution.log_prob(rollout.action.flatten(0, 1))
                ratio = (log_prob.view_as(rollout.log_prob) - rollout.log_prob).exp()
            advantage, _ = advantages(rollout, made.params.advantages, made.params.gamma, ratio)
        plain_step(plain, plain_loss(made, plain, rollout, columns, advantage))
    updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL // 2)).update(rollout, 0.0)
    require_close(policy, plain)


class Entropy(PolicyLoss):
    """A loss of our own: how decided the policy is."""

    takes = RecordedBatch

    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        mean = (batch.weight * distribution.entropy()).mean()
        number = mean.item()
        return LossOutput(-mean, {"entropy": number, "decided": -number})


def test_losses_add_up_by_their_weights(scene: Any) -> None:
    made = scene()
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    other = copy.deepcopy(policy)
    plan = made.plan(HORIZON, SEGMENTS, ALL, 2)
    one = updater(made, policy, plan).update(rollout, 0.0)
    losses = [(ppo(coef=0.0), 1.0), (Entropy(), 0.01)]
    two = updater(made, other, plan, losses).update(rollout, 0.0)
    require_close(other, policy)
    assert two["loss/policy"] == pytest.approx(one["loss/policy"], abs=1e-6)
    assert two["policy/entropy"] == pytest.approx(two["policy/entropy_entropy"])
    assert two["policy/decided"] == pytest.approx(-two["policy/entropy"])


class Remembering(Entropy):
    """A loss of another author that compares policies, and turns nothing to do so."""

    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        log_prob = distribution.log_prob(batch.action)
        assert log_prob.shape == batch.log_prob.shape == batch.advantage.shape
        learned = batch.weight > 0
        torch.testing.assert_close(log_prob[learned], batch.log_prob[learned])
        return super().forward(distribution, batch)


def test_a_loss_finds_actions_in_the_order_of_its_own_samples(scene: Any) -> None:
    made = scene()
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    learner = updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL), [(Remembering(), 1.0)])
    assert learner.update(rollout, 0.0)["optim/minibatches"] == 1


class Recording(Ppo):
    """PPO that keeps the policy that each minibatch found, and how far that one had moved."""

    def __init__(self, network: Networks) -> None:
        super().__init__(PpoParams())
        self._network = [network]  # In a list, so that it is no part of this module.
        self.found: list[tuple[Networks, float]] = []

    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        output = super().forward(distribution, batch)
        self.found.append((copy.deepcopy(self._network[0]), float(output.metrics["approx_kl"])))
        return output


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_an_update_ends_before_the_first_step_from_too_far(scene: Any, stop: int) -> None:
    groups = {"optimiser": {"name": "sgd", "lr": 0.5, "max_grad_norm": None}}
    update = {"sampling": "sequential", "update_epochs": 3}
    made = scene(update=update, **groups)
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    start = copy.deepcopy(policy)
    plan = made.plan(HORIZON, SEGMENTS, ALL // 4)
    free = Recording(policy)
    whole = updater(made, policy, plan, [(free, 1.0)]).update(rollout, 0.0)
    kls = [kl for _, kl in free.found]
    assert (whole["optim/minibatches"], kls[0]) == (12, pytest.approx(0, abs=1e-6))
    # The greatest up to there stands alone: the mean over what came before stays below.
    limit = (max(kls[:stop]) + kls[stop]) / 2
    assert max(kls[:stop]) < limit < kls[stop]
    limited = scene(update={**update, "target_kl": limit}, **groups)
    learner = updater(limited, start, plan)
    metrics = learner.update(rollout, 0.0)
    assert metrics["optim/minibatches"] == metrics["optim/steps"] == stop
    require_close(start, free.found[stop][0])
    assert metrics["policy/approx_kl"] == pytest.approx(sum(kls[:stop]) / stop, abs=1e-6)


def test_the_first_minibatch_is_learned_from_however_far_the_policy_is(scene: Any) -> None:
    made = scene(update={"target_kl": 1e-6, "update_epochs": 2})
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    rollout.log_prob.sub_(0.5)  # As if a policy from long ago had acted.
    metrics = updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    assert metrics["policy/approx_kl"] > 0.1
    assert metrics["optim/minibatches"] == 1
    assert metrics["policy/stopping_kl"] > 0.1  # Of the second, for which no step was taken.


@pytest.mark.parametrize("kind", ["mlp", "several choices, an agent each", "numbers, gru"])
def test_a_limit_of_what_no_loss_reports_is_refused_before_the_run(scene: Any, kind: str) -> None:
    made = scene(update={"target_kl": 0.02}, **KINDS[kind])
    policy, plan = made.policy(), made.plan(HORIZON, SEGMENTS, ALL)
    with pytest.raises(ConfigError, match=r"update\.target_kl: .*'approx_kl'"):
        updater(made, policy, plan, [(Entropy(), 1.0)])
    tuned, randomness = ppo(target_entropy=5.0, coef=0.1), torch.get_rng_state()
    updater(made, policy, plan, [(Entropy(), 1.0), (tuned, 1.0)])
    assert tuned.entropy.tuned is not None
    assert float(tuned.entropy.tuned) == pytest.approx(0.1)  # Asking has changed nothing.
    assert torch.equal(torch.get_rng_state(), randomness)


def test_a_tuned_entropy_coefficient_moves_only_with_the_weights(scene: Any) -> None:
    made, limited = scene(), scene(update={"target_kl": 1e-6, "update_epochs": 2})
    policy = made.policy()
    other, plan = copy.deepcopy(policy), made.plan(HORIZON, SEGMENTS, ALL)
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    one, stopped = ppo(target_entropy=5.0), ppo(target_entropy=5.0)
    updater(made, policy, plan, [(one, 1.0)]).update(rollout, 0.0)
    metrics = updater(limited, other, plan, [(stopped, 1.0)]).update(rollout, 0.0)
    assert metrics["policy/stopping_kl"] > 1e-6
    assert one.entropy.tuned is not None
    moved = one.entropy.tuned.clone()
    assert stopped.entropy.tuned == moved != PpoParams().entropy.coef
    with pytest.raises(NonFiniteError):
        updater(made, policy, plan, [(one, 1.0), (Broken(), 1.0)]).update(rollout, 0.0)
    assert one.entropy.tuned == moved


@pytest.mark.parametrize("clip", [None, 0.2])
def test_values_are_clipped_only_where_a_config_says_so(scene: Any, clip: float | None) -> None:
    """The default moves values by their squared errors alone."""
    made = scene(update={} if clip is None else {"value_clip": clip})
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    rollout.value.add_(1.0)  # As if the critic had moved further than any clip.
    plain = copy.deepcopy(policy)
    advantage, _ = advantages(rollout, made.params.advantages, made.params.gamma)
    columns = list(range(SEGMENTS))
    plain_step(plain, plain_loss(made, plain, rollout, columns, advantage, value_clip=clip))
    updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.0)
    require_close(policy, plain)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_learning_goes_on_exactly_where_it_stopped(scene: Any, name: str) -> None:
    made = scene(
        policy=LSTM,
        optimiser={"name": name, "lr": 0.01, "lr_warm_up": 20},
        update={"update_epochs": 2},
    )
    policy = made.policy()
    rollouts = [made.rollout(policy, HORIZON, SEGMENTS, seed) for seed in range(2)]
    plan = made.plan(HORIZON, SEGMENTS, ALL // 4)
    learner = updater(made, policy, plan)
    learner.update(rollouts[0], 0.0)
    saved = unflatten(*flatten(copy.deepcopy(learner.state_dict())))
    other = made.policy(5)
    fresh = updater(made, other, plan, seed=9)
    other.load_state_dict(policy.state_dict())
    expected = learner.update(rollouts[1], 0.5)
    fresh.load_state_dict(saved)
    kept = copy.deepcopy(saved)
    assert fresh.update(rollouts[1], 0.5) == expected
    require_close(other, policy, 0.0)
    assert flatten(kept)[1].keys() == flatten(saved)[1].keys()
    for key, tensor in flatten(kept)[1].items():  # What was saved is nobody's to change.
        assert torch.equal(tensor, flatten(saved)[1][key]), key


class Broken(Entropy):
    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        output = super().forward(distribution, batch)
        return LossOutput(output.loss * float("inf"))


class Steep(Entropy):
    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        output = super().forward(distribution, batch)
        return LossOutput((output.loss - output.loss.detach()).abs().sqrt())


def test_what_is_not_finite_is_named_and_changes_nothing(scene: Any) -> None:
    made = scene()
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    plan, before = made.plan(HORIZON, SEGMENTS, ALL), copy.deepcopy(policy)
    cases = [
        (Broken(), "loss of minibatch 1 of epoch 1 .*-inf"),
        (Steep(), "gradient of minibatch 1 of epoch 1 .*nan"),
    ]
    for loss, message in cases:
        with pytest.raises(NonFiniteError, match=message):
            updater(made, policy, plan, [(loss, 1.0)]).update(rollout, 0.0)
    where = tuple(rollout.learnable.nonzero()[0])
    rollout.reward[where] = float("inf")
    with pytest.raises(NonFiniteError, match="advantages"):
        updater(made, policy, plan).update(rollout, 0.0)
    require_close(policy, before, 0.0)
    rollout.reward[where] = 0.0
    name, weight = next(iter(policy.named_parameters()))
    with torch.no_grad():
        weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=re.escape(f"{name} has 1 of 12 numbers")):
        updater(made, policy, plan).update(rollout, 0.0)


def test_gradients_are_cut_and_rates_have_a_factor(scene: Any) -> None:
    optimiser = {"name": "sgd", "lr": 0.1, "betas": [0.0, 0.0]}
    made = scene(optimiser={**optimiser, "max_grad_norm": 0.01})
    policy = made.policy()
    before = copy.deepcopy(policy)
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    metrics = updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL)).update(rollout, 0.25, 0.75)
    pairs = zip(policy.parameters(), before.parameters(), strict=True)
    moved = torch.cat([(mine - old).detach().flatten() for mine, old in pairs]).norm()
    assert metrics["optim/lr"] == pytest.approx(0.075)
    assert metrics["optim/grad_norm"] > 0.01
    assert float(moved) == pytest.approx(0.075 * 0.01, rel=1e-3)


def test_half_precision_learns_nearly_the_same(scene: Any) -> None:
    made, rough = scene(), scene(compute={"precision": "bfloat16"})
    policy = made.policy()
    before = copy.deepcopy(policy)
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    other = copy.deepcopy(policy)
    plan = made.plan(HORIZON, SEGMENTS, ALL)
    updater(made, policy, plan).update(rollout, 0.0)
    updater(rough, other, plan).update(rollout, 0.0)
    steps = [
        torch.cat([(new - old).detach().flatten() for new, old in pairs])
        for pairs in (
            zip(each.parameters(), before.parameters(), strict=True) for each in (policy, other)
        )
    ]
    assert all(weight.dtype == torch.float32 for weight in other.parameters())
    assert not torch.equal(*steps)
    assert torch.cosine_similarity(*steps, dim=0) > 0.95


@pytest.mark.parametrize(
    ("groups", "accumulate", "message"),
    [
        ({"update": {"sampling": "steps"}, "policy": LSTM}, 1, "update.sampling: 'steps'"),
        (
            {
                "update": {"sampling": "steps"},
                "advantages": {"vtrace": "minibatch"},
            },
            1,
            "'minibatch'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    scene: Any, groups: dict[str, Any], accumulate: int, message: str
) -> None:
    made = scene(**groups)
    with pytest.raises(ConfigError, match=message):
        updater(made, made.policy(), made.plan(HORIZON, SEGMENTS, ALL, accumulate))


def test_a_loss_of_imagined_candidates_is_refused(scene: Any) -> None:
    class Imagining(Entropy):
        takes = CandidateBatch

    made = scene()
    losses = [(Ppo(PpoParams()), 1.0), (Imagining(), 1.0)]
    with pytest.raises(ConfigError, match=r"losses\[1\]: Imagining .*imagined.*e\.g\. 'ppo'"):
        updater(made, made.policy(), made.plan(HORIZON, SEGMENTS, ALL), losses)


class Fading(Entropy):
    """A loss that counts less in the course of training, and the less the more entropy it saw."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.asked, self.factor = 0, 1.0

    def forward(self, distribution: Distribution, batch: Any, critic: Any = None) -> LossOutput:
        output = super().forward(distribution, batch)
        self.asked, self.factor = self.asked + 1, 1 - float(batch.progress)
        factor = self.factor / (1 + self.seen.clone())
        self.seen.lerp_(-output.loss.detach(), 0.5)
        return LossOutput(factor * output.loss, {"factor": factor})


def fading(made: Any, policy: Networks, loss: Fading, seed: int = 1) -> Any:
    losses = [(Entropy(), 0.5), (loss, 1.0)]
    return updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL // 4), losses, seed)


def test_losses_adapt_after_every_step(scene: Any) -> None:
    made = scene()
    policy, loss = made.policy(), Fading()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    learner = fading(made, policy, loss)
    metrics = learner.update(rollout, 0.25)
    assert loss.asked == metrics["optim/minibatches"] == 4
    assert loss.factor == 0.75
    # Half of the way to an entropy near ln 3 each time, 4 times.
    assert float(loss.seen) == pytest.approx(metrics["policy/entropy"] * (1 - 0.5**4), rel=0.05)
    # 0.75 in the first step, less and less in those after it.
    assert 0.75 / (1 + metrics["policy/entropy"]) < metrics["policy/factor"] < 0.75


def test_what_losses_remember_is_in_checkpoints(scene: Any) -> None:
    made = scene()
    policy, loss = made.policy(), Fading()
    rollouts = [made.rollout(policy, HORIZON, SEGMENTS, seed) for seed in range(2)]
    learner = fading(made, policy, loss)
    learner.update(rollouts[0], 0.25)
    saved = unflatten(*flatten(copy.deepcopy(learner.state_dict())))
    other, forgetful = made.policy(5), made.policy(5)
    fresh = fading(made, other, Fading(), seed=9)
    for each in (other, forgetful):
        each.load_state_dict(policy.state_dict())
    expected = learner.update(rollouts[1], 0.5)
    fresh.load_state_dict(saved)
    assert fresh.update(rollouts[1], 0.5) == expected
    require_close(other, policy, 0.0)
    without = fading(made, forgetful, Fading(), seed=9)
    without.load_state_dict({**saved, "losses": {"1.seen": torch.zeros(())}})
    assert without.update(rollouts[1], 0.5) != expected


def test_losses_that_adapt_see_whole_minibatches(scene: Any) -> None:
    made = scene()
    plan = made.plan(HORIZON, SEGMENTS, ALL, 2)
    with pytest.raises(ConfigError, match=r"losses\[1\]:"):
        updater(made, made.policy(), plan, [(Entropy(), 1.0), (Fading(), 1.0)])


def test_entropy_coefficients_that_follow_no_batch_may_see_parts(scene: Any) -> None:
    made = scene()
    policy = made.policy()
    plan = made.plan(HORIZON, SEGMENTS, ALL, 2)
    falling = ppo(coef=0.4, end=0.0, schedule="linear")
    learner = updater(made, policy, plan, [(falling, 1.0)])
    metrics = [learner.update(made.rollout(policy, HORIZON, SEGMENTS), x) for x in (0.0, 0.75)]
    assert [each["policy/entropy_coef"] for each in metrics] == pytest.approx([0.4, 0.1])
    with pytest.raises(ConfigError, match=r"losses\[0\]:"):
        updater(made, policy, plan, [(ppo(target_entropy=0.5), 1.0)])


def test_clips_of_v_trace_belong_to_it(scene: Any) -> None:
    for group in ({"c_clip": 2.0}, {"rho_clip": 2.0}):
        with pytest.raises(ValueError, match="set vtrace"):
            scene(advantages=group)


@pytest.mark.parametrize(
    ("update", "entropy"),
    [
        ({}, {"coef": 0.0}),
        (
            {"value_clip": 0.05, "sampling": "steps"},
            {"coef": 0.3, "end": 0.1, "schedule": "linear"},
        ),
    ],
)
def test_the_closed_form_learns_what_autograd_does(
    scene: Any, update: dict[str, Any], entropy: dict[str, Any]
) -> None:
    update = {"update_epochs": 3, "value_coef": 0.7, **update}
    made, written = scene(update=update), scene(update={**update, "gradient": "closed-form"})
    policy = made.policy()
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    rollout.log_prob += torch.linspace(-0.5, 0.5, ALL).view(HORIZON, SEGMENTS)
    other = copy.deepcopy(policy)
    plan = made.plan(HORIZON, SEGMENTS, ALL // 2, 3)
    plain = updater(made, policy, plan, [(ppo(**entropy), 1.0)]).update(rollout, 0.5)
    closed = updater(written, other, plan, [(ppo(**entropy), 1.0)]).update(rollout, 0.5)
    assert plain["policy/clip_fraction"] > 0
    assert closed == pytest.approx(plain, rel=1e-4, abs=1e-6)
    require_close(other, policy, 1e-5)


def test_the_closed_form_acts_as_the_networks_do_after_an_update(scene: Any) -> None:
    made = scene(update={"gradient": "closed-form"})
    policy = made.policy()
    learner = updater(made, policy, made.plan(HORIZON, SEGMENTS, ALL))
    acting = DensePolicy(policy)
    learner.update(made.rollout(policy, HORIZON, SEGMENTS), 0.0)
    rollout = made.rollout(policy, HORIZON, SEGMENTS)
    turn = rollout.agent % len(made.spec.agents)
    here = (
        rollout.observation[0], rollout.memory, rollout.starts[0], turn, rollout.mask[0]
    )  # fmt: skip
    step, expected = acting.step(*here), policy.step(*here)
    torch.testing.assert_close(step.value, expected.value)
    for name in ("mode", "log_probs"):
        torch.testing.assert_close(
            getattr(step.distribution, name), getattr(expected.distribution, name)
        )


@pytest.mark.parametrize(
    ("groups", "entropy", "need"),
    [
        ({"policy": LSTM}, {}, "name: mlp"),
        ({"policy": {"activation": "relu"}}, {}, "activation: tanh"),
        ({"compute": {"precision": "bfloat16"}}, {}, "precision: float32"),
        ({}, {"target_entropy": 0.5}, "without jacobian, target_entropy"),
        ({"actions": ActionSpec((2, 3))}, {}, "one choice"),
    ],
)
def test_the_closed_form_says_what_it_cannot_do(
    scene: Any, groups: dict[str, Any], entropy: dict[str, Any], need: str
) -> None:
    made = scene(update={"gradient": "closed-form"}, **groups)
    with pytest.raises(ConfigError, match=rf"update\.gradient: .*{need}"):
        updater(made, made.policy(), made.plan(HORIZON, SEGMENTS, ALL), [(ppo(**entropy), 1.0)])


def test_the_closed_form_replaces_no_other_loss(scene: Any) -> None:
    class Descendant(Ppo):
        """May compute anything."""

    made = scene(update={"gradient": "closed-form"})
    policy = made.policy()
    plan = made.plan(HORIZON, SEGMENTS, ALL)
    other: PolicyLoss
    for other, factor in (
        (Entropy(), 1.0), (Recording(policy), 1.0), (Descendant(PpoParams()), 1.0), (ppo(), 0.5),
    ):  # fmt: skip
        losses = [(other, factor)]
        with pytest.raises(ConfigError, match=r"update\.gradient: .*'ppo' of weight 1"):
            updater(made, policy, plan, losses)


def compare_compiled(scene: Any) -> None:
    for groups in ({}, {"policy": LSTM}):
        made, compiled = scene(**groups), scene(compute={"compile": True}, **groups)
        policy = made.policy()
        rollout = made.rollout(policy, HORIZON, SEGMENTS)
        other = copy.deepcopy(policy)
        plan = made.plan(HORIZON, SEGMENTS, ALL // 2)
        updater(made, policy, plan).update(rollout, 0.0)
        updater(compiled, other, plan).update(rollout, 0.0)
        require_close(other, policy, 1e-5)


@pytest.mark.slow
def test_compiled_networks_learn_the_same() -> None:
    # In a process of its own: checks of shapes, as tests make them, cannot be compiled.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("kit", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    kit = importlib.util.module_from_spec(spec)
    sys.modules["kit"] = kit
    spec.loader.exec_module(kit)
    compare_compiled(kit.Scene)
