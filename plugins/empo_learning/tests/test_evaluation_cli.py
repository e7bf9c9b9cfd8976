"""``empo evaluate``, on a plugin that is installed as plugins are."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import installed

PLUGIN = """
from typing import Literal
from pydantic import Field
from empo_core import Component, Config, hookimpl

class DoorParams(Config):
    drawn: bool = True
    horizon: int | None = 3

class PlayParams(Config):
    left: Literal["policies", "nothing", "nonsense"] = "policies"

@hookimpl
def empo_components():
    yield Component(kind="world_model", name="door", params=DoorParams,
                    target="door_parts:door", api=1)
    for name in ("Playful", "Runner", "Filmed", "Serious"):
        yield Component(kind="algorithm", name=name.lower(), params=PlayParams,
                        target=f"door_parts:{name}", api=1)
"""

PARTS = """
import numpy as np
import torch
from empo_core.errors import StorageError
from empo_pictures.pictures import write_gif
from empo_core.protocols import Algorithm, EpisodePlayer, PlayedEpisodes
from empo_testing.worlds import TinyWorld

class Drawn(TinyWorld):
    def render(self, state, overlay=None):
        return np.full((8, 8, 3), 60 * int(state.sum()), np.uint8)

def door(params):
    return (Drawn if params.drawn else TinyWorld)(params.horizon)

class EvenRobots:
    def __init__(self, world, nonsense):
        self.world, self.nonsense = world, nonsense
    def policy(self, states, steps_left):
        able = self.world.available(states)[:, 1, :2].double()
        return able / able.sum(1, keepdim=True) + self.nonsense

class EvenHumans:
    def __init__(self, world):
        self.world = world
    def policy(self, states, steps_left):
        owners = torch.tensor([goal.human for goal in self.world.spec.goals])
        able = self.world.available(states)[:, owners].double()
        return able / able.sum(-1, keepdim=True)

class Done:
    def summary(self):
        return {}
    def report(self):
        return "done"
    def save(self, directory):
        pass

class Serious(Algorithm):
    def __init__(self, params):
        self.params = params
    def run(self, context):
        return Done()
    def check(self, world):
        return {}

class Playful(Serious):
    def restore(self, context, checkpoint="newest"):
        print("noise on standard output")
        assert "playful-0" in context.directory.name and context.seed == 0
        if self.params.left == "nothing":
            raise StorageError(f"{context.directory}: left nothing; go on with: empo resume")
        if checkpoint == "best":
            raise StorageError("no checkpoint with an evaluation")
        robots = EvenRobots(context.world, self.params.left == "nonsense")
        return robots, EvenHumans(context.world)

class Runner(Serious):
    def restore(self, context, checkpoint="newest"):
        return Player(checkpoint)

class Filmed(Serious):
    def restore(self, context, checkpoint="newest"):
        return Camera(checkpoint)

class Player(EpisodePlayer):
    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
    def play(self, *, episodes, seed, max_steps=None):
        if self.checkpoint == "best":
            return []
        draw = np.random.default_rng(seed)
        return [
            PlayedEpisodes(group={"task": "track", "actor": name},
                           returns=draw.normal(5, 1, episodes),
                           lengths=np.full(episodes, max_steps or 7), ends={"over": episodes})
            for name in ("planner", "policy")
        ]

class Camera(Player):
    films = True
    unasked_films = 1
    def film(self, directory, *, episodes, seed, max_steps=None):
        shots = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 90)]
        return [write_gif(shots, directory / f"track_{n}.gif", 5) for n in range(episodes)]
