"""``empo certify`` on runs of every algorithm that is played in a world, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_bounds.certificate import (
    ARRAYS,
    FILE,
    FOLDER,
    FORMAT,
    PARAMETERS,
    VERSION,
    manifest_digest,
    policies_digest,
)
from empo_bounds.saved_question import saved_question, saved_solution
from empo_core.cli.app import app
from empo_core.config import RunConfig, installed, library_file
from empo_core.experiment import Experiment
from empo_core.runs.atomic import read_json, sealed_json, write_file
from empo_worlds.arrays import load_arrays, save_arrays

THEORY = {"beta_h": 5, "gamma_h": 0.95, "gamma_r": 0.95, "beta_r": 10, "zeta": 2, "eta": 1.1}
THEORY |= {"x_agg": "sum", "u_agg": "sum"}
TRIVIAL = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
EXACT = {"name": "exact", "params": {"theory": THEORY, "rollouts": 0, "inspector": False}}
RUNS: dict[str, dict[str, Any]] = {
    "blocks": {"world_model": {"name": "blocks", "params": {"max_steps": 8}}, "algorithm": EXACT},
    "exact": {"world_model": TRIVIAL, "algorithm": EXACT},
    "phase2": {
        "world_model": TRIVIAL,
        "algorithm": {
            "name": "phase2",
            "params": {
                "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
                "values": {"q_r": "lookup", "v_h_e": "lookup"},
                "theory": {"gamma_h": 0.9, "zeta": 2.0},
                "total_steps": 20,
                "num_envs": 8,
                "warm_up": {"v_h_e": 4, "q_r": 4, "ramp": 4},
                "replay": {"batch_size": 16},
                "collector": {"name": "sync", "params": {"min_env_steps": 20}},
            },
        },
    },
    "rollout": {
        "world_model": TRIVIAL,
        "algorithm": {
            "name": "rollout",
            "params": {
                "total_steps": 256,
                "num_envs": 4,
                "environment": {
                    "name": "world",
                    "params": {"reward": {"kind": "power", "algorithm": EXACT}},
                },
                "vectorisation": {"backend": "serial"},
                "experience": {"bptt_horizon": 8},
                "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
                "update": {"minibatch_size": 32},
                "compute": {"threads": 1},
                "reporting": {"evaluation_episodes": 0},
            },
        },
    },
    "cartpole": {
        "algorithm": {
            "name": "rollout",
            "params": {
                "total_steps": 64,
                "num_envs": 2,
                "environment": "gymnasium/CartPole-v1",
                "vectorisation": {"backend": "serial"},
                "experience": {"bptt_horizon": 8},
                "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
                "update": {"minibatch_size": 16},
                "compute": {"threads": 1},
                "reporting": {"evaluation_episodes": 0},
            },
        }
    },
}


class Runs:
    """Directories of finished runs by name, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._known = folder, dict[str, Path]()

    def __getitem__(self, name: str) -> Path:
        if name not in self._known:
            config = {**RUNS[name], "runs": str(self._folder), "trackers": []}
            self._known[name] = Experiment.start(RunConfig.model_validate(config)).directory
        return self._known[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copied(runs: Runs, tmp_path: Path) -> Path:
    """A copy of a small exact run."""
    return Path(shutil.copytree(runs["exact"], tmp_path / "exact"))


@pytest.fixture(scope="module")
def made(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small exact run that was certified."""
    path = Path(shutil.copytree(runs["exact"], tmp_path_factory.mktemp("made") / "exact"))
    certify(path, "--eps", 0.02, *ASSUMED)
    assert certify(path, "--verify")["confirmed"]
    return path


@pytest.fixture
def certified(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "exact"))


def certify(*options: object, code: int = 0) -> dict[str, Any]:
    """The certificate that the command prints as JSON; or its message where it is to fail."""
    done = CliRunner().invoke(app, ["certify", *map(str, options), "--json", "--quiet"])
    assert done.exit_code == code, done.stderr
    if code:
        assert "Traceback" not in done.stderr
        return {"message": done.stderr.strip()}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


ASSUMED = ("--min-power", 1, "--no-early-end")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("eps", "pairs", "v_r", "widest"),
    [
        (1e-3, 1037, (-2.292, -0.706), 0.434),
        pytest.param(1e-5, 6299, (-1.257, -1.242), 0.006, marks=pytest.mark.slow),
    ],
)
def test_the_table_of_the_blocks_world_is_reproduced(
    runs: Runs, eps: float, pairs: int, v_r: tuple[float, float], widest: float
) -> None:
    found = certify(runs["blocks"], "--eps", eps, *ASSUMED)
    last = found["rounds"][-1]
    assert last["pairs"] == pairs
    assert found["start"]["v_r"] == pytest.approx(v_r, abs=0.002)
    assert last["widest_v_e"] == pytest.approx(widest, abs=0.002)
    assert found["start"]["v_r"][0] <= -1.2473593449 <= found["start"]["v_r"][1]
    assert found["claims"]["min_power"] == 1
    widths = [each["widest_v_e"] for each in found["rounds"]]
    assert widths == sorted(widths, reverse=True)
    folder = runs["blocks"] / FOLDER
    names = {FILE, ARRAYS, "width.png", "width.svg", "width.pdf"}
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.parametrize(
    "name",
    ["exact", *(pytest.param(name, marks=pytest.mark.slow) for name in ("phase2", "rollout"))],
)
def test_runs_of_every_algorithm_are_certified_and_confirmed(runs: Runs, name: str) -> None:
    found = certify(runs[name], "--eps", 0)
    assert found["about"]["algorithm"] == name
    assert set(found["theory"]) == PARAMETERS | {"accrual"}  # Nothing that values ignore.
    assert max(high - low for low, high in _intervals(found)) < 1e-9
    low, high = found["start"]["v_r"]
    assert high - low <= 1e-9 * abs(low)
    confirmed = certify(runs[name], "--verify")
    assert confirmed["confirmed"]
    assert confirmed["pairs"] == found["rounds"][-1]["pairs"]
    if name == "exact":
        solved = json.loads((runs[name] / "results/summary.json").read_text())["root"]
        assert found["start"]["v_r"] == pytest.approx([solved["V_r"]] * 2, rel=1e-10)
    if name == "rollout":  # Its theory is that of its reward.
        assert found["theory"]["gamma_r"] == 0.95


def _intervals(certificate: dict[str, Any]) -> list[list[float]]:
    return [goal["v_e"] for human in certificate["start"]["humans"] for goal in human["goals"]]


def test_other_humans_have_other_values_and_the_first_line_says_whose(copied: Path) -> None:
    own, *_ = _intervals(certify(copied, "--eps", 0))
    command = ["certify", str(copied), "--eps", "0", "--human-prior", "uniform"]
    done = CliRunner().invoke(app, command)
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("This is about the model 'Trivial")
    assert "with humans by prior 'uniform'" in first
    assert "says nothing about its distance to the theory's solution" in first
    assert second.startswith("In this model, with these humans, this policy is worth V_r in [")
    assert "V_r is unbounded" not in done.stdout  # Everything was expanded.
    found = json.loads((copied / FOLDER / FILE).read_text())["body"]
    assert found["about"]["human_prior"]["name"] == "uniform"
    assert _intervals(found)[0] != own
    assert certify(copied, "--verify")["confirmed"]


def body_of(run: Path) -> dict[str, Any]:
    sealed: Any = read_json(run / FOLDER / FILE)
    body: dict[str, Any] = sealed["body"]
    return body


def test_without_an_assumption_a_least_power_is_proved_and_v_r_has_both_bounds(
    copied: Path,
) -> None:
    done = CliRunner().invoke(app, ["certify", str(copied), "--eps", "0.1"])
    assert "unbounded" not in done.stdout
    assert "Proved: everybody's X_h is at least 1.0000 while a step is left" in done.stdout
    body = body_of(copied)
    claims, (low, high) = body["claims"], body["start"]["v_r"]
    assert claims["open_pairs"] > 0
    assert claims["power_source"] == "proved"
    assert claims["min_power"] == pytest.approx(1.0, abs=1e-9)
    solved = json.loads((copied / "results/summary.json").read_text())
    assert low <= solved["root"]["V_r"] <= high
    assert claims["power_states"] == solved["graph"]["states"]
    assert certify(copied, "--verify")["confirmed"]


PUSHED = """
{name: pushed, horizon: 6, initial: a, states: [a, b],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [no, yes]}],
 transitions: [{state: a, actions: [be, yes], to: b}, {state: b, actions: [be, yes], to: a},
   {state: a, to: a}, {state: b, to: b}],
 goals: {ann: [{name: a, states: a}, {name: b, states: b}]}}
