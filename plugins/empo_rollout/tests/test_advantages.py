import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_advantages import advantages_reference
from torch import Tensor

from empo_learning.distributed import Group
from empo_rollout.buffer import (
    Rollout,
    advantages,
    normalised,
)
from empo_rollout.params import AdvantageParams

HORIZON, SEGMENTS = 12, 7
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def rollout_of(
    horizon: int = HORIZON,
    segments: int = SEGMENTS,
    *,
    seed: int = 0,
    ends: float = 0.15,
    gaps: float = 0.0,
) -> Rollout:
    """Random steps; ``ends`` and ``gaps`` are how often episodes end and steps teach nothing."""
    generator = torch.Generator().manual_seed(seed)
    shape = (horizon, segments)

    def numbers() -> Tensor:
        return torch.randn(shape, generator=generator)

    def now_and_then(chance: float) -> Tensor:
        return torch.rand(shape, generator=generator) < chance

    valid, known = ~now_and_then(gaps), ~now_and_then(gaps)
    terminated, truncated = now_and_then(ends) & valid, now_and_then(ends) & valid
    unseen = now_and_then(0.5) & truncated & ~terminated
    next_value = numbers().masked_fill(terminated | unseen | ~valid, 0.0)
    return Rollout(
        observation=torch.zeros(*shape, 1),
        action=torch.zeros(*shape, 1),
        log_prob=torch.zeros(shape),
        value=numbers(),
        reward=numbers().masked_fill(~valid, 0.0),
        terminated=terminated,
        truncated=truncated,
        next_value=next_value,
        unseen=unseen,
        starts=torch.zeros(shape, dtype=torch.bool),
        valid=valid,
        is_known=known,
        mask=None,
        memory=torch.zeros(segments, 0),
        agent=torch.arange(segments),
        version=torch.zeros(shape, dtype=torch.int64),
    )


def ratios(rollout: Rollout, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (0.7 * torch.randn(rollout.value.shape, generator=generator)).exp()


Setting = tuple[AdvantageParams, float]
"""Parameters, and the discount per step."""


def params(*, gamma: float = 0.9, **options: Any) -> Setting:
    return AdvantageParams(**{"gae_lambda": 0.8, **options}), gamma


def vtrace(**options: Any) -> Setting:
    return params(vtrace="epoch", **options)


def moved(rollout: Rollout, device: str) -> Rollout:
    tensors = {field.name: getattr(rollout, field.name) for field in fields(rollout)}
    return Rollout(**{k: None if v is None else v.to(device) for k, v in tensors.items()})


def on_device(
    rollout: Rollout, params: AdvantageParams, gamma: float, ratio: Tensor | None
) -> Tensor:
    ratio = None if ratio is None else ratio.to(DEVICE)
    return advantages(moved(rollout, DEVICE), params, gamma, ratio)[0].cpu()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=1e-5, atol=1e-5)


