"""Runs of ``phase2`` whose actors are processes of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.experiment import seed_everything
from empo_core.protocols import RunContext
from empo_core.types import Histogram
from empo_learning.checkpoint import Checkpoints
from empo_learning.loop import CHECKPOINTS
from empo_learning.state_tree import flatten
from empo_phase2.algorithm import Phase2, Problem
from empo_phase2.params import Phase2Params
from empo_testing.algorithm import RecordingTracker, fresh

REFERENCE = WorldModelRef.model_validate({"name": "multigrid/trivial", "params": {"max_steps": 3}})
SMALL: dict[str, Any] = {
    "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 120,
    "warm_up": {"v_h_e": 20, "q_r": 20, "ramp": 20},
    "optimiser": {"lr": 1.0, "target_interval": 5, "publish_interval": 10},
    "replay": {"batch_size": 16},
    "collector": {"name": "async", "params": {"min_env_steps": 100}},
    "num_envs": 8,
    "reporting": {"log_interval": 1},
}


def params(**changes: Any) -> Phase2Params:
    return Phase2Params.model_validate(SMALL | changes)


def given(directory: Path, reference: WorldModelRef | None = REFERENCE) -> RunContext:
    context = fresh(build(REFERENCE), directory)
    context.world_model = reference
    return context


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels are compiled here first: learner and actors at once may take minutes over it."""
    Phase2(params(collector="sync")).run(given(tmp_path_factory.mktemp("compiled")))


class Stopper(RecordingTracker):
    """Sends the signal that Ctrl-C sends, at a training step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        if step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


def numbers(context: RunContext, name: str) -> list[float]:
    """Scalar values reported under a metric name, in order."""
    assert isinstance(context.tracker, RecordingTracker)
    found = [metrics[name] for _, metrics in context.tracker.logged if name in metrics]
    return [number for number in found if not isinstance(number, Histogram)]


def saved(context: RunContext) -> dict[str, Any]:
    """The newest checkpoint."""
    found = Checkpoints(context.directory / CHECKPOINTS).newest()
    assert found is not None
    state: dict[str, Any] = found[1]["learner"]
    return state


def same(first: Any, other: Any) -> bool:
    """True if two state trees are equal, tensors included."""
    (plain, tensors), (also, others) = flatten(first), flatten(other)
    return plain == also and all(torch.equal(tensors[name], others[name]) for name in tensors)


RND = {"name": "rnd", "params": {"feature_dim": 8, "hidden_dim": 16}}


@pytest.mark.slow
def test_actors_in_processes_of_their_own_learn_what_exact_computes(tmp_path: Path) -> None:
    setting = params(
        total_steps=600,
        warm_up={"v_h_e": 60, "q_r": 60, "ramp": 60},
        collector={"name": "async", "params": {"min_env_steps": 2500}},
        exploration={"frontier_prob": 0.5, "human": ["epsilon-greedy", RND]},
        optimiser={"lr": 1.0, "target_interval": 5},
        replay={"batch_size": 64},
        reporting={"compare": "exact", "evaluation_interval": 600},
    )
    context = given(tmp_path)
    seed_everything(0)
    found = Phase2(setting).run(context).gap
    assert found["Compare/V_r_root_rel"] < 0.01
    assert found["Compare/V_r_mean_rel"] < 0.03
    assert found["Compare/pi_r_root_tv"] < 0.02
    assert numbers(context, "collect/restarts")[-1] == 0


@pytest.mark.slow
def test_actors_act_with_what_was_published_to_them(tmp_path: Path) -> None:
    context = given(tmp_path)
    exploring = {"robot": [RND], "human": [RND, "count-bonus"]}
    # So seldom that the actor has taken one up long before the next.
    optimiser = {**SMALL["optimiser"], "publish_interval": 60}
    Phase2(params(exploration=exploring, optimiser=optimiser)).run(context)
    published, known = (
        numbers(context, f"collect/{name}_version") for name in ("policy", "acknowledged")
    )
    assert published[0] == 1
    assert published[-1] == 3
    assert known == sorted(known)
    assert all(theirs <= ours for theirs, ours in zip(known, published, strict=True))
    assert known[-1] > 1
    state = saved(context)
    (actor,) = state["collector"]["actors"]
    assert actor["version"] == state["collector"]["policy_version"] == 3
    weights, sent = actor["weights"], state["published"]
    assert same(weights, sent)
    # Predictors come from the learner; what they predict is the same from the beginning.
    learned = {name for name in sent if name.startswith("explorers.")}
    assert {name.split(".")[1] for name in learned} == {"robots", "human_1"}
    for name in ("robots.0", "human_1.0"):
        ours, theirs = state["explorers"][name], actor["explorers"][name]
        assert same(ours["target"], theirs["target"])
        of_it = {key.removeprefix(f"explorers.{name}."): t for key, t in sent.items()}
        assert all(torch.equal(of_it[key], tensor) for key, tensor in theirs["weights"].items())
        assert float(theirs["weights"]["moments"][2]) > 0


@pytest.mark.slow
def test_actors_play_an_ensemble_that_is_named(tmp_path: Path) -> None:
    further = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
    context = given(tmp_path)
    Phase2(params(ensemble={"worlds": [further]})).run(context)
    (actor,) = saved(context)["collector"]["actors"]
    assert set(actor["episodes"]["layout"].tolist()) == {0, 1}


def test_a_world_that_has_no_name_is_sent_to_the_actors(tmp_path: Path) -> None:
    context = given(tmp_path, reference=None)
    Phase2(params(replay={"store": "compact", "batch_size": 16})).run(context)
    assert len(numbers(context, "loss/q_r")) > 0
    assert saved(context)["collector"]["env_steps"] >= 100


@pytest.mark.slow
def test_a_resumed_run_goes_on_counting_with_the_same_memory(tmp_path: Path) -> None:
    setting = params(
        values={key: {"name": "mlp", "params": {"hidden": 16}} for key in ("q_r", "v_h_e")},
        collector={"name": "async", "params": {"min_env_steps": 100, "actors": 2}},
        replay={"capacity": 300, "batch_size": 16},
    )
    first = given(tmp_path)
    first.tracker = Stopper(60)
    with pytest.raises(KeyboardInterrupt):
        Phase2(setting).run(first)
    before = saved(first)
    resumed = given(tmp_path)
    problem = Problem.of(setting, resumed.world, REFERENCE)
    replay = problem.replay(tmp_path)
    replay.load_state_dict(before["replay"])
    assert same(replay.state_dict(), before["replay"])
    resumed.resume = True
    Phase2(setting).run(resumed)
    steps = [step for run in (first, resumed) for step, _ in run.tracker.logged]
    assert steps == list(range(1, 121))
    for name in ("env_steps", "accepted_frames", "restarts", "policy_version"):
        counted = [n for run in (first, resumed) for n in numbers(run, f"collect/{name}")]
        assert counted == sorted(counted), name
    assert numbers(resumed, "collect/policy_version")[-1] == 13
    assert numbers(resumed, "collect/acknowledged_version")[-1] >= 7
    assert numbers(resumed, "collect/version_lag_max")[-1] < 6
