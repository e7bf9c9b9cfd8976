"""Running statistics against closed forms and against Stable-Baselines3 on the same stream."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from empo_environments.normalisation import (
    PRIOR_COUNT,
    Moments,
    RewardScaler,
    normalise_observations,
)

WORDS = 3
STEPS = 300
ENVS = 4


def rows(seed: int, count: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return generator.normal(generator.normal(size=WORDS) * 5, 2.0, (count, WORDS))


def assert_close(one: Moments, other: Moments) -> None:
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.variance, other.variance, atol=1e-8)
    assert one.count == pytest.approx(other.count)


@given(st.integers(0, 2**31), st.lists(st.integers(1, 20), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_moments_of_pieces_are_the_moments_of_the_whole(seed: int, sizes: list[int]) -> None:
    whole = rows(seed, sum(sizes))
    pieces = np.split(whole, np.cumsum(sizes)[:-1])
    merged = Moments.of(pieces[0])
    for piece in pieces[1:]:
        merged = merged.merged(Moments.of(piece))
    assert_close(merged, Moments.of(whole))


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_merging_forgets_the_order(seed: int, first: int, second: int) -> None:
    one, other = Moments.of(rows(seed, first)), Moments.of(rows(seed + 1, second))
    assert_close(one.merged(other), other.merged(one))


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_what_was_merged_can_be_taken_out(seed: int, first: int, second: int) -> None:
    one, other = Moments.of(rows(seed, first)), Moments.of(rows(seed + 1, second))
    assert_close(one.merged(other).without(one), other)


def test_the_prior_weighs_hardly_anything() -> None:
    data = rows(0, 50)
    merged = Moments.prior(WORDS).merged(Moments.of(data))
    assert merged.count == 50 + PRIOR_COUNT
    np.testing.assert_allclose(merged.mean, data.mean(0), rtol=1e-5)


def test_observations_are_clipped() -> None:
    moments = Moments(np.zeros(1), np.ones(1), 10.0)
    found = normalise_observations(np.array([[-9.0], [0.5], [9.0]]), moments, clip=2.0)
    np.testing.assert_allclose(found[:, 0], [-2.0, 0.5, 2.0], rtol=1e-6)


def test_states_come_back() -> None:
    scaler = RewardScaler(ENVS, 0.9, 10.0)
    generator = np.random.default_rng(0)
    for _ in range(5):
        scaler(generator.normal(size=ENVS), generator.random(ENVS) < 0.2)
    other = RewardScaler(ENVS, 0.9, 10.0)
    other.load_state_dict(scaler.state_dict())
    rewards, ended = generator.normal(size=ENVS), np.zeros(ENVS, np.bool_)
    np.testing.assert_array_equal(other(rewards, ended), scaler(rewards, ended))


def test_rewards_that_do_not_count_change_nothing() -> None:
    scaler = RewardScaler(2, 0.9, 10.0)
    counts = np.array([True, False])
    scaler(np.array([1.0, 1e6]), np.zeros(2, np.bool_), counts=counts)
    alone = RewardScaler(1, 0.9, 10.0)
    alone(np.array([1.0]), np.zeros(1, np.bool_))
    assert_close(scaler.moments, alone.moments)


class Drift(gymnasium.Env[Any, Any]):
    """Numbers of different sizes, and episodes of different lengths."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (WORDS,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def _observation(self) -> NDArray[np.float64]:
        return self.np_random.normal([0.0, 50.0, -3.0], [1.0, 20.0, 1e-3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(self.np_random.normal(3.0, 7.0))
        ended = bool(self.np_random.random() < 0.1)
        return self._observation(), reward, ended, False, {}


def test_the_stream_is_normalised_as_by_stable_baselines3() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    raw = vec_env.DummyVecEnv([Drift] * ENVS)
    raw.seed(5)
    theirs = vec_env.VecNormalize(raw, clip_obs=2.5, clip_reward=1.5, gamma=0.97)
    moments, scaler = Moments.prior(WORDS), RewardScaler(ENVS, 0.97, 1.5)
    seen = theirs.reset()
    for step in range(STEPS):
        original = theirs.get_original_obs()
        moments = moments.merged(Moments.of(original))
        ours = normalise_observations(original, moments, 2.5)
        np.testing.assert_allclose(ours, seen, atol=1e-5, err_msg=f"step {step}")
        seen, rewards, dones, _ = theirs.step(np.zeros(ENVS, np.int64))
        scaled = scaler(theirs.get_original_reward().astype(np.float64), dones)
        np.testing.assert_allclose(scaled, rewards, atol=1e-5, err_msg=f"step {step}")