class TestAgainstTheReference:
    @settings(max_examples=60)
    @given(
        horizon=st.integers(1, 9),
        segments=st.integers(1, 5),
        seed=st.integers(0, 10_000),
        ends=st.sampled_from([0.0, 0.2, 0.7]),
        gaps=st.sampled_from([0.0, 0.2]),
        truncation=st.sampled_from(["last", "self", "zero"]),
        clips=st.none() | st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.4, 1.0])),
        gamma=st.sampled_from([0.0, 0.9, 1.0]),
        gae_lambda=st.sampled_from([0.0, 0.8, 1.0]),
    )
    def test_it_agrees(
        self,
        horizon: int,
        segments: int,
        seed: int,
        ends: float,
        gaps: float,
        truncation: str,
        clips: tuple[float, float] | None,
        gamma: float,
        gae_lambda: float,
    ) -> None:
        rollout = rollout_of(horizon, segments, seed=seed, ends=ends, gaps=gaps)
        given: dict[str, Any] = {"gamma": gamma, "gae_lambda": gae_lambda, "truncation": truncation}
        ratio = None
        if clips is not None:
            ratio = ratios(rollout, seed)
            given |= {"rho_clip": clips[0], "c_clip": clips[1]}
        chosen = params(**given) if clips is None else vtrace(**given)
        expected, _ = advantages_reference(rollout, *chosen, ratio)
        assert_close(on_device(rollout, *chosen, ratio), expected)

    def test_it_agrees_over_long_segments(self) -> None:
        rollout = rollout_of(300, 3, ends=0.01)
        chosen = vtrace(gamma=0.999, gae_lambda=0.99)
        expected, _ = advantages_reference(rollout, *chosen, ratios(rollout))
        assert_close(on_device(rollout, *chosen, ratios(rollout)), expected)

    def test_inputs_need_not_be_contiguous(self) -> None:
        rollout, ratio = rollout_of(gaps=0.1), ratios(rollout_of())
        names = [
            field.name
            for field in fields(rollout)
            if getattr(rollout, field.name) is not None and field.name not in {"memory", "agent"}
        ]
        # Stored segment by segment, and every second one of twice as many.
        turned = replace(
            rollout,
            **{name: getattr(rollout, name).transpose(0, 1).contiguous().transpose(0, 1)
               for name in names},
        )  # fmt: skip
        sparse = replace(
            rollout,
            **{name: getattr(rollout, name).repeat_interleave(2, 1)[:, ::2] for name in names},
        )
        expected = on_device(rollout, *vtrace(), ratio)
        for other in (turned, sparse):
            assert not other.value.is_contiguous()
            assert torch.equal(on_device(other, *vtrace(), ratio.t().contiguous().t()), expected)

    def test_nothing_is_read_of_steps_that_teach_nothing(self) -> None:
        rollout, ratio = rollout_of(gaps=0.3), ratios(rollout_of())
        expected = on_device(rollout, *vtrace(), ratio)
        empty = ~rollout.learnable
        for name in ("reward", "next_value", "value"):
            setattr(rollout, name, getattr(rollout, name).masked_fill(empty, torch.nan))
        found = on_device(rollout, *vtrace(), ratio.masked_fill(empty, torch.nan))
        assert torch.equal(found, expected)
        assert bool((found[empty] == 0).all())

    def test_the_rollout_stays_as_it_is(self) -> None:
        rollout, untouched = rollout_of(gaps=0.2), rollout_of(gaps=0.2)
        for truncation in ("last", "self", "zero"):
            on_device(rollout, *params(truncation=truncation), ratios(rollout))
        for field in fields(rollout):
            before, after = getattr(untouched, field.name), getattr(rollout, field.name)
            assert before is after is None or torch.equal(before, after), field.name


