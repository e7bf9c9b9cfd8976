"""NaN in a learner is noticed, never saved, and the run goes on from before it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from small_runs import CONFIGS

from empo_core.components import build
from empo_core.config import RunConfig, WorldModelRef
from empo_core.errors import EmpoError, NonFiniteError
from empo_core.experiment import Experiment, RunInterrupted, run
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_exact.sweep import Solver
from empo_exact.values import ValueStore
from empo_learning.checkpoint import Checkpoints
from empo_learning.loop import CHECKPOINTS, Loop
from empo_learning.state_tree import flatten
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.quantities import Quantities
from empo_rollout import ppo
from empo_worlds.arrays import load_arrays, save_arrays

LEARNERS = {"phase2": 10, "rollout": 5, "latent": 42}
"""After so many updates NaN gets in."""
STATE = {
    ("phase2", "weights"): r"^networks/q_r/",
    ("phase2", "moments"): r"^regressions/q_r/.*exp_avg",
    ("phase2", "targets"): r"^target_networks/v_h_e/",
    ("rollout", "weights"): r"^policy/",
    ("rollout", "moments"): r"^ranks/0/updater/optimiser/.*exp_avg",
    ("latent", "weights"): r"^model/(encoder|dynamics|heads)\.",
    ("latent", "moments"): r"^updater/.*exp_avg",
    ("latent", "targets"): r"^model/averages\.",
}
"""Tensors of a learner's state by algorithm and by what they are."""
CODE = {
    ("phase2", "rewards"): (Quantities, "u_r"),
    ("rollout", "targets"): (ppo, "advantages"),
    ("rollout", "rewards"): (PendulumEnv, "step"),
    ("latent", "rewards"): (PendulumEnv, "step"),
    ("rollout", "observations"): (PendulumEnv, "step"),
    ("latent", "observations"): (PendulumEnv, "step"),
}
"""Functions whose results, or a part of them, are not finite for a while: U_r of the robots,
returns that values are to learn, rewards and observations of the environment."""
PLACES = [*STATE, *CODE]
QUICK = {
    ("phase2", "weights"), ("phase2", "rewards"), ("rollout", "moments"), ("latent", "targets"),
    ("latent", "observations"),
}  # fmt: skip


def poisoned(value: Any, target: str = "rewards", number: float = torch.nan) -> Any:
    """The result of a function with NaN, or another number, in it."""
    if isinstance(value, torch.Tensor):
        return torch.full_like(value, number)
    if isinstance(value[0], torch.Tensor):  # Advantages and returns.
        return value[0], torch.full_like(value[1], number)
    observation, reward, *rest = value  # A step of an environment.
    if target == "observations":
        return np.full_like(observation, number), reward, *rest
    return observation, number, *rest


def inject(loop: Loop, pattern: str, number: float = torch.nan) -> None:
    """Put NaN, or another number, into tensors of a learner."""
    learner = loop._learner
    state = learner.state_dict(midway=False)
    hit = 0
    for name, tensor in flatten(state)[1].items():
        if re.search(pattern, name) and tensor.is_floating_point():
            with torch.no_grad():
                tensor.fill_(number)
            hit += 1
    assert hit
    learner.load_state_dict(state)