"""


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in whose world the robot may push a human out of any goal that it is in."""
    folder = tmp_path_factory.mktemp("pushed")
    (folder / "world.yaml").write_text(PUSHED)
    config = {
        "world_model": {"name": "table", "params": {"file": str(folder / "world.yaml")}},
        "algorithm": EXACT,
        "runs": str(folder),
        "trackers": [],
    }
    return Experiment.start(RunConfig.model_validate(config)).directory


def test_where_nothing_is_proved_the_least_power_of_the_runs_solution_is_taken(
    pushed: Path,
) -> None:
    done = CliRunner().invoke(app, ["certify", str(pushed), "--eps", "0.9"])
    assert "Taken from the run, and not proved here: everybody's X_h is at least" in done.stdout
    claims, (low, high) = body_of(pushed)["claims"], body_of(pushed)["start"]["v_r"]
    assert claims["power_source"] == "run"
    assert claims["power_states"] is None
    root = json.loads((pushed / "results/summary.json").read_text())["root"]
    assert claims["min_power"] <= min(root["X_h"].values())
    assert low <= root["V_r"] <= high
    assert certify(pushed, "--verify")["confirmed"]


def test_a_solution_that_cannot_be_read_when_it_is_wanted_is_done_without_and_told(
    pushed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Path(shutil.copytree(pushed, tmp_path / "run"))
    opened, _ = saved_question(run)
    damaged = run / "results/tables/graph_duration.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert saved_solution(opened) is None
    (warning,) = (row.message for row in caplog.records if row.levelname == "WARNING")
    assert "refused" in warning
    assert str(damaged) in warning


def test_with_other_humans_the_runs_solution_says_nothing(pushed: Path) -> None:
    done = CliRunner().invoke(
        app, ["certify", str(pushed), "--eps", "0.9", "--human-prior", "uniform"]
    )
    assert "V_r in [unbounded, -" in done.stdout
    assert "Nothing is known or assumed about power" in done.stdout
    assert body_of(pushed)["claims"]["power_source"] is None
    assert certify(pushed, "--verify")["confirmed"]


def _resealed(run: Path, name: str, change: float) -> None:
    """Change one entry of an array, as if it had been written so."""
    folder = run / FOLDER
    arrays, _ = load_arrays(folder / ARRAYS)
    changed = arrays[name].copy()
    changed.flat[changed.size // 2] += change
    arrays[name] = changed
    save_arrays(folder / ARRAYS, arrays)
    sealed: Any = read_json(folder / FILE)
    body = sealed["body"]
    body["digests"] |= {"arrays": manifest_digest(folder), "policies": policies_digest(arrays)}
    write_file(folder / FILE, sealed_json(folder / FILE, FORMAT, VERSION, body))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("loss_high", -1e-4, "loss_high of pair"),
        ("x_h_low", 1e-3, "x_h_low of pair"),
        ("robot_policy", 1e-3, "a policy at time"),
        ("pair_moment", 1, "is not confirmed"),
    ],
)
def test_a_changed_entry_is_noticed_even_where_digests_fit(
    certified: Path, name: str, change: float, message: str
) -> None:
    _resealed(certified, name, change)
    assert message in certify(certified, "--verify", code=3)["message"]