class TestIdentities:
    def test_returns_are_advantages_plus_values(self) -> None:
        rollout = rollout_of(gaps=0.1)
        advantage, returns = advantages(rollout, *params())
        assert advantage.dtype == returns.dtype == torch.float32
        assert torch.equal(returns, advantage + rollout.value)

    def test_ratios_of_one_change_nothing(self) -> None:
        rollout = rollout_of(gaps=0.1)
        ones = torch.ones_like(rollout.value)
        assert torch.equal(
            advantages(rollout, *vtrace(), ones)[0], advantages(rollout, *params())[0]
        )

    def test_ratios_beyond_the_clips_count_as_the_clips(self) -> None:
        rollout = rollout_of()
        ratio, clips = ratios(rollout), {"rho_clip": 1.3, "c_clip": 0.8}
        high = torch.where(ratio > 1.3, 100.0, ratio)
        assert torch.equal(
            advantages(rollout, *vtrace(**clips), ratio)[0],
            advantages(rollout, *vtrace(**clips), high)[0],
        )

    def test_advantages_are_sums_of_later_surprises(self) -> None:
        rollout, ratio = rollout_of(), ratios(rollout_of()).double()
        ended = rollout.terminated | rollout.truncated
        worth = torch.where(rollout.unseen, rollout.value, rollout.next_value).double()
        value = rollout.value.double()
        delta = ratio.clamp(max=1) * (rollout.reward + 0.9 * worth - value)
        factor = 0.9 * 0.8 * ratio.clamp(max=1) * ~ended
        expected = torch.zeros_like(delta)
        for start in range(HORIZON):
            # [time segment]: how much of each later surprise arrives here.
            reach = factor[start:].roll(1, 0)
            reach[0] = 1
            expected[start] = (reach.cumprod(0) * delta[start:]).sum(0)
        assert_close(advantages(rollout, *vtrace(), ratio.float())[0], expected)

    def test_with_lambda_one_returns_are_discounted_rewards_to_the_end(self) -> None:
        rollout = rollout_of()
        chosen = params(gamma=0.9, gae_lambda=1.0, truncation="zero")
        ended = rollout.terminated | rollout.truncated
        later = rollout.next_value[-1].masked_fill(ended[-1], 0.0)
        expected = torch.zeros_like(rollout.value)
        # Values of steps in between only cancel where they agree.
        rollout.next_value[:-1] = rollout.value[1:].masked_fill(ended[:-1], 0.0)
        for time in reversed(range(HORIZON)):
            later = rollout.reward[time] + 0.9 * later.masked_fill(ended[time], 0.0)
            expected[time] = later
        assert_close(advantages(rollout, *chosen)[1], expected)

    def test_with_lambda_one_advantages_are_vtrace_targets_less_values(self) -> None:
        rollout = rollout_of(ends=0.0)
        rollout.next_value[:-1] = rollout.value[1:]
        ratio = ratios(rollout)
        chosen = vtrace(gamma=0.9, gae_lambda=1.0, rho_clip=1.5, c_clip=0.7)
        rho, c = ratio.clamp(max=1.5), ratio.clamp(max=0.7)
        # Espeholt et al. (2018), remark 1, from the last step back.
        target = rollout.next_value[-1]
        expected = torch.zeros_like(rollout.value)
        for time in reversed(range(HORIZON)):
            value, following = rollout.value[time], rollout.next_value[time]
            surprise = rho[time] * (rollout.reward[time] + 0.9 * following - value)
            target = value + surprise + 0.9 * c[time] * (target - following)
            expected[time] = target - value
        assert_close(advantages(rollout, *chosen, ratio)[0], expected)


class TestBoundaries:
    """One segment of three steps, worth 1, 2 and 4, each followed by 10 and rewarded by 1."""

    def rollout(self, **changes: Any) -> Rollout:
        rollout = rollout_of(3, 1, ends=0.0)
        rollout.value[:, 0] = torch.tensor([1.0, 2.0, 4.0])
        rollout.next_value[:] = 10.0
        rollout.reward[:] = 1.0
        for name, (time, value) in changes.items():
            getattr(rollout, name)[time, 0] = value
        return rollout

    def found(self, truncation: str = "last", **changes: Any) -> list[float]:
        chosen = params(gamma=0.5, gae_lambda=0.5, truncation=truncation)
        advantage, _ = advantages(self.rollout(**changes), *chosen)
        return advantage[:, 0].tolist()

    def test_nothing_ends(self) -> None:
        # Surprises 1 + 5 - V: 5, 4, 2; a quarter of the following advantage.
        assert self.found() == [5 + 4.5 / 4, 4 + 2 / 4, 2]

    def test_termination_leaves_nothing_to_come(self) -> None:
        found = self.found(terminated=(1, True), next_value=(1, 0.0))
        assert found == [5 - 1 / 4, -1, 2]

    def test_truncation_goes_on_to_be_worth_the_last_observation(self) -> None:
        assert self.found(truncated=(1, True)) == [5 + 4 / 4, 4, 2]

    def test_truncation_may_go_on_to_be_worth_the_observation_before(self) -> None:
        found = self.found("self", truncated=(1, True))
        assert found == [5 + 0 / 4, 1 + 0.5 * 2 - 2, 2]

    def test_truncation_may_go_on_to_be_worth_nothing(self) -> None:
        assert self.found("zero", truncated=(1, True)) == [5 - 1 / 4, -1, 2]

    def test_a_last_observation_nobody_saw_is_worth_the_one_before(self) -> None:
        found = self.found(truncated=(1, True), unseen=(1, True), next_value=(1, 0.0))
        assert found == self.found("self", truncated=(1, True))

    @pytest.mark.parametrize("truncation", ["last", "self", "zero"])
    def test_termination_wins_over_truncation(self, truncation: str) -> None:
        both = {"terminated": (1, True), "next_value": (1, 0.0), "truncated": (1, True)}
        assert self.found(truncation, **both) == [5 - 1 / 4, -1, 2]

    @pytest.mark.parametrize("name", ["valid", "is_known"])
    def test_a_step_that_teaches_nothing_cuts_the_trace(self, name: str) -> None:
        assert self.found(**{name: (1, False)}) == [5, 0, 2]

    def test_an_unknown_tail_leaves_the_rest_as_a_shorter_segment(self) -> None:
        assert self.found(is_known=(2, False)) == [5 + 4 / 4, 4, 0]


