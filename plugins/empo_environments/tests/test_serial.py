"""Environments in the learner's own process."""

from __future__ import annotations

import gymnasium
import pytest

from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.serial import SerialVectorEnv
from empo_testing.environment import MakeVector, VectorEnvTests


def cartpole() -> GymnasiumEnv:
    return GymnasiumEnv(gymnasium.make("CartPole-v1", disable_env_checker=True))


class TestSerial(VectorEnvTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: SerialVectorEnv([cartpole] * 6, blocks=3, order="rotation")