"""

Call = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Calls the command line in this process, with the plugin installed."""
    info = tmp_path / "site" / "empo_doors-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: empo-doors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[empo]\nempo-doors = door_plugin\n")
    (info.parent / "door_plugin.py").write_text(PLUGIN)
    (info.parent / "door_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    installed.cache_clear()
    yield lambda *arguments: CliRunner().invoke(app, list(arguments))
    installed.cache_clear()
    for name in ("door_plugin", "door_parts"):
        sys.modules.pop(name, None)


@pytest.fixture
def run_dir(cli: Call, tmp_path: Path) -> Callable[..., str]:
    """Makes a run and says where it is."""

    def run(*overrides: str, world: str = "world_model: door\n", algorithm: str = "playful") -> str:
        (tmp_path / "run.yaml").write_text(f"{world}algorithm: {algorithm}\nruns: runs\n")
        done = cli("run", "run.yaml", "--quiet", *overrides)
        assert done.exit_code == 0, done.stderr
        return done.stdout.splitlines()[-1]

    return run


def test_evaluate_prints_a_table_and_writes_json_and_animations(
    cli: Call, run_dir: Callable[..., str]
) -> None:
    directory = Path(run_dir())
    done = cli("evaluate", str(directory), "--episodes", "50")
    assert done.exit_code == 0, done.stderr
    assert "playful in door: 50 episodes per goal, seed 0" in done.stdout
    assert re.search(r"walker +open +1 +0\.\d{4} ± 0\.0\d{3} +[123]\.\d\d ± ", done.stdout)
    expected = ["evaluation.json", *(f"episode_{i}.gif" for i in range(3))]
    listed = [Path(line) for line in done.stdout.splitlines()[-4:]]
    assert listed == [directory / "evaluation" / name for name in expected]
    assert {path.name for path in (directory / "evaluation").iterdir()} == set(expected)


def test_json_is_what_the_file_says(cli: Call, run_dir: Callable[..., str]) -> None:
    directory = run_dir()
    done = cli("evaluate", directory, "--episodes", "40", "--gifs", "1", "--seed", "7", "--json")
    summary = json.loads(done.stdout)
    assert "noise on standard output" in done.stderr
    written = json.loads((Path(directory) / "evaluation" / "evaluation.json").read_text())
    assert summary == written
    assert summary["run_dir"] == directory
    assert (summary["algorithm"], summary["world"]) == ("playful", "door")
    assert (summary["episodes"], summary["seed"]) == (40, 7)
    assert [goal["name"] for goal in summary["goals"]] == ["open", "inside", "inside"]
    assert all(0 <= goal["reached"] <= 1 for goal in summary["goals"])
    assert summary["files"] == ["evaluation/evaluation.json", "evaluation/episode_0.gif"]


def test_the_same_seed_gives_the_same_files(
    cli: Call, run_dir: Callable[..., str], tmp_path: Path
) -> None:
    directory = Path(run_dir())
    contents = []
    for _ in range(2):
        assert cli("evaluate", str(directory), "--episodes", "30", "--seed", "1").exit_code == 0
        files = sorted((directory / "evaluation").iterdir())
        contents.append({path.name: path.read_bytes() for path in files})
    assert contents[0] == contents[1]


def test_a_second_evaluation_replaces_the_first(cli: Call, run_dir: Callable[..., str]) -> None:
    directory = run_dir()
    cli("evaluate", directory, "--episodes", "5", "--gifs", "2")
    cli("evaluate", directory, "--episodes", "5", "--gifs", "0")
    assert [path.name for path in (Path(directory) / "evaluation").iterdir()] == ["evaluation.json"]


def test_a_world_that_cannot_draw_itself_has_no_animations(
    cli: Call, run_dir: Callable[..., str]
) -> None:
    directory = run_dir("world_model.params.drawn=false")
    assert cli("evaluate", directory, "--episodes", "5").exit_code == 0
    done = cli("evaluate", directory, "--gifs", "2")
    assert done.exit_code == 2
    assert "--gifs 0" in done.stderr


def test_episodes_without_an_end_are_cut(cli: Call, run_dir: Callable[..., str]) -> None:
    directory = run_dir("world_model.params.horizon=null")
    done = cli("evaluate", directory, "--episodes", "50", "--max-steps", "1")
    assert re.search(r"\d+\.\d% of them were cut before they had ended", done.stdout)


def test_what_cannot_be_evaluated_is_a_message(
    cli: Call, run_dir: Callable[..., str], tmp_path: Path
) -> None:
    def refused(directory: str, code: int, message: str) -> None:
        done = cli("evaluate", directory, "--episodes", "5")
        assert done.exit_code == code
        assert re.search(message, done.stderr), done.stderr
        assert "Traceback" not in done.stderr
        assert not (Path(directory) / "evaluation").exists()

    refused("nowhere", 2, "^nowhere: does not exist")
    refused(run_dir(algorithm="serious"), 2, "'serious' cannot be played: its method 'restore'")
    refused(run_dir("algorithm.params.left=nothing"), 3, "left nothing; go on with: empo resume")
    refused(run_dir("algorithm.params.left=nonsense"), 3, "robots' policy is no probability")
    refused(run_dir(world=""), 2, "this run has no world to play in")
    damaged = run_dir()
    (Path(damaged) / "config.yaml").write_text("algorithm: {")
    refused(damaged, 2, r"config\.yaml:1:")
    shutil.rmtree(damaged)


def test_a_run_in_environments_is_asked_for_its_returns(
    cli: Call, run_dir: Callable[..., str]
) -> None:
    directory = run_dir(world="", algorithm="runner")
    done = cli("evaluate", directory, "--episodes", "400", "--seed", "3", "--max-steps", "9")
    assert done.exit_code == 0, done.stderr
    assert "runner in runner: 400 episodes each, seed 3" in done.stdout
    row = r"track +planner +(\d\.\d+) ± 0\.05 +(\d\.\d+) to (\d\.\d+) .* 9.00 ± 0.00 +over 100%"
    shown = re.search(row, done.stdout)
    assert shown is not None, done.stdout
    assert done.stdout.splitlines()[-1] == f"{directory}/evaluation/evaluation.json"
    found = json.loads((Path(directory) / "evaluation" / "evaluation.json").read_text())
    again = cli("evaluate", directory, "--episodes", "400", "--seed", "3", "--json")
    assert json.loads(again.stdout)["groups"][1]["mean_length"] == 7
    assert (found["algorithm"], found["environment"], found["seed"]) == ("runner", "runner", 3)
    first, second = found["groups"]
    assert (first["group"], second["group"]["actor"]) == (
        {"task": "track", "actor": "planner"}, "policy",
    )  # fmt: skip
    drawn = np.random.default_rng(3).normal(5, 1, 400)
    error = drawn.std(ddof=1) / 20
    assert first["mean_return"] == pytest.approx(drawn.mean())
    assert first["standard_error"] == pytest.approx(error)
    assert first["interval"] == pytest.approx(
        [drawn.mean() - 1.965927 * error, drawn.mean() + 1.965927 * error]
    )
    assert first["ends"] == {"over": 1.0}
    assert float(shown[1]) == pytest.approx(first["mean_return"], abs=1e-4)


def test_a_player_that_can_film_does(cli: Call, run_dir: Callable[..., str]) -> None:
    directory = run_dir(world="", algorithm="filmed")
    folder = Path(directory) / "evaluation"
    for option, number in (((), 1), (("--gifs", "2"), 2), (("--gifs", "0"), 0), (("--film",), 1)):
        done = cli("evaluate", directory, "--episodes", "3", *option)
        assert done.exit_code == 0, done.stderr
        films = [folder / f"track_{n}.gif" for n in range(number)]
        assert sorted(folder.glob("*.gif")) == films
        assert [str(path) in done.stdout for path in films] == [True] * number


def test_options_that_a_run_cannot_follow_are_messages(
    cli: Call, run_dir: Callable[..., str]
) -> None:
    directory = run_dir(world="", algorithm="runner")
    filmed = cli("evaluate", directory, "--gifs", "2")
    assert (filmed.exit_code, "--gifs" in filmed.stderr) == (2, True)
    idle = cli("evaluate", directory, "--best")
    assert (idle.exit_code, "agent acted" in idle.stderr) == (3, True)
    best = cli("evaluate", run_dir(), "--best")
    assert (best.exit_code, "an evaluation" in best.stderr) == (3, True)


def test_a_file_lists_where_episodes_begin(
    cli: Call, run_dir: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "starts.jsonl"
    file.write_text(
        '{"state": [1, 0], "goal": 1, "time": 2}\n\n{"state": [0, 0], "goal": "open"}\n'
    )
    done = cli("evaluate", run_dir(), "--episodes", "40", "--json", "--starts", str(file))
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["starts"] == str(file)
    assert [goal["goal"] for goal in summary["goals"]] == [0, 1]
    # One step is left, and the walker goes in by chance.
    assert summary["goals"][1]["mean_time"] == 1
    assert 1 < summary["mean_length"] < 2.5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"state": [0]}', ":2: state has 1 words; rows of 'door' have 2"),
        ('{"state": [0, 70000]}', ":2: state [0, 70000]: words go from -32768 to 32767"),
        ('{"state": [1, 1]}', ":2: the state is terminal"),
        ('{"state": [7, 7]}', ":2: [7, 7] is no state"),
        (
            '{"state": [0, 0], "time": 3}',
            ":2: time is 3, but 'door' ends after that",
        ),
        (
            '{"state": [0, 0], "goal": "opem"}',
            ":2: 'door' has no goal 'opem'. Did you mean",
        ),
        ('{"state": [0, 0], "goal": "inside"}', ":2: goals [1, 2] are all called 'inside'"),
        ('{"state": [0, 0], "goal": 3}', ":2: there is no goal 3: 'door' has 3"),
        ('{"state": [0, true]}', ":2: state.1: Input should be a valid integer; write e.g. {"),
        ('{"state": [0, 0], "when": 1}', ":2: when: Extra inputs are not permitted"),
        ('{"state": [0, 0]', ":2: Invalid JSON"),
        ("x" * 2**22, ": is larger than 4,194,304 bytes"),
        ("\xff", ": cannot be read: 'utf-8' codec"),
    ],
)
def test_a_line_that_is_no_start_is_named(
    cli: Call, run_dir: Callable[..., str], tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "starts.jsonl"
    file.write_bytes(b'{"state": [0, 0]}\n' + line.encode("latin-1"))
    directory = run_dir()
    done = cli("evaluate", directory, "--starts", str(file))
    assert done.exit_code == 2
    assert f"{file}{message}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not (Path(directory) / "evaluation").exists()


def test_starts_need_a_file_with_starts_and_a_world(
    cli: Call, run_dir: Callable[..., str], tmp_path: Path
) -> None:
    directory, file = run_dir(), tmp_path / "starts.jsonl"
    missing = cli("evaluate", directory, "--starts", str(file))
    assert (missing.exit_code, "read: No such file" in missing.stderr) == (2, True)
    file.write_text("\n\n")
    empty = cli("evaluate", directory, "--starts", str(file))
    assert (empty.exit_code, "no starts" in empty.stderr) == (2, True)
    other = cli("evaluate", run_dir(world="", algorithm="runner"), "--starts", str(file))
    assert (other.exit_code, "--starts" in other.stderr) == (2, True)


@pytest.mark.parametrize(
    "option", [("--episodes", "0"), ("--gifs", "-1"), ("--seed", "-1"), ("--max-steps", "0")]
)
def test_options_out_of_range_are_refused(
    cli: Call, run_dir: Callable[..., str], option: tuple[str, str]
) -> None:
    assert cli("evaluate", run_dir(), *option).exit_code == 2
