"""Algorithm ``latent`` does what every algorithm must; here, since it needs a policy loss."""

from __future__ import annotations

from typing import Any

import pytest

from empo_core.errors import ConfigError
from empo_core.protocols import Algorithm, RunContext
from empo_latent.algorithm import LatentAlgorithm
from empo_latent.params import LatentParams
from empo_testing.algorithm import AlgorithmTests, fresh
from empo_testing.worlds import TinyWorld

AGENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 20,
    "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 6}}],
    "policy_loss": "awr",
    "collection": {"seed_steps": 12, "seed_updates": 1, "acting": "policy"},
    "encoder": {"width": 4},
    "latents": {"size": 4, "group": 2, "width": 4},
    "bins": {"number": 5},
    "replay": {"batch_size": 2},
    "learning": {"horizon": 2, "updates_per_step": 0.25},
    "imagination": {"candidates": 2},
    "reporting": {"evaluation_episodes": 1, "evaluate": ["policy"], "log_interval": 5},
}


class TestLatent(AlgorithmTests):
    @pytest.fixture
    def algorithm(self) -> Algorithm:
        return LatentAlgorithm(LatentParams.model_validate(AGENT))

    @pytest.fixture
    def world(self) -> None:
        return None

    @pytest.fixture
    def volatile(self) -> set[str]:
        return {"seconds", "steps_per_second"}

    def test_a_world_is_refused(self, algorithm: Algorithm, context: RunContext) -> None:
        world = fresh(TinyWorld(), context.directory.parent / "with a world")
        with pytest.raises(ConfigError, match="world_model:"):
            algorithm.run(world)
