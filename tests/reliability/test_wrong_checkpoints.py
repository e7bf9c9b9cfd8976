"""Checkpoints that are sealed correctly and hold something wrong: a sentence with file and key."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import CONFIGS

from empo_core.config import RunConfig
from empo_core.errors import ConfigError, EmpoError, StorageError
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.protocols import Tracker
from empo_learning.checkpoint import STATE, Checkpoints
from empo_learning.loop import CHECKPOINTS

STOPS = {"phase2": 14, "rollout": 160, "latent": 40}
"""Step of the log at which a run of each algorithm is interrupted."""
KEYS: dict[str, list[tuple[str | int, ...]]] = {
    "phase2": [
        ("learner", "steps"),
        ("learner", "replay", "pool", "number"),
        ("learner", "losses", "rows", 0),
    ],
    "rollout": [
        ("learner", "steps"),
        ("learner", "ranks", 0, "updater", "optimiser", "0", "exp_avg"),
        ("learner", "ranks", 0, "collector", "vector", "seeds", 0),
    ],
    "latent": [
        ("learner", "steps"),
        ("learner", "updater", "model", "0", "exp_avg_sq"),
        ("learner", "vector", "tasks", 0, "seeds", 0),
    ],
}
"""Keys that the quick tests change; the slow one changes every key."""
PLAYED = {
    "phase2": ("learner", "published"),
    "rollout": ("learner", "policy"),
    "latent": ("learner", "model"),
}
"""Where each algorithm keeps the weights that its players load."""


class Stop(Tracker):
    """Interrupts a run at the first line of the log from a step on."""

    def __init__(self, step: int) -> None:
        self._step = step

    def log(self, step: int, metrics: Any) -> None:
        if step >= self._step:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Interrupted:
    """A run that waits to be resumed, and the state of its newest checkpoint."""

    directory: Path
    step: int
    state: dict[str, Any]

    @classmethod
    def of(cls, name: str, folder: Path) -> Interrupted:
        config = RunConfig.model_validate(
            {**CONFIGS[name], "trackers": [], "runs": str(folder), "seed": 3}
        )
        with pytest.raises(RunInterrupted) as caught:
            Experiment.start(config, watchers=[Stop(STOPS[name])], terminal=False)
        checkpoints = Checkpoints(caught.value.directory / CHECKPOINTS)
        step = checkpoints.steps()[-1]
        return cls(caught.value.directory, step, plain(checkpoints.load(step)))

    def copied_with(self, state: dict[str, Any], folder: Path) -> None:
        """Copy the run, with another state in its only checkpoint."""
        times = Checkpoints(self.directory / CHECKPOINTS).times(self.step)
        shutil.copytree(self.directory, folder)
        shutil.rmtree(folder / CHECKPOINTS)
        Checkpoints(folder / CHECKPOINTS).save(self.step, state, times=times)

    def resumed_with(self, state: dict[str, Any], folder: Path) -> None:
        """Resume a copy of the run with another state in its only checkpoint."""
        self.copied_with(state, folder)
        try:
            Experiment.resume(folder, watchers=[Stop(0)], terminal=False)
        except RunInterrupted:
            pass
        finally:
            shutil.rmtree(folder)


def plain(tree: Any) -> Any:
    """A tree of ordinary dictionaries, lists and tuples."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(plain(value) for value in tree)
    return tree


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values that are no collections; of a list to those of its first item."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list | tuple) and tree:
        yield from leaves(tree[0], (*path, 0))
    else:
        yield path


def changed(tree: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of a tree with another value in one place."""
    if not path:
        return change(tree)
    items = dict(tree) if isinstance(tree, dict) else list(tree)
    items[path[0]] = changed(items[path[0]], path[1:], change)
    return items if isinstance(tree, dict) else type(tree)(items)


def without(tree: Any, path: tuple[Any, ...]) -> Any:
    """A copy of a tree without one key."""
    return changed(tree, path[:-1], lambda d: {k: v for k, v in d.items() if k != path[-1]})


def reshaped(value: Any) -> Any:
    """A tensor of another shape; text in place of anything else."""
    return torch.zeros((*value.shape, 3)) if isinstance(value, torch.Tensor) else "abc"


@pytest.mark.parametrize("name", KEYS)
def test_a_wrong_checkpoint_ends_in_a_sentence_with_file_and_key(name: str, tmp_path: Path) -> None:
    run = Interrupted.of(name, tmp_path / "runs")
    for path in KEYS[name]:
        wrong = [changed(run.state, path, lambda _: "abc")]
        if isinstance(path[-1], str):
            wrong.append(without(run.state, path))
        for state in wrong:
            with pytest.raises((ConfigError, StorageError)) as caught:
                run.resumed_with(state, tmp_path / "wrong")
            file = tmp_path / "wrong" / CHECKPOINTS / f"step-{run.step}" / STATE
            named = path if isinstance(path[-1], str) else path[:-1]  # Items of lists are not.
            assert str(caught.value).startswith(f"{file}: {'.'.join(map(str, named))}: ")


@pytest.mark.parametrize("name", PLAYED)
def test_a_player_names_file_and_key_of_wrong_weights(name: str, tmp_path: Path) -> None:
    run = Interrupted.of(name, tmp_path / "runs")
    for number, state in enumerate(
        [changed(run.state, PLAYED[name], lambda _: "abc"), without(run.state, PLAYED[name])]
    ):
        folder = tmp_path / str(number)
        run.copied_with(state, folder)
        with pytest.raises((ConfigError, StorageError)) as caught:
            Experiment.load(folder).policies()
        file = folder / CHECKPOINTS / f"step-{run.step}" / STATE
        assert str(caught.value).startswith(f"{file}: {'.'.join(PLAYED[name])}: ")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", STOPS)
def test_no_wrong_value_of_a_checkpoint_is_an_error_of_python(name: str, tmp_path: Path) -> None:
    run, tried = Interrupted.of(name, tmp_path / "runs"), set()
    failures = []
    for path in leaves(run.state):
        kind = tuple(re.sub(r"\d+", "#", str(part)) for part in path)
        if kind in tried:
            continue
        tried.add(kind)
        wrong = [changed(run.state, path, lambda _: "abc"), changed(run.state, path, reshaped)]
        if isinstance(path[-1], str):
            wrong.append(without(run.state, path))
        for change, state in enumerate(wrong):
            try:
                run.resumed_with(state, tmp_path / "wrong")
            except EmpoError:
                continue
            except Exception as error:
                failures.append((path, ("text", "reshaped", "missing")[change], repr(error)))
    assert failures == []
