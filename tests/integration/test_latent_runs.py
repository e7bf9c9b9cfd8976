"""Runs of algorithm ``latent`` from config to results: exact, resumable, and refused in time."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
import torch
from pydantic import ValidationError

from empo_core.config import RunConfig, merged
from empo_core.errors import ConfigError, EmpoError
from empo_core.experiment import Experiment, RunInterrupted, run
from empo_core.protocols import Tracker
from empo_core.random_streams import Stream, seed_of, stream
from empo_environments.single_env import episode_seed
from empo_latent.modelfile import load_model
from empo_learning.evaluation import evaluate_run

AGENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 70,
    "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}}],
    "policy_loss": "awr",
    "collection": {"seed_steps": 40, "seed_updates": 5},
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "replay": {"capacity": 50, "batch_size": 8},
    "learning": {"horizon": 2, "updates_per_step": 0.25},
    "imagination": {"candidates": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
    "compute": {"threads": 1},
    "reporting": {
        "log_interval": 20,
        "evaluation_interval": 45,
        "evaluation_episodes": 1,
        "checkpoint_interval": 30,
        "videos": 0,
    },
}


def config(directory: Path, **options: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "algorithm": {"name": "latent", "params": merged(AGENT, options)},
            "trackers": ["jsonl"],
            "runs": str(directory),
            "seed": 3,
        }
    )


def small(tmp_path: Path, **options: Any) -> Experiment:
    return Experiment.start(config(tmp_path, **options))


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Begins a run that is stopped after so many steps and updates; returns its directory."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Some shells ignore it.
    monkeypatch.setattr("empo_learning.loop.PROGRESS_S", -1.0)

    def begin(tmp_path: Path, done: int, **options: Any) -> Path:
        with pytest.raises(RunInterrupted) as caught:
            run(config(tmp_path, **options), watchers=[InterruptAt(done)])
        return caught.value.directory

    yield begin
    signal.signal(signal.SIGINT, before)


class InterruptAt(Tracker):
    """Stops a run after so many steps and updates together, as Ctrl-C does."""

    def __init__(self, done: int) -> None:
        self.left = done + 1  # Progress is shown once before anything is done.

    def progress(self, task: str, done: float, total: float) -> None:
        self.left -= task == "training"
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class Watching(Tracker):
    """Keeps what is shown as done of a run, and in all."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, float]] = []

    def progress(self, task: str, done: float, total: float) -> None:
        self.shown += [(done, total)] * (task == "training")


def test_progress_goes_on_within_a_burst_of_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empo_learning.loop.PROGRESS_S", -1.0)
    silent = {"reporting": {"evaluation_episodes": 0}}
    watcher, chosen = Watching(), config(tmp_path, collection={"seed_updates": 30}, **silent)
    Experiment.start(chosen, watchers=[watcher])
    done = [each for each, _ in watcher.shown]
    # Once at first, and after each of 70 steps and 37 updates; then nothing is left.
    assert len(done) >= 1 + 70 + 37
    assert all(later > sooner for sooner, later in itertools.pairwise(done[:108]))
    assert all(each <= total for each, total in watcher.shown)
    assert watcher.shown[-1][0] == watcher.shown[-1][1] > 0