def armed(patch: pytest.MonkeyPatch, name: str, target: str, number: float) -> None:
    """Have a number get into a run of this algorithm."""
    whole, place, active = Loop._advance, LEARNERS[name], [False]

    def advance(loop: Loop) -> None:
        if loop._learner.updates == place:
            active[0] = True
            if (name, target) in STATE:
                inject(loop, STATE[name, target], number)
        whole(loop)

    patch.setattr(Loop, "_advance", advance)
    if (name, target) in CODE:
        owner, function = CODE[name, target]
        original = getattr(owner, function)

        def call(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            return poisoned(found, target, number) if active[0] else found

        patch.setattr(owner, function, call)


@pytest.mark.parametrize(
    ("name", "target", "number"),
    [
        pytest.param(*place, number, marks=[] if is_quick else pytest.mark.slow)
        for number in (torch.nan, torch.inf)
        for place in PLACES
        for is_quick in [place in QUICK and number is torch.nan]
    ],
)
def test_what_is_not_finite_is_found_and_the_run_goes_on_from_before(
    name: str, target: str, number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.model_validate(
        {**CONFIGS[name], "trackers": [], "runs": str(tmp_path), "seed": 1}
    )
    with monkeypatch.context() as patch:
        armed(patch, name, target, number)
        with pytest.raises(EmpoError, match=r"finite|nan|NaN|inf"):
            run(config)
    (directory,) = tmp_path.iterdir()
    found = Checkpoints(directory / CHECKPOINTS).newest()
    assert found is not None
    known = {key: each for key, each in found[1]["learner"].items() if key != "replay"}
    for key, tensor in flatten(known)[1].items():
        assert bool(tensor.isfinite().all()), key
    resumed = Experiment.resume(directory).result
    assert resumed.summary()["steps"] >= {"phase2": 30, "rollout": 320, "latent": 60}[name]


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_no_moment_that_is_not_finite_outlasts_the_next_refresh_of_targets(
    number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN shows in the next loss; infinite second moments only stop all learning."""
    algorithm = CONFIGS["phase2"]["algorithm"]
    often = {"optimiser": {"target_interval": 2}, "reporting": {"checkpoint_interval": 0}}
    algorithm = {**algorithm, "params": {**algorithm["params"], **often}}
    config = RunConfig.model_validate(
        {**CONFIGS["phase2"], "algorithm": algorithm, "trackers": [], "runs": str(tmp_path)}
    )
    advance, poisoned_at = Loop._advance, LEARNERS["phase2"]
    steps = []

    def poison(loop: Loop) -> None:
        steps.append(loop._learner.updates)
        if steps[-1] == poisoned_at:
            inject(loop, r"^regressions/q_r/.*exp_avg_sq", number)
        advance(loop)

    monkeypatch.setattr(Loop, "_advance", poison)
    with pytest.raises(NonFiniteError):
        run(config)
    assert steps[-1] <= poisoned_at + 2
    assert list(tmp_path.glob(f"*/{CHECKPOINTS}/*")) == []


HUGE = 3e38
"""Weights of this size are finite, and what is computed by them is not."""


def test_a_policy_that_is_not_finite_is_noticed_when_actors_act_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.model_validate(
        {**CONFIGS["rollout"], "trackers": [], "runs": str(tmp_path), "seed": 1}
    )
    whole = Loop._advance

    def advance(loop: Loop) -> None:
        if loop._learner.updates == LEARNERS["rollout"]:
            inject(loop, r"^policy/", HUGE)
        whole(loop)

    monkeypatch.setattr(Loop, "_advance", advance)
    with pytest.raises(NonFiniteError, match="acts by"):
        run(config)


def test_robots_never_act_by_values_that_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.model_validate(
        {**CONFIGS["phase2"], "trackers": [], "runs": str(tmp_path), "seed": 1}
    )
    policy = RobotBehaviour.policy
    monkeypatch.setattr(RobotBehaviour, "policy", lambda *args: poisoned(policy(*args)))
    with pytest.raises(NonFiniteError, match="to act"):
        run(config)


EXACT = {
    "world_model": {"name": "multigrid/trivial", "params": {"max_steps": 6}},
    "algorithm": {"name": "exact", "params": {"keep": "disk", "rollouts": 0}},
    "trackers": [],
    "seed": 1,
}
LEVEL = 3
"""The time at which NaN gets into an exact run."""


def exact_run(folder: Path) -> Any:
    """The result of a run without any fault, unless a test sees to one."""
    return run(RunConfig.model_validate({**EXACT, "runs": str(folder)}))


def levels(directory: Path) -> dict[str, dict[str, np.ndarray]]:
    """The saved values of each time."""
    return {path.name: load_arrays(path)[0] for path in (directory / "values").iterdir()}


def assert_goes_on_to_the_same_values(directory: Path, folder: Path) -> None:
    """Assert that a resumed run ends with the same finite values as a run without faults."""
    found, whole = Experiment.resume(directory).result.summary(), exact_run(folder).summary()
    assert found["root"] == whole["root"]
    for arrays in levels(directory).values():
        assert all(bool(np.isfinite(array).all()) for array in arrays.values())


@pytest.mark.parametrize("target", ["weights", "targets", "rewards"])
def test_an_exact_run_stops_at_what_is_not_finite_and_goes_on_from_before(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exact run has values instead of weights and targets.

    NaN gets into the values V_h^e that a sweep finds (weights), into those of one step later that
    it starts from (targets), or into V_r, which accrues U_r (rewards).
    """
    whole, steps = Solver.sweep, EXACT["world_model"]["params"]["max_steps"]

    def sweep(
        self: Solver, order: Any, later: Any, out: Any, steps_left: int, threads: Any, *others: Any
    ) -> int:
        is_there = steps_left == steps - LEVEL
        if is_there and target == "targets":
            later.by_v_e.fill(np.nan)
        bad = whole(self, order, later, out, steps_left, threads, *others)
        if is_there and target != "targets":
            (out.v_e if target == "weights" else out.v_r)[0] = np.nan
        return bad

    with monkeypatch.context() as patch:
        patch.setattr(Solver, "sweep", sweep)
        with pytest.raises(NonFiniteError, match=r"^V_(h\^e|r) "):
            exact_run(tmp_path / "broken")
    (directory,) = (tmp_path / "broken").iterdir()
    assert levels(directory).keys() == {"t00004", "t00005"}
    for arrays in levels(directory).values():
        assert all(bool(np.isfinite(array).all()) for array in arrays.values())
    assert_goes_on_to_the_same_values(directory, tmp_path / "whole")


def test_an_exact_run_goes_on_from_before_a_saved_level_that_is_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exact run has no moments; what it goes on from is a level on disk."""

    def interrupted(
        self: ValueStore, time: int, values: Any, answers: int = 0, put: Any = ValueStore.put
    ) -> None:
        put(self, time, values, answers)
        if time == LEVEL:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ValueStore, "put", interrupted)
        with pytest.raises(RunInterrupted) as caught:
            exact_run(tmp_path / "broken")
    level = caught.value.directory / "values" / f"t{LEVEL:05d}"
    arrays, metadata = load_arrays(level)
    arrays["v_e"][0] = np.nan
    save_arrays(level, arrays, metadata)
    assert_goes_on_to_the_same_values(caught.value.directory, tmp_path / "whole")
    assert "refused, going on from before it: V_h^e is not finite" in caplog.text


def test_gaps_out_of_reach_are_no_fault_and_are_taken_up_again(tmp_path: Path) -> None:
    world = build(WorldModelRef.model_validate("table/commitment"))
    params = ExactParams(keep="disk")
    whole = solve(world, params, directory=tmp_path).summary()["root"]
    level = tmp_path / "t00001"
    assert np.isnan(load_arrays(level)[0]["v_e"]).any()  # Of a state out of reach.
    shutil.rmtree(tmp_path / "t00000")
    written = {path: path.stat().st_mtime_ns for path in level.iterdir()}
    again = solve(world, params, directory=tmp_path, resume=True).summary()["root"]
    assert again == whole
    assert {path: path.stat().st_mtime_ns for path in level.iterdir()} == written