class TestAgainstStableBaselines:
    def test_advantages_and_returns_agree(self) -> None:
        pytest.importorskip("stable_baselines3")
        import gymnasium
        import numpy as np
        from stable_baselines3.common.buffers import RolloutBuffer

        horizon, segments, gamma = 40, 6, 0.97
        rollout = rollout_of(horizon, segments, ends=0.05)
        ended = rollout.terminated | rollout.truncated
        rollout.unseen[:] = False
        assert bool(rollout.truncated.any())
        # What follows is valued as the next step is, where there is one in the same episode.
        following = torch.where(ended[:-1], rollout.next_value[:-1], rollout.value[1:])
        rollout.next_value[:-1] = following.masked_fill(rollout.terminated[:-1], 0.0)
        space = gymnasium.spaces.Box(-1, 1, (1,))
        buffer = RolloutBuffer(
            horizon, space, space, "cpu", gae_lambda=0.9, gamma=gamma, n_envs=segments
        )
        cut = rollout.truncated & ~rollout.terminated
        bootstrap = (gamma * rollout.next_value).masked_fill(~cut, 0.0)
        buffer.rewards[:] = (rollout.reward + bootstrap).numpy()
        buffer.values[:] = rollout.value.numpy()
        buffer.episode_starts[1:] = ended[:-1].numpy()
        buffer.compute_returns_and_advantage(
            rollout.next_value[-1], ended[-1].numpy().astype(np.float32)
        )
        advantage, returns = advantages(rollout, *params(gamma=gamma, gae_lambda=0.9))
        assert_close(advantage, torch.from_numpy(buffer.advantages))
        assert_close(returns, torch.from_numpy(buffer.returns))


def column(*numbers: float) -> Tensor:
    """Steps of one segment, ``[step 1]``."""
    return torch.tensor(numbers).double()[:, None]


def scaled(advantage: Tensor, weight: Tensor) -> Tensor:
    return normalised(advantage, weight, advantage.shape[1], "a minibatch", Group())[0]


class TestNormalisation:
    def test_targets_are_normalised_over_what_has_weight(self) -> None:
        weight = column(1.0, 1.0, 2.0, 0.0)
        normal = scaled(column(1.0, 2.0, 5.0, 90.0), weight)
        # Mean 13/4 and variance (2.25^2 + 1.25^2 + 2 * 1.75^2) / 4.
        deviation = math.sqrt((2.25**2 + 1.25**2 + 2 * 1.75**2) / 4)
        expected = column(-2.25, -1.25, 1.75, 86.75) / deviation
        torch.testing.assert_close(normal, expected)

    def test_normalised_targets_have_neither_place_nor_scale(self) -> None:
        advantage, weight = column(1.0, 2.0, 5.0), column(1.0, 1.0, 1.0)
        torch.testing.assert_close(
            scaled(advantage, weight), scaled(100 * advantage - 7, weight), rtol=1e-6, atol=0
        )

    def test_a_single_step_stays_as_it_is_and_none_counts_nothing(self) -> None:
        advantage = column(3.0, -3.0)
        assert torch.equal(scaled(advantage, column(1.0, 0.0)), advantage)
        unscaled, (total,) = normalised(
            advantage, 0 * advantage, advantage.shape[1], "a minibatch", Group()
        )
        assert torch.equal(unscaled, advantage)
        assert total == 0
