"""What a config's mistakes suggest: the key that was meant, and plain words on syntax."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core import run
from empo_core.cli.app import app
from empo_core.config.files import load_config, parse_yaml
from empo_core.errors import ConfigError
from empo_testing.processor_time import timed

EMPO = str(Path(sys.executable).with_name("empo"))
CONFIG = """\
world_model: multigrid/trivial
algorithm: {name: exact, params: {preset: paper, theory: {beta_r: 50.0}}}
"""


def first_line(tmp_path: Path, text: str, *overrides: str) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, list(overrides))
    return str(caught.value).splitlines()[0].replace(str(path), "run.yaml")


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("algorithm.params.betar=5", "algorithm.params.theory.beta_r"),
        ("beta_r=5", "algorithm.params.theory.beta_r"),
        ("betar=5", "algorithm.params.theory.beta_r"),
        ("theory.beta_r=5", "algorithm.params.theory.beta_r"),
        ("algorithm.params.theory.betar=5", "beta_r"),
        ("algorithm.params.presett=none", "preset"),
        ("world_model.file=x.yaml", "world_model.params.file"),
        ("seeed=1", "seed"),
    ],
)
def test_an_override_that_names_no_key_finds_the_path_of_the_one_that_was_meant(
    tmp_path: Path, override: str, suggestion: str
) -> None:
    line = first_line(tmp_path, CONFIG, override)
    assert line.startswith("command line: ")
    assert line.endswith(f"; did you mean {suggestion!r}?")


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("algorithm.params.n_steps=128", "experience.bptt_horizon"),
        ("algorithm.params.optimiser.learning_rate=0.1", "optimiser.lr"),
        ("algorithm.params.update.clip_range=0.1", "losses.0.loss.params.clip"),
        ("algorithm.params.total_timesteps=1", "total_steps"),
        ("n_steps=128", "experience.bptt_horizon"),
        ("optimiser.learning_rate=0.1", "optimiser.lr"),
    ],
)
def test_a_key_of_another_library_is_answered_with_ours(
    tmp_path: Path, override: str, suggestion: str
) -> None:
    line = first_line(tmp_path, "algorithm: {name: rollout, params: {total_steps: 1}}", override)
    assert line.endswith(f"did you mean 'algorithm.params.{suggestion}'?")


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("algorithm.params.theory.beta=5", "'beta_h'"),
        ("algorithm.params.environment=gym/CartPole-v1", "'gymnasium'"),
        ("algorithm.params.environment=gymnasium/my_env:Reach-v0", "--import my_env"),
        ("algorithm.params.optimiser.lr_schedule=brand-new", "empo new-plugin"),
        ("algorithm.params.environment=pettingzoo/simple_tag_v3", "FAMILY/NAME"),
        ("algorithm.params.environment=dmc/cartpole", "DOMAIN-TASK"),
        ("algorithm.params.environment=gymnasium/Cart Pole", "Name-v0"),
        ("algorithm.params.environment={name: world, params: {reward: {kind: x}}}", "kind: 'goal'"),
        ("algorithm.params.environment={name: world, params: {reward: {}}}", "kind: 'goal'"),
        ("callbacks=[jsonl]", "tracker"),
        ("trackers=[plateau]", "callback"),
    ],
)
def test_a_slip_is_answered_with_what_to_write(tmp_path: Path, override: str, hint: str) -> None:
    text = "algorithm: {name: rollout, params: {total_steps: 1}}"
    assert hint in first_line(tmp_path, CONFIG if "theory" in override else text, override)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("multigrid/trivial", "world_model='multigrid/trivial'"),
        ("free_the_human", "'multigrid/free_the_human'"),
        ("rollot", "'rollout'"),
    ],
)
def test_a_text_that_is_no_file_is_answered_with_what_to_write_in_python(
    name: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(hint)):
        run(name, total_steps=1)


@pytest.mark.parametrize("name", ["multigrid/mine.yaml", "world/mine.yaml"])
def test_a_missing_file_in_a_folder_is_not_taken_for_a_component(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(name)
    for message in (str(caught.value), CliRunner().invoke(app, ["run", name]).stderr):
        assert "mine.yaml" in message
        assert "world_model=" not in message
        assert "algorithm.params.environment" not in message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train"], "empo run CONFIG"),
        (["run", "--import", "package", "run.yaml"], "empo --import PACKAGE run"),
        (["describe", "exact"], "human_prior, algorithm"),
        (["describe", "nothing-like-it"], "empo plugins"),
        (["evaluate", "not/there"], "does not exist"),
        (["run", "gymnasium/CartPole-v1"], "under algorithm.params.environment"),
        (["new-plugin", "x", "--kind", "tracker", "--directory", __file__], "is no folder"),
    ],
)
def test_a_command_that_cannot_be_is_answered_with_one_that_can(
    arguments: list[str], hint: str
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert hint in " ".join(done.stderr.split())


def test_a_name_of_one_component_needs_no_kind() -> None:
    alone = CliRunner().invoke(app, ["describe", "rollout"])
    assert alone.output == CliRunner().invoke(app, ["describe", "algorithm", "rollout"]).output
    assert alone.exit_code == 0


def test_a_whole_number_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("algorithm: {name: rollout, params: {total_steps: 1}}")
    params = load_config(path, ["algorithm.params.total_steps=1e6"]).algorithm.params
    assert repr(params.total_steps) == "1000000"  # type: ignore[attr-defined]
    line = first_line(tmp_path, path.read_text(), "algorithm.params.total_steps=1.5e0")
    assert line.startswith("command line: algorithm.params.total_steps: ")


def test_a_class_as_a_component_is_answered_with_plugins() -> None:
    with pytest.raises(ConfigError, match=r"policy\.network: Path .*--kind policy_network"):
        run("rollout", total_steps=1, policy={"network": Path})


@pytest.mark.parametrize("override", ["algorithm.zzz=5", "trackers.0.evry=1"])
def test_a_word_like_no_key_gets_no_suggestion(tmp_path: Path, override: str) -> None:
    assert "did you mean" not in first_line(tmp_path, CONFIG + "trackers: [jsonl]\n", override)


def test_a_bare_name_may_be_refined_by_an_override_of_a_param(tmp_path: Path) -> None:
    line = first_line(tmp_path, "algorithm: exact\n", "algorithm.beta_r=5")
    assert line.endswith("did you mean 'algorithm.params.theory.beta_r'?")


def test_a_key_that_is_given_already_is_suggested_all_the_same(tmp_path: Path) -> None:
    text = CONFIG.replace("beta_r: 50.0", "beta_r: 50.0, betar: 3")
    line = first_line(tmp_path, text)
    column = text.splitlines()[1].index("betar") + 1
    assert line.startswith(f"run.yaml:2:{column}: algorithm.params.theory.betar: unknown key")
    assert line.endswith("did you mean 'beta_r'?")


def test_many_unknown_keys_do_not_cost_many_searches(tmp_path: Path) -> None:
    text = CONFIG + "".join(f"beta_r{number}: 1\n" for number in range(2_000))
    (tmp_path / "run.yaml").write_text(text)

    def answer() -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / "run.yaml")
        return str(caught.value)

    message, seconds = timed(answer, limit=3)
    assert message.count("did you mean") == 10
    assert seconds < 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a:\n\tb: 1", "f:2:1: a tab stands here; indent with spaces"),
        (
            "a: 1\n   b: 2",
            "f:2:5: a ': ' cannot stand here; lines that belong together begin in the",
        ),
        ("a:\n    b: 1\n  c: 2", "f:3:3: this line fits to none of those above"),
        ("a: b: 1", "f:1:5: a ': ' cannot stand here"),
        ("a: 1\nb\nc: 1", "f:2:1: there is no ': ' after this key"),
        ("a: {b: 1\nc: 1", "f:2:2: what opens in line 1 lacks its bracket"),
        ("a: [1, 2\nc: 1", "f:2:2: what opens in line 1 lacks its bracket"),
        ('a: "b\nc: 1', "f:1:4: the quotation mark that opens here is never closed"),
        ("a: @b", "f:1:4: a value cannot begin with '@'; put quotes around it"),
        ("a: &x 1", "f:1:4: anchor '&x' is not allowed: every value stands where it is used"),
        ("a: *x", "f:1:4: alias '*x' is not allowed: every value stands where it is used"),
        ("a: !x 1", "f:1:4: tag '!x' is not allowed: a file is plain data"),
    ],
)
def test_syntax_is_explained_without_the_words_of_a_parser(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, name="f")
    said = str(caught.value).splitlines()[0]
    assert said.startswith(line)
    for word in ("token", "block mapping", "scalar", "scanning", "parsing", "expected"):
        assert word not in said


TABLE = """\
{name: empty, horizon: 2, initial: here, states: [here, there], agents: AGENTS, goals: GOALS,
 transitions: [{state: here, actions: [go], to: there}, {state: here, to: here},
  {state: there, to: there}]}
