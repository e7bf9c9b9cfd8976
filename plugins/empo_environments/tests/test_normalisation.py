"""Running statistics against closed forms and against Stable-Baselines3 on the same stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from empo_core.errors import ConfigError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.normalisation import (
    PRIOR_COUNT,
    Moments,
    Normaliser,
    RewardScaler,
    normalise_observations,
)
from empo_environments.params import NormaliseParams
from empo_environments.serial import SerialVectorEnv

WORDS = 3
STEPS = 300
ENVS = 4


def rows(seed: int, count: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return generator.normal(generator.normal(size=WORDS) * 5, 2.0, (count, WORDS))


def assert_close(first: Moments, other: Moments) -> None:
    np.testing.assert_allclose(first.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(first.variance, other.variance, atol=1e-8)
    assert first.count == pytest.approx(other.count)


@given(st.integers(0, 2**31), st.lists(st.integers(1, 20), min_size=1, max_size=6))
@settings(max_examples=50)
def test_moments_of_pieces_are_the_moments_of_the_whole(seed: int, sizes: list[int]) -> None:
    whole = rows(seed, sum(sizes))
    pieces = np.split(whole, np.cumsum(sizes)[:-1])
    merged = Moments.of(pieces[0])
    for piece in pieces[1:]:
        merged = merged.merged(Moments.of(piece))
    assert_close(merged, Moments.of(whole))


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=50)
def test_merging_forgets_the_order(seed: int, first: int, second: int) -> None:
    one, other = Moments.of(rows(seed, first)), Moments.of(rows(seed + 1, second))
    assert_close(one.merged(other), other.merged(one))


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=50)
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


class PlainNormalise:
    """Reference for ``VecNormalize``, computed from all past data, without merged moments.

    Its running mean and variance begin with mean 0 and variance 1 of weight 1e-4, so they are the
    moments of the stream with that much weight of -1 and 1 before it.
    """

    def __init__(self, gamma: float, clip: float) -> None:
        self.gamma, self.clip = gamma, clip
        self.seen: list[list[float]] = []
        self.returns: list[float] = []
        self.running = [0.0] * ENVS

    def scale(self, numbers: list[float]) -> tuple[float, float]:
        weight = PRIOR_COUNT + len(numbers)
        mean = math.fsum(numbers) / weight
        squares = PRIOR_COUNT + math.fsum(number**2 for number in numbers)
        return mean, math.sqrt(squares / weight - mean**2 + 1e-8)

    def cut(self, number: float) -> float:
        return min(max(number, -self.clip), self.clip)

    def observations(self, rows: Any, counts: bool = True) -> list[list[float]]:
        if counts:
            self.seen += [list(map(float, row)) for row in rows]
        scales = [self.scale([row[word] for row in self.seen]) for word in range(WORDS)]
        return [
            [self.cut((float(row[word]) - mean) / std) for word, (mean, std) in enumerate(scales)]
            for row in rows
        ]

    def rewards(self, rewards: Any, ended: Any) -> list[float]:
        self.running = [
            self.gamma * total + float(reward)
            for total, reward in zip(self.running, rewards, strict=True)
        ]
        self.returns += self.running
        _, std = self.scale(self.returns)
        self.running = [
            0.0 if over else total for total, over in zip(self.running, ended, strict=True)
        ]
        return [self.cut(float(reward) / std) for reward in rewards]


class Cut(Drift):
    """The same, whose episodes are also cut off; as numbers of half the precision."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (WORDS,), np.float32)

    def _observation(self) -> NDArray[np.float64]:
        return super()._observation().astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, _, info = super().step(action)
        return seen, reward, terminated, bool(self.np_random.random() < 0.1), info


def normaliser(vector: SerialVectorEnv, **keys: Any) -> Normaliser:
    return Normaliser(vector.spec, NormaliseParams(clip=1.5, **keys), gamma=0.97)


def started(blocks: int = 1, seed: int = 3) -> SerialVectorEnv:
    vector = SerialVectorEnv([lambda: GymnasiumEnv(Cut())] * ENVS, blocks=blocks, order="rotation")
    vector.start(seed)
    return vector


def steps(vector: SerialVectorEnv, count: int) -> Iterator[TimeStep]:
    for _ in range(count):
        time_step = vector.recv()
        yield time_step
        vector.send(time_step.block, np.zeros((len(time_step.reward), 1), np.int64))


