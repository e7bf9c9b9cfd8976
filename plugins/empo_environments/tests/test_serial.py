"""Environments in the learner's own process."""

from __future__ import annotations

import gymnasium
import pytest

from empo_environments.gymnasium_env import GymnasiumEnvironment
from empo_environments.serial import Serial
from empo_rollout.testing.vectors import MakeVector, VectorTests


def cartpole() -> GymnasiumEnvironment:
    return GymnasiumEnvironment(gymnasium.make("CartPole-v1", disable_env_checker=True))


class TestSerial(VectorTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: Serial([cartpole] * 6, blocks=3, order="rotation")