"""
HAL = "{name: hal, role: human, actions: [go, stay]}"
BOT = "{name: bot, role: robot, actions: [go, stay]}"
PHASE2 = [
    "algorithm.params.human_prior=uniform",
    "algorithm.params.values={q_r: lookup, v_h_e: lookup}",
    "algorithm.params.total_steps=9",
]


@pytest.mark.parametrize(
    ("agents", "goals", "arguments", "lacks"),
    [
        (BOT, "{}", ["algorithm=exact"], "has no human (bot: robot)"),
        (BOT, "{}", ["algorithm=phase2", *PHASE2], "has no human (bot: robot)"),
        (HAL, "{}", ["algorithm=exact"], "hal (agent 0) of 'empty' has no goals"),
        (
            HAL,
            "{hal: [{name: there, states: there}]}",
            ["algorithm=phase2", *PHASE2],
            "has no robot",
        ),
    ],
)
def test_a_world_that_lacks_what_an_algorithm_needs_is_refused_and_leaves_nothing(
    tmp_path: Path, agents: str, goals: str, arguments: list[str], lacks: str
) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(TABLE.replace("AGENTS", f"[{agents}]").replace("GOALS", goals))
    runs = tmp_path / "runs"
    done = CliRunner().invoke(app, ["run", str(path), *arguments, f"runs={runs}"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert lacks in done.stderr
    assert "add" in done.stderr.lower() or "give an agent" in done.stderr.lower()
    assert not list(runs.glob("*"))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (TABLE.replace("AGENTS", f"[{HAL}]").replace("GOALS", "{}"), "1:65: agents: has no robot"),
        (TABLE.replace("AGENTS", f"[{BOT}]").replace("GOALS", "{}"), "1:65: agents: has no human"),
        ("map: Hu 1 .\n", "1:1: map: has no robot; write Ro where one starts"),
        ("map: |\n  Ro 1\n", "1:1: map: has no human; write Hu where one starts"),
        ("max_steps: 3\nmap: |\n  We Ae\n", "2:1: map: has no human; write Ay"),
    ],
)
def test_a_world_without_a_human_or_a_robot_is_noticed_with_its_place_as_it_is_read(
    tmp_path: Path, text: str, position: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(text)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert f"{path}:{position}" in caplog.text + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", pytest.param("check", marks=pytest.mark.slow)])
def test_a_warning_about_a_world_is_called_one_and_given_once(tmp_path: Path, command: str) -> None:
    text = TABLE.replace("AGENTS", f"[{BOT}]").replace("GOALS", "{}")
    (tmp_path / "world.yaml").write_text(text)
    arguments = [EMPO, command, "world.yaml", *["algorithm=exact"][: command == "run"]]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    first, *more = done.stderr.splitlines()
    assert first.startswith("WARNING: ")
    assert "world.yaml:1:65: agents: " in first
    # Why it is refused, and where to read about it.
    assert len(more) == (2 if command == "run" else 0)


@pytest.mark.slow  # Kernels may have to be compiled first.
def test_empo_alone_suggests_a_first_command_that_works(tmp_path: Path) -> None:
    said = subprocess.run([EMPO], capture_output=True, text=True, check=False).stdout
    line = next(line for line in said.splitlines() if "Begin with: " in line)
    words = line.partition("empo ")[2].split()
    subprocess.run([EMPO, *words, "-q"], cwd=tmp_path, check=True, capture_output=True)