def test_vectors_are_normalised_as_a_plain_reference_says() -> None:
    vector, plain = started(), PlainNormalise(0.97, 1.5)
    ours, finals = normaliser(vector), 0
    acted = np.zeros(ENVS, np.bool_)
    for time_step in steps(vector, 80):
        found = ours.update(time_step, acted)
        np.testing.assert_allclose(
            found.observation, plain.observations(time_step.observation), atol=1e-5
        )
        np.testing.assert_allclose(
            found.final_observation.reshape(-1, WORDS),
            np.reshape(plain.observations(time_step.final_observation, counts=False), (-1, WORDS)),
            atol=1e-5,
        )
        if acted.any():
            ended = time_step.terminated | time_step.truncated
            np.testing.assert_allclose(
                found.reward, plain.rewards(time_step.reward, ended), atol=1e-5
            )
        finals += len(found.final_row)
        acted = np.ones(ENVS, np.bool_)
    assert finals


def test_frozen_statistics_stay_and_rewards_too() -> None:
    vector = started()
    ours, acts = normaliser(vector), np.ones(ENVS, np.bool_)
    for time_step in steps(vector, 5):
        ours.update(time_step, acts)
    before = ours.fresh()
    for time_step in steps(vector, 5):
        found = ours.observed(time_step)
        np.testing.assert_array_equal(found.reward, time_step.reward)
        assert ours.observations is not None
        np.testing.assert_array_equal(
            found.observation, normalise_observations(time_step.observation, ours.observations, 1.5)
        )
    np.testing.assert_array_equal(ours.fresh(), before)


def test_one_counts_what_parts_have_seen_elsewhere() -> None:
    whole, seen = normaliser(started()), Moments.prior(WORDS)
    vectors = [started(seed=seed) for seed in (1, 2)]
    parts = [normaliser(vector) for vector in vectors]
    acts = np.ones(ENVS, np.bool_)
    for _ in range(3):
        for vector, part in zip(vectors, parts, strict=True):
            part.begin(whole.moments)
            for time_step in steps(vector, 4):
                seen = seen.merged(Moments.of(time_step.observation))
                part.update(time_step, acts)
        whole.take_in(np.stack([part.fresh() for part in parts]))
    assert whole.observations is not None
    assert_close(whole.observations, seen)
    assert whole.fresh()[0] == pytest.approx(seen.count, abs=0.01), (
        "other processes are to be told of it"
    )


def test_processes_share_what_each_has_seen() -> None:
    vectors = [started(seed=seed) for seed in (1, 2)]
    ours = [normaliser(vector) for vector in vectors]
    one = Moments.prior(WORDS)
    acts = np.ones(ENVS, np.bool_)
    for _ in range(3):
        for vector, each in zip(vectors, ours, strict=True):
            for time_step in steps(vector, 4):
                one = one.merged(Moments.of(time_step.observation))
                each.update(time_step, acts)
        fresh = np.stack([each.fresh() for each in ours])
        for each in ours:
            each.merge(fresh)
        first, second = (each.state_dict() for each in ours)
        for name in ("observations", "rewards"):
            for key in ("mean", "variance", "count"):
                assert torch.equal(first[name][key], second[name][key]), (name, key)
        assert ours[0].observations is not None
        assert_close(ours[0].observations, one)
        assert (ours[0].fresh()[[0, 1 + 2 * WORDS]] == 0).all()  # Counts of what is new.


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("keys", [{}, {"observations": False}, {"rewards": False}])
def test_a_normaliser_goes_on_from_its_state(blocks: int, keys: dict[str, bool]) -> None:
    vector = started(blocks)
    ours, heir = normaliser(vector, **keys), normaliser(vector, **keys)
    acts = np.ones(ENVS // blocks, np.bool_)
    for time_step in steps(vector, 8):
        ours.update(time_step, acts)
    heir.load_state_dict(ours.state_dict())
    for time_step in steps(vector, 8):
        one, other = ours.update(time_step, acts), heir.update(time_step, acts)
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.reward, other.reward)
        assert ("observations" not in keys) == (one.observation is not time_step.observation)
    np.testing.assert_array_equal(ours.fresh(), heir.fresh())


def test_pictures_are_refused() -> None:
    pictures = EnvSpec(ObservationSpec(4, "uint8", (1, 2, 2)), ActionSpec((2,)), ("one",), 1)
    with pytest.raises(ConfigError, match=r"normalise\.observations:"):
        Normaliser(pictures, NormaliseParams(), 0.9)
    Normaliser(pictures, NormaliseParams(observations=False), 0.9)
    with pytest.raises(ValidationError, match="drop it"):
        NormaliseParams(observations=False, rewards=False)