@pytest.mark.slow
def test_progress_goes_on_where_random_steps_are_no_whole_steps_of_all_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empo_learning.loop.PROGRESS_S", -1.0)
    watcher = Watching()
    Experiment.start(config(tmp_path, num_envs=3), watchers=[watcher])  # 42 of 40 steps.
    assert all(0 < done <= total for done, total in watcher.shown[1:])


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A run with nothing special about it."""
    return small(tmp_path_factory.mktemp("usual"))


def lines_of(run: Experiment) -> list[dict[str, Any]]:
    text = (run.directory / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def outcome(result: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    summary = result.summary()
    for key in ("seconds", "steps_per_second"):
        summary.pop(key)
    return summary, {name: each.clone() for name, each in result.model.state_dict().items()}


RESUMED: dict[str, tuple[int, dict[str, Any]]] = {
    # 40 random steps, and some of the 20 updates that follow.
    "in a burst of updates": (48, {"collection": {"seed_updates": 20}}),
    # All of the updates, and half an episode in which the planner acts.
    "in the midst of plans": (74, {"collection": {"seed_updates": 20}}),
    "two policies, acting alone": (
        35,  # In 27 steps of either environment.
        {
            "policy_loss": {
                "name": "awr",
                "params": {
                    "normaliser": "running_scale",
                    "entropy": {"schedule": "linear", "end": 1e-4},
                },
            },
            "num_envs": 2,
            "auxiliary": {"discounts": [0.5]},
            "encoder": {"average_rate": 0.05},
            "optimistic_loss": "svg",
        },
    ),
    "svg": (60, {"policy_loss": "svg"}),
    "imitation": (
        60,
        {"policy_loss": "distill"},
    ),
    "TD-MPC2, in the midst of plans": (
        66,
        {
            "preset": "tdmpc2",
            "policy_loss": {"name": "svg", "params": {"entropy": {"jacobian": 0.0}}},
        },
    ),
    "critic of actions": (60, {"value": {"critic": "q"}, "collection": {"acting": "policy"}}),
}
"""Steps and updates before a break, never between episodes, which have 20 steps; and params."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "in the midst of plans" else pytest.mark.slow)
        for name in RESUMED
    ],
)
def test_a_resumed_run_goes_on_exactly(
    tmp_path: Path, interrupted: Callable[..., Path], name: str
) -> None:
    done, options = RESUMED[name]
    whole = small(tmp_path, **options)
    resumed = Experiment.resume(interrupted(tmp_path, done, **options))
    assert without_times(lines_of(resumed)) == without_times(lines_of(whole))
    expected, actual = outcome(whole.result), outcome(resumed.result)
    assert actual[0] == expected[0]
    for key, tensor in expected[1].items():
        assert torch.equal(actual[1][key], tensor), key


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if not key.startswith("time/") and key != "time"}
        for line in lines
    ]


def test_a_run_that_is_broken_off_between_an_update_and_its_line_logs_that_update(
    tmp_path: Path, interrupted: Callable[..., Path]
) -> None:
    options = {"learning": {"updates_per_step": 0.05}}  # One in 20 steps, as lines are.
    whole = without_times(lines_of(small(tmp_path, **options)))
    assert any("loss/policy" in line for line in whole)
    broken_off = interrupted(tmp_path, 64, **options)  # After 59 steps and 5 updates.
    assert without_times(lines_of(Experiment.resume(broken_off))) == whole


def test_a_run_without_its_memories_goes_on_with_a_warning(
    tmp_path: Path, interrupted: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    broken_off = interrupted(tmp_path, 60, reporting={"keep_replay": False})
    result = Experiment.resume(broken_off).result
    assert result.summary()["steps"] == 70
    assert "what was remembered is not in the checkpoint" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"learning": {"horizon": 21}}, r"21 steps \(learning.horizon\)"),
        (
            {"collection": {"seed_updates": 0}, "learning": {"updates_per_step": 0.01}},
            r"collection.seed_updates is 0",
        ),
    ],
)
def test_a_run_that_learns_nothing_ends_with_an_error_that_says_why(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    few = {"total_steps": 15, "collection": {"seed_steps": 5}}
    with pytest.raises(ConfigError, match=rf"total_steps: .* {reason}"):
        small(tmp_path, **merged(few, options))
    (directory,) = tmp_path.iterdir()
    status = json.loads((directory / "status.json").read_text())
    assert (status["status"], "total_steps: " in status["error"]) == ("failed", True)
    with pytest.raises(ConfigError, match="total_steps: nothing"):
        Experiment.resume(directory)


def test_episodes_that_are_cut_off_before_the_horizon_are_learned_from(tmp_path: Path) -> None:
    cut = [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 2}}]
    silent = {"evaluation_episodes": 0}
    run = small(tmp_path, tasks=cut, learning={"horizon": 3}, reporting=silent)
    assert run.result.summary()["updates"] > 5
    assert any("loss/consistency" in line for line in lines_of(run))


