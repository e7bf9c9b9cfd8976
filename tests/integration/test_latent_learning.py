"""The latent agent solves what its example is about, by either policy loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from empo_core.config.files import load_config
from empo_core.experiment import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "latent_pendulum.yaml"
SOLVED = -200.0
"""Mean return of an episode of Pendulum-v1; a random policy gets about -1200."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("loss", ["awr", "svg"])
def test_a_pendulum_learns_to_stand(tmp_path: Path, loss: str, seed: int) -> None:
    config = load_config(
        EXAMPLE,
        overrides=[
            f"algorithm.params.policy_loss={loss}",
            f"seed={seed}",
            f"runs={tmp_path}",
            "algorithm.params.reporting.videos=0",
        ],
    )
    found = run(config).summary()["evaluation"]
    for actor in ("planner", "policy"):
        assert found[actor]["Pendulum-v1"]["mean_return"] >= SOLVED, actor