def test_a_changed_file_is_noticed_by_its_digest(certified: Path) -> None:
    file = certified / FOLDER / ARRAYS / "loss_low.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert "sha256" in certify(certified, "--verify", code=3)["message"]
    (certified / FOLDER / FILE).unlink()
    message = certify(certified, "--verify", code=3)["message"]
    assert "empo certify" in message


@pytest.mark.parametrize("in_the_way", ["a file", "a folder"])
def test_a_place_that_is_taken_is_refused_before_anything_is_computed(
    copied: Path, in_the_way: str
) -> None:
    shutil.rmtree(copied / FOLDER, ignore_errors=True)
    if in_the_way == "a file":
        (copied / FOLDER).write_text("mine")
    else:
        (copied / FOLDER / ARRAYS).mkdir(parents=True)
        (copied / FOLDER / ARRAYS / "mine").write_text("mine")
    message = certify(copied, "--minutes", 0, code=3)["message"]
    assert "belong" in message
    assert "minutes" not in message


@pytest.mark.parametrize(
    "option",
    [
        ("--eps", 0.5),
        ("--eps", 1e-5),
        ("--minutes", 1),
        ("--memory", 1),
        ("--human-prior", "uniform"),
        ("--min-power", 1),
        ("--no-early-end",),
    ],
)
def test_options_that_make_a_certificate_are_refused_beside_verify(
    certified: Path, option: tuple[object, ...]
) -> None:
    message = certify(certified, "--verify", *option, code=2)["message"]
    assert f"{option[0]} means" in message