def test_a_run_leaves_a_model_that_acts_alike_and_curves(usual: Experiment) -> None:
    run = usual
    model, _, spec = load_model(run.directory / "results" / "model.safetensors")
    seen = torch.ones(1, spec.words)
    ours, theirs = run.result.model, model  # type: ignore[attr-defined]
    assert torch.equal(ours.policy(ours.encode(seen)).loc, theirs.policy(theirs.encode(seen)).loc)
    rows = (run.directory / "results" / "curve.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 2  # Two evaluations of two actors.
    lines = (run.directory / "metrics.jsonl").read_text()
    for key in ("eval/policy/return_mean", "loss/policy", "policy/planner_elite_mean"):
        assert f'"{key}"' in lines, key


def test_looking_changes_nothing(tmp_path: Path, usual: Experiment) -> None:
    watched = small(
        tmp_path,
        reporting={"evaluate": ["policy"], "log_interval": 7},
    )
    ours, theirs = outcome(usual.result)[1], outcome(watched.result)[1]
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_run_ends_where_it_is_solved(tmp_path: Path, pictures: None) -> None:
    run = small(
        tmp_path,
        reporting={"solved_at": -1e9, "solved_evaluations": 1, "videos": 1, "evaluate": ["policy"]},
    )
    assert run.result.summary()["steps"] == 45
    assert run.result.summary()["solved"]
    # Nobody knew before that it would be the last evaluation.
    assert len(list((run.directory / "results" / "videos").glob("*.gif"))) == 1
    files = evaluate_run(run.directory, episodes=1, gifs=2).files
    assert [path.suffix for path in files] == [".json", ".gif", ".gif"]
    assert all("policy_return" in path.name and path.exists() for path in files[1:])


def test_what_is_told_last_comes_after_the_last_update(tmp_path: Path) -> None:
    """Also where all updates are made at once, after the last step."""
    looks = {"evaluate": ["policy"], "evaluation_interval": 40}
    run = small(tmp_path, total_steps=40, reporting=looks)
    untrained = small(
        tmp_path, total_steps=40, reporting=looks, collection={"seed_updates": 1}
    ).result
    assert run.result.summary()["updates"] == 5
    assert untrained.summary()["updates"] == 1
    assert '"loss/total"' in (run.directory / "metrics.jsonl").read_text()
    told, before = (
        each.evaluations[-1].returns.mean_return
        for each in (run.result, untrained)  # type: ignore[attr-defined]
    )
    assert told != before


class Written(gymnasium.Env[Any, Any]):
    """Episodes of four steps at most; writes down return, length and success of each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    episodes: ClassVar[list[tuple[float, int, bool]]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 5))
        self.steps, self.total, self.succeeds = 0, 0.0, bool(self.np_random.integers(2))
        return self.observation_space.low, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += float(action[0])
        if self.steps == self.length:
            self.episodes.append((self.total, self.steps, self.succeeds))
        info = {"success": self.succeeds} if self.steps == 1 else {}
        return self.observation_space.low, float(action[0]), self.steps == self.length, False, info


@pytest.mark.slow
def test_the_newest_episodes_are_averaged(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    gymnasium.register("Written-v0", Written, max_episode_steps=5)
    request.addfinalizer(lambda: gymnasium.registry.pop("Written-v0"))
    Written.episodes.clear()
    run = small(
        tmp_path,
        tasks=["gymnasium/Written-v0"],
        total_steps=80,
        reward={"episodic": True},
        reporting={"evaluation_episodes": 0},
    )
    lines = (run.directory / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    newest = [line for line in logged if "episode/completed" in line][-1]
    assert newest["step"] == 80
    assert newest["episode/completed"] > 20
    episodes = Written.episodes[-20:]
    for place, name in enumerate(("return_mean", "length_mean", "success")):
        mean = sum(float(episode[place]) for episode in episodes) / 20
        assert newest[f"episode/{name}"] == pytest.approx(mean)


def test_several_tasks_share_one_model(tmp_path: Path) -> None:
    tasks = [
        {"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}},
        {"name": "gymnasium/MountainCarContinuous-v0", "params": {"max_episode_steps": 30}},
    ]
    seen = {"evaluate": ["policy"]}
    run = small(tmp_path, tasks=tasks, num_envs=2, reward={"episodic": True}, reporting=seen)
    found = run.result.summary()["evaluation"]["policy"]
    assert set(found) == {"Pendulum-v1", "MountainCarContinuous-v0"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "discrete actions": (
        {"tasks": ["gymnasium/CartPole-v1"]},
        "tasks.0: .*2 options",
    ),
    "one candidate for awr": (
        {"imagination": {"candidates": 1}},
        "imagination.candidates: 1, .*policy_loss .*2",
    ),
    "fewer candidates than should count": (
        {
            "policy_loss": {
                "name": "awr",
                "params": {"temperature": {"rule": "ess", "share": 0.1}},
            }
        },
        "imagination.candidates: 4, .*policy_loss .*11",
    ),
    "imitating nobody": (
        {"policy_loss": "distill", "collection": {"acting": "policy"}},
        "policy_loss: .*planner",
    ),
    "critics that nobody asks": (
        {"policy_loss": "distill", "imagination": {"value_heads": 1}},
        "imagination.value_heads: .*policy loss",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_before_training(tmp_path: Path, name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises(EmpoError, match=message):
        small(tmp_path, **options)


def test_what_is_no_device_is_refused_in_the_config(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="'abacus'"):
        config(tmp_path, compute={"device": "abacus"})


THIRD = episode_seed(seed_of(stream(3, Stream.EPISODES, 0, 0)), 0, 2)
"""Seed of the third episode of a run of seed 3."""


class Rare(gymnasium.Env[Any, Any]):
    """The third episode of a run of seed 3 terminates after 15 steps; nothing is paid."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 15 if seed == THIRD else -1
        return self.np_random.uniform(-1, 1, 3).astype("float32"), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        seen = self.np_random.uniform(-1, 1, 3).astype("float32")
        return seen, 0.0, self.left == 0, False, {}


@pytest.fixture
def rare() -> Iterator[list[str]]:
    gymnasium.register("Rare-v0", Rare, max_episode_steps=20)
    yield ["gymnasium/Rare-v0"]
    gymnasium.registry.pop("Rare-v0")


class Far(Rare):
    """As ``Rare``, in millimetres: positions, and a distance that is paid."""

    observation_space = gymnasium.spaces.Box(-1e7, 1e7, (3,))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, terminated, truncated, info = super().step(action)
        return seen * 1e7, -2e6, terminated, truncated, info


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Far-v0", "Rare-v0"])
def test_numbers_that_are_too_large_are_a_warning(
    tmp_path: Path, rare: list[str], name: str
) -> None:
    gymnasium.register("Far-v0", Far, max_episode_steps=20)
    try:
        silent = {"reporting": {"evaluation_episodes": 0}}
        run = small(tmp_path, tasks=[f"gymnasium/{name}"], **silent)
    finally:
        gymnasium.registry.pop("Far-v0")
    large = [text for text in run.warnings if "'latent' does not normalise" in text]
    expected = ["observation", "reward"] if name == "Far-v0" else []
    assert [text.split()[2] for text in large] == expected


@pytest.mark.parametrize("critic", ["v", pytest.param("q", marks=pytest.mark.slow)])
def test_the_first_episode_that_terminates_is_learned_from(
    tmp_path: Path, rare: list[str], critic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    run = small(
        tmp_path,
        tasks=rare,
        value={"critic": critic},
        reporting={"log_interval": 1, "evaluation_episodes": 0},
    )
    lines = lines_of(run)
    learned = [line["step"] for line in lines if "loss/termination" in line]
    assert 55 <= min(learned) <= 58  # There is an update every four steps.
    assert max(learned) == 70
    # The head begins at the share of steps that terminated, so values stay what they were.
    first = next(line["loss/termination"] for line in lines if "loss/termination" in line)
    assert 0 < first < 0.3
    told = [
        each for each in caplog.records if "learns from now on where episodes end" in each.message
    ]
    assert [each.levelname for each in told] == ["WARNING"]
    loaded = load_model(run.directory / "results" / "model.safetensors")
    assert loaded.model.terminates
    assert loaded.params.reward.episodic is True


def test_ends_that_come_before_anything_is_learned_are_no_warning(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    gymnasium.register("Short-v0", Short, max_episode_steps=20)
    request.addfinalizer(lambda: gymnasium.registry.pop("Short-v0"))
    brief = {"tasks": ["gymnasium/Short-v0"], "reporting": {"evaluation_episodes": 0}}
    results = [
        small(tmp_path, **brief, reward={"episodic": episodic}).result for episodic in (False, True)
    ]
    levels = [each.levelname for each in caplog.records if "where episodes end" in each.message]
    assert levels == ["INFO"]
    assert results[0].summary()["parameters"] == results[1].summary()["parameters"]


@pytest.mark.parametrize(
    "done",
    [
        pytest.param(57, marks=pytest.mark.slow, id="before it terminates"),
        pytest.param(70, id="after"),
    ],
)
def test_a_run_goes_on_exactly_with_what_it_learned_of_ends(
    tmp_path: Path, rare: list[str], done: int, interrupted: Callable[..., Path]
) -> None:
    options = {"tasks": rare, "reporting": {"evaluation_episodes": 0, "checkpoint_interval": 0}}
    broken_off = interrupted(tmp_path / "a", done, **options)
    resumed = Experiment.resume(broken_off)
    whole = small(tmp_path / "b", **options)
    found, expected = outcome(resumed.result)[1], outcome(whole.result)[1]
    assert found.keys() == expected.keys()
    assert any("termination" in name for name in found)
    assert all(torch.equal(found[name], expected[name]) for name in found)


class Short(gymnasium.Env[Any, Any]):
    """An environment whose episodes terminate after ten steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 10
        return self.observation_space.low, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.observation_space.low, 0.0, self.left == 0, False, {}


OPTIONS: dict[str, dict[str, Any]] = {
    "num_envs": {"num_envs": 2},
    "collection.seed_steps": {"collection": {"seed_steps": 50}},
    "collection.seed_updates": {"collection": {"seed_updates": 6}},
    "replay.capacity": {"replay": {"capacity": 40}},
    "collection.acting": {"collection": {"acting": "policy"}},
    "replay.batch_size": {"replay": {"batch_size": 9}},
    "learning.horizon": {"learning": {"horizon": 3}},
    "learning.updates_per_step": {"learning": {"updates_per_step": 0.5}},
    "gamma": {"gamma": 0.5},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_the_run(tmp_path: Path, usual: Experiment, name: str) -> None:
    silent = {"reporting": {"evaluation_episodes": 0}}
    ours = outcome(usual.result)[1]
    theirs = outcome(small(tmp_path, **OPTIONS[name], **silent).result)[1]
    assert any(not torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.slow
def test_reports_are_as_long_and_as_often_as_asked_for(tmp_path: Path, pictures: None) -> None:
    run = small(
        tmp_path,
        reporting={"videos": 1, "evaluation_episodes": 2, "evaluate": ["policy"]},
        planner={"samples": 4, "elites": 2},
    )
    found = run.result.summary()["evaluation"]
    assert list(found) == ["policy"]
    assert found["policy"]["Pendulum-v1"]["episodes"] == 2
    assert len(list((run.directory / "results" / "videos").glob("*.gif"))) == 1
    assert len(list((run.directory / "checkpoints").iterdir())) in (2, 3)  # Two newest, one best.
    only = small(tmp_path, reporting={"keep_checkpoints": 1, "evaluation_episodes": 0})
    assert len(list((only.directory / "checkpoints").iterdir())) == 1
    never = small(tmp_path, reporting={"checkpoint_interval": 0, "evaluation_interval": 0})
    assert len(list((never.directory / "checkpoints").iterdir())) == 1
    assert len({row.steps for row in never.result.evaluations}) == 1  # type: ignore[attr-defined]
