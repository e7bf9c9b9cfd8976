"""Callbacks of a third party are called in runs of every learner, and go on as they were."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_runs import CONFIGS

from empo_core import Component, Config, run
from empo_core.config import RunConfig, installed
from empo_core.errors import CallbackError, ConfigError
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import Callback, Training
from empo_core.trees import StateDict
from empo_learning.checkpoint import Checkpoints
from empo_learning.loop import CHECKPOINTS
from empo_learning.state_tree import flatten

LEARNERS = sorted(CONFIGS)
QUICK = [
    pytest.param(learner, marks=[pytest.mark.slow] if learner == "phase2" else [])
    for learner in LEARNERS
]
"""A run of ``phase2`` takes several times as long as one of the others."""


class FadingParams(Config):
    stops_after: int | None = None


class Fading(Callback):
    """Counts its calls, and lowers the rate by a share that depends on all updates before."""

    calls: ClassVar[Counter[str]] = Counter()
    signals_left: ClassVar[int] = 0

    def __init__(self, params: FadingParams) -> None:
        self._params = params
        self.updates = 0

    def after_rollout(self, training: Training) -> None:
        self.calls["rollout"] += 1

    def after_update(self, training: Training) -> None:
        self.calls["update"] += 1
        self.updates += 1
        if self.updates == self._params.stops_after and Fading.signals_left:
            Fading.signals_left -= 1
            signal.raise_signal(signal.SIGTERM)
        training.lr_scale = 1 / self.updates
        training.log({"mine/updates": float(self.updates)})

    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, Any]
    ) -> None:
        self.calls["evaluation"] += 1
        assert score == training.scores[-1]

    def state_dict(self) -> StateDict:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: StateDict) -> None:
        self.updates = state_dict["updates"]


@pytest.fixture
def registry() -> Registry:
    """The installed components, and a callback that nobody has called yet."""
    Fading.calls.clear()
    Fading.signals_left = 0
    component = Component(
        kind="callback", name="fading", params=FadingParams, target=f"{__name__}:Fading", api=1
    )
    return Registry([*installed().offers, Offer(Provider("empo-mine", "1", "mine"), component)])


def config_of(learner: str, folder: Path, registry: Registry, **keys: Any) -> RunConfig:
    """The config of a small run; params of its algorithm are ``reporting``."""
    algorithm = CONFIGS[learner]["algorithm"]
    reporting = {**algorithm["params"]["reporting"], **keys.pop("reporting", {})}
    params = {**algorithm["params"], "reporting": reporting}
    config = {**CONFIGS[learner], "algorithm": {**algorithm, "params": params}, **keys}
    context = {"registry": registry}
    return RunConfig.model_validate({**config, "runs": str(folder)}, context=context)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def logged(directory: Path) -> list[tuple[int, float]]:
    """Steps and numbers that the callback logged."""
    rows = [row for row in rows_of(directory) if "mine/updates" in row]
    assert rows
    return [(row["step"], row["mine/updates"]) for row in rows]


def learned(directory: Path) -> tuple[Any, dict[str, str]]:
    """All that the newest checkpoint holds, in a form in which NaN equals NaN."""
    newest = Checkpoints(directory / CHECKPOINTS).newest()
    assert newest is not None
    data, tensors = flatten(newest[1])
    return data, {name: str(tensor.tolist()) for name, tensor in tensors.items()}


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_third_party_s_callback_follows_every_rollout_update_and_evaluation(
    registry: Registry, tmp_path: Path, learner: str
) -> None:
    reporting: dict[str, Any] = {"evaluation_episodes": 1, "evaluation_interval": 5}
    if learner == "latent":
        reporting |= {"evaluation_interval": 25, "evaluate": ["policy"], "videos": 0}
    if learner == "phase2":
        reporting = {"compare": "exact", "evaluation_interval": 12}
    config = config_of(
        learner, tmp_path, registry, reporting=reporting,
        callbacks=["fading"], trackers=["jsonl"],
    )  # fmt: skip
    result: Any = Experiment.start(config, registry=registry).result
    updates = {"rollout": "iterations", "latent": "updates"}
    expected = getattr(result, updates[learner]) if learner in updates else result.record.steps
    assert Fading.calls["update"] == expected > 0
    rollouts = {"rollout": expected, "latent": result.record.steps}.get(learner)
    assert rollouts is None or Fading.calls["rollout"] == rollouts
    assert Fading.calls["rollout"] > 0
    assert Fading.calls["evaluation"] == len(result.record.scores) > 1
    assert logged(result.directory)[-1][1] == expected


@pytest.mark.parametrize("learner", QUICK)
def test_a_run_that_was_interrupted_goes_on_with_the_states_of_its_callbacks(
    registry: Registry, tmp_path: Path, learner: str
) -> None:
    callback = {"name": "fading", "params": {"stops_after": 7}}
    plain, broken = (
        config_of(learner, tmp_path / name, registry, callbacks=[callback], trackers=["jsonl"])
        for name in ("plain", "broken")
    )
    expected = Experiment.start(plain, registry=registry).directory
    Fading.signals_left = 1
    with pytest.raises(RunInterrupted) as caught:
        Experiment.start(broken, registry=registry)
    directory = caught.value.directory
    Experiment.resume(directory, registry=registry)
    assert learned(directory) == learned(expected)
    assert logged(directory) == logged(expected)


def test_the_rate_that_is_logged_is_the_one_that_callbacks_left(
    registry: Registry, tmp_path: Path
) -> None:
    config = config_of("rollout", tmp_path, registry, callbacks=["fading"], trackers=["jsonl"])
    rows = rows_of(Experiment.start(config, registry=registry).directory)
    rates = [row["optim/lr"] for row in rows if "optim/lr" in row]
    assert rates == pytest.approx([rates[0] / max(count, 1) for count in range(len(rates))])


class Fails(Callback):
    """Fails in one of its hooks."""

    def __init__(self, hook: str) -> None:
        def fail(*arguments: object) -> None:
            raise OSError("no room for notes")

        setattr(self, hook, fail)


HOOKS = ["start", "after_rollout", "after_update", "after_evaluation", "state_dict"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_callback_that_fails_is_named_with_its_hook_and_its_line(
    tmp_path: Path, hook: str
) -> None:
    params = {**CONFIGS["rollout"]["algorithm"]["params"], "runs": str(tmp_path)}
    params["reporting"] = {"evaluation_episodes": 1, "evaluation_interval": 2}
    place = rf"Fails failed in {hook}: OSError: no room.*\(.*test_callbacks\.py:\d+\)"
    with pytest.raises(CallbackError, match=place):
        run("rollout", callbacks=[Fails(hook)], **params)


@pytest.mark.parametrize("hook", ["after_rollout", "after_update"])
def test_what_was_learned_before_a_callback_failed_is_not_lost(tmp_path: Path, hook: str) -> None:
    config = {**CONFIGS["latent"], "runs": str(tmp_path)}
    plain: Any = run({**config, "runs": str(tmp_path / "plain")})
    with pytest.raises(CallbackError):
        run({**config, "runs": str(tmp_path / "broken")}, callbacks=[Fails(hook)])
    (directory,) = (tmp_path / "broken").iterdir()
    newest = Checkpoints(directory / CHECKPOINTS).newest()
    assert newest is not None
    # The unit of work was ended, and going on without the callback is exact.
    resumed: Any = Experiment.resume(directory).result
    assert resumed.record.steps == plain.record.steps
    pairs = zip(resumed.model.parameters(), plain.model.parameters(), strict=True)
    assert all(bool((ours == theirs).all()) for ours, theirs in pairs)


class Stops(Callback):
    """Stops after some updates."""

    def __init__(self, updates: int = 3) -> None:
        self._left = updates

    def after_update(self, training: Training) -> None:
        self._left -= 1
        if not self._left:
            training.stop("three are enough")


@pytest.mark.parametrize("learner", QUICK)
def test_a_callback_from_python_stops_a_run_which_has_then_finished(
    tmp_path: Path, learner: str
) -> None:
    result: Any = run({**CONFIGS[learner], "runs": str(tmp_path)}, callbacks=[Stops()])
    assert result.record.steps < CONFIGS[learner]["algorithm"]["params"]["total_steps"]
    summary = json.loads((result.directory / "results/summary.json").read_text())
    assert summary["stop_reason"] == "three are enough"
    with pytest.raises(ConfigError):  # It is over, so that it cannot go on.
        Experiment.resume(result.directory)


def test_a_run_that_goes_on_without_its_callbacks_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CallbackError):
        run({**CONFIGS["rollout"], "runs": str(tmp_path)}, callbacks=[Fails("after_update")])
    (directory,) = tmp_path.iterdir()
    Experiment.resume(directory)
    assert any("Fails" in record.getMessage() for record in caplog.records)


def test_names_of_components_and_objects_go_together(tmp_path: Path) -> None:
    params = {**CONFIGS["rollout"]["algorithm"]["params"], "total_steps": 960}
    params["reporting"] = {"evaluation_episodes": 1, "evaluation_interval": 1}
    patience = {"name": "early-stopping", "params": {"patience": 1, "min_improvement": 1e6}}
    result: Any = run("rollout", callbacks=[patience, Stops(99)], runs=str(tmp_path), **params)
    assert len(result.record.scores) == 2
    assert result.record.stop_reason.startswith("early-stopping")


@pytest.mark.parametrize("callback", [Stops, lambda: None])
def test_what_is_no_callback_is_refused(tmp_path: Path, callback: Any) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks\.0: "):
        run({**CONFIGS["rollout"], "runs": str(tmp_path)}, callbacks=[callback])


def test_an_algorithm_that_calls_none_refuses_them(tmp_path: Path) -> None:
    config = {"world_model": "multigrid/trivial", "algorithm": "exact", "runs": str(tmp_path)}
    for keys, callbacks in (({"callbacks": ["plateau"]}, []), ({}, [Stops()])):
        with pytest.raises(ConfigError, match=r"^callbacks: algorithm 'exact'"):
            run({**config, **keys}, callbacks=callbacks)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["early-stopping", "best-checkpoint", "plateau"])
def test_a_callback_that_would_see_no_evaluation_is_refused_before_anything_runs(
    tmp_path: Path, name: str
) -> None:
    for learner in LEARNERS:
        with pytest.raises(ConfigError, match=r"^algorithm\.params\.reporting\."):
            run({**CONFIGS[learner], "callbacks": [name], "runs": str(tmp_path)})
    assert not list(tmp_path.iterdir())
