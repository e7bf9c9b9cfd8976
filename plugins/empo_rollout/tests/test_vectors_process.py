"""Environments in worker processes."""

from __future__ import annotations

import sys

import cloudpickle
import gymnasium
import pytest

from empo_rollout.vectors.gymnasium_env import GymnasiumEnvironment
from empo_rollout.vectors.kit import MakeVector, VectorTests
from empo_rollout.vectors.process import Process

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def cartpole() -> GymnasiumEnvironment:
    return GymnasiumEnvironment(gymnasium.make("CartPole-v1", disable_env_checker=True))


class TestProcess(VectorTests):
    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: Process(
            [cartpole] * 4, workers=2, blocks=2, order="rotation", on_crash="stop"
        )
