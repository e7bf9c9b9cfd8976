"""Environments in the learner's own process."""

from __future__ import annotations

import gymnasium
import pytest

from empo_rollout.testing.vectors import MakeVector, VectorTests
from empo_rollout.vectors.gymnasium_env import GymnasiumEnvironment
from empo_rollout.vectors.serial import Serial


def cartpole() -> GymnasiumEnvironment:
    return GymnasiumEnvironment(gymnasium.make("CartPole-v1", disable_env_checker=True))


class TestSerial(VectorTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: Serial([cartpole] * 6, blocks=3, order="rotation")
