"""Random numbers of environments that draw from global generators, and of the run's own parts."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_core.protocols.environments import VectorLayout
from empo_environments.components import CallableEnvironment


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Worker processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Drawing(gymnasium.Env[np.ndarray, np.int64]):
    """Shows what it draws from the global generators, when it is made and in each step."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._made = np.random.rand()
        self._step = 0

    def _seen(self) -> np.ndarray:
        drawn = [self._made, random.random(), np.random.rand(), float(torch.rand(()))]
        return np.array(drawn, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        self._step += 1
        return self._seen(), 0.0, self._step >= 5, False, {}


class Paying(Drawing):
    """Shows nothing, and pays what it draws; so its past can be played again."""

    def _seen(self) -> np.ndarray:
        return np.zeros(4, np.float32)

    def step(self, action: np.int64) -> Any:
        self._step += 1
        return self._seen(), float(np.random.rand()), self._step >= 5, False, {}


def first_rows(seed: int, layout: dict[str, Any] | None = None) -> np.ndarray:
    """What four copies show first, in two worker processes."""
    given = {"workers": 2, "seed": seed, **(layout or {})}
    vector = CallableEnvironment(Drawing).vector(4, VectorLayout(**given))
    try:
        vector.start(0)
        return vector.recv().observation.copy()
    finally:
        vector.close()


def test_no_two_workers_draw_the_same_and_every_run_draws_the_same() -> None:
    rows = first_rows(3)
    assert len(np.unique(rows)) == rows.size
    np.testing.assert_array_equal(first_rows(3), rows)
    assert not set(first_rows(4).ravel()) & set(rows.ravel())


def test_a_worker_that_is_started_anew_draws_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "failed"

    class Failing(Drawing):
        def step(self, action: np.int64) -> Any:
            if not path.exists():
                path.write_text("")
                raise RuntimeError("planted")
            return super().step(action)

    layout = VectorLayout(workers=1, on_crash="restart", seed=3)
    vector = CallableEnvironment(Failing).vector(1, layout)
    try:
        vector.start(0)
        before = vector.recv().observation.copy()
        vector.send(0, np.zeros((1, 1), np.int64))
        assert not set(vector.recv().observation.ravel()) & set(before.ravel())
    finally:
        vector.close()


def test_workers_go_on_with_their_random_numbers() -> None:
    def paid(vector: Any, steps: int) -> list[np.ndarray]:
        found = []
        for _ in range(steps):
            found.append(vector.recv().reward.copy())
            vector.send(0, np.zeros((4, 1), np.int64))
        return found

    environment = CallableEnvironment(Paying)
    one, other = (environment.vector(4, VectorLayout(workers=2, seed=n)) for n in (1, 2))
    try:
        one.start(0)
        paid(one, 8)
        state = one.state_dict()
        expected = paid(one, 8)
        assert other.load_state_dict(state)
        np.testing.assert_array_equal(paid(other, 8), expected)
    finally:
        one.close()
        other.close()


def drawn_in_run(folder: Path, make: Callable[[Path], Any], **changed: Any) -> dict[str, list[str]]:
    """What a run's environments drew, by process."""
    folder.mkdir()
    log = folder / "drawn"
    params: dict[str, Any] = {
        "total_steps": 64, "num_envs": 4, "vectorisation": {"backend": "serial"},
        "experience": {"bptt_horizon": 8},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [4]}}},
        "update": {"update_epochs": 1, "minibatch_size": 16}, "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 0},
    } | changed  # fmt: skip
    config = {
        "algorithm": {"name": "rollout", "params": params}, "trackers": [],
        "runs": str(folder / "runs"), "seed": 1,
    }  # fmt: skip
    Experiment.start(RunConfig.model_validate(config), env=make(log))
    found: dict[str, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines():
        process, number = line.split()
        found[process].append(number)
    return found


def noting(log: Path) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Makes environments that note what they draw at each reset."""

    class Noting(Drawing):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            import os

            with log.open("a") as file:
                file.write(f"{os.getpid()} {np.random.rand()}\n")
            return super().reset(seed=seed)

    return Noting


@pytest.mark.parametrize("collected", ["workers", pytest.param("actors", marks=pytest.mark.slow)])
def test_runs_repeat_what_workers_draw(collected: str, tmp_path: Path) -> None:
    changed: dict[str, Any] = {"vectorisation": {"backend": "process", "workers": 2}}
    if collected == "actors":
        changed = {"collection": {"actors": 2}}
    one, other = (drawn_in_run(tmp_path / name, noting, **changed) for name in "ab")
    long = [numbers for numbers in one.values() if len(numbers) > 4]
    assert len(long) == 2
    assert not set(long[0]) & set(long[1])
    assert sorted(one.values()) == sorted(other.values())


def test_an_evaluation_changes_nothing_of_what_training_draws(tmp_path: Path) -> None:
    quiet = drawn_in_run(tmp_path / "a", noting)
    often = {"reporting": {"evaluation_episodes": 2, "evaluation_interval": 1}}
    (numbers,), (evaluated,) = (
        quiet.values(),
        drawn_in_run(tmp_path / "b", noting, **often).values(),
    )
    # A probe, then episodes; those of evaluations come between.
    rest = iter(evaluated)
    assert all(number in rest for number in numbers)
    assert len(evaluated) > len(numbers)


def test_weights_and_first_actions_are_not_correlated() -> None:
    from empo_core.random_streams import Stream, seed_globals, seed_of, stream

    correlations = []
    for seed in range(20):
        weights = torch.Generator().manual_seed(seed_of(stream(seed, Stream.WEIGHTS)))
        seed_globals(stream(seed, Stream.GLOBALS, 0))
        rows = torch.stack((torch.randn(4096, generator=weights), torch.randn(4096)))
        correlations.append(float(torch.corrcoef(rows)[0, 1]))
    assert abs(np.mean(correlations)) < 0.02
    assert max(map(abs, correlations)) < 0.08
