"""Equal runs of a learner leave equal checkpoints."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from small_runs import CONFIGS

from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_learning.checkpoint import TIMES
from empo_learning.loop import CHECKPOINTS


def hashes(name: str, folder: Path) -> dict[str, str]:
    """Sha256 of the files in the checkpoints of a run, but of those that say how long it took."""
    config = {**CONFIGS[name], "trackers": [], "runs": str(folder), "seed": 3}
    directory = Experiment.start(RunConfig.model_validate(config)).directory / CHECKPOINTS
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != TIMES
    }


@pytest.mark.parametrize(
    "name",
    [name if name == "rollout" else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS],
)
def test_no_time_of_day_is_in_a_checkpoint(name: str, tmp_path: Path) -> None:
    first, second = (hashes(name, tmp_path / number) for number in ("one", "two"))
    assert first == second
    assert len(first) >= 3