def test_what_cannot_be_worked_out_again_is_not_presented_as_confirmed(certified: Path) -> None:
    done = CliRunner().invoke(app, ["certify", str(certified), "--verify"])
    assert (
        "Not confirmed, since it cannot be worked out again: earlier rounds; seconds" in done.stdout
    )


def test_humans_that_are_not_known_are_named(certified: Path) -> None:
    file = certified / FOLDER / FILE
    sealed: Any = read_json(file)
    body = sealed["body"]
    body["about"]["human_prior"] = {"name": "nonsense"}
    write_file(file, sealed_json(file, FORMAT, VERSION, body))
    message = certify(certified, "--verify", code=2)["message"]
    assert "about.human_prior" in message
    assert "No human_prior named 'nonsense'" in message


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--min-power", 40], 3, "See docs/how-to/certify_a_policy.md"),
        (["--min-power", 40], 3, "X_h is at least 40 (min_power), but that of human 1"),
        (["--human-prior", "nonsense"], 2, "No human_prior named 'nonsense'"),
        (["--human-prior", "greedy-distance"], 2, "greedy-distance"),
        (["--human-prior", "{name: [}"], 2, "--human-prior"),
        (["--memory", 0.01], 3, "nothing could be expanded, for 0.01 GiB of RAM are taken"),
        (["--minutes", 0], 3, "nothing could be expanded, for 0 minutes are over"),
        (["--eps", 2], 2, "less than or equal to 1"),
        (["--minutes", "inf"], 2, "--minutes must be a number of at least 0, not inf"),
    ],
)
def test_bad_input_gets_a_clear_sentence(
    runs: Runs, options: list[object], code: int, message: str
) -> None:
    assert message in certify(runs["exact"], *options, code=code)["message"].replace("\n", " ")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in certify(tmp_path, code=2)["message"]


@pytest.mark.slow
def test_a_run_without_a_world_is_refused(runs: Runs) -> None:
    message = certify(runs["cartpole"], code=2)["message"]
    assert "humans and goals" in message


def test_a_run_whose_config_names_another_world_is_refused(runs: Runs, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(runs["exact"], tmp_path / "exact"))
    config = (moved / "config.yaml").read_text()
    library = str(library_file(installed(), "world_model", "multigrid", "two_room"))
    (moved / "config.yaml").write_text(config.replace("inputs/trivial.yaml", library))
    assert library in certify(moved, code=2)["message"]
