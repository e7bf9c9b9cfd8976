"""What a sweep's file and its command line mean, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_sweeps import Cli

from empo_core.errors import ConfigError
from empo_sweep.sweep_file import read_sweep
from empo_sweep.warnings import theory_warning

X, ENDS = "algorithm.params.x", "algorithm.params.ends"
Write = Callable[..., str]


def arms(*arguments: str) -> list[tuple[object, ...]]:
    """Values of the arms of a sweep of ``run.yaml``."""
    return [tuple(arm.values()) for arm in read_sweep("run.yaml", arguments).arms()]


def test_values_stand_between_commas_and_ranges_are_whole_numbers(toy: Path) -> None:
    assert arms(f"{X}=1,10,1e2") == [(1,), (10,), (100.0,)]
    assert arms(f"{X}=1..3,7") == [(1,), (2,), (3,), (7,)]
    assert arms("a=[1, 2],[3]", "b={c: 1, d: 2}") == [([1, 2],), ([3],)]
    assert arms('a="1,2",3', "seed=0..2") == [("1,2",), (3,)]
    assert arms("a=..,../b") == [("..",), ("../b",)]
    assert read_sweep("run.yaml", ["seed=3..5", f"{X}=1"]).seeds == [3, 4, 5]
    assert read_sweep("run.yaml", [f"{X}=1,2"]).seeds == [0]
    assert arms("a=1,2", "b=x,y") == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_keys_of_sweeps_are_the_sweeps(toy: Path) -> None:
    sweep = read_sweep("run.yaml", [f"{X}=1,2", "workers=7", "needs.cpus=2", f"baseline.{X}=1"])
    assert (sweep.config.workers, sweep.config.needs.cpus) == (7, 2.0)
    assert sweep.config.baseline == {X: 1}
    assert sweep.folder == toy / "sweeps/run-x"


def test_rows_are_combined_with_the_grid(toy: Path, write: Write) -> None:
    rows = [{X: 1, ENDS: "well"}, {X: 2, ENDS: "nan"}]
    sweep = read_sweep(write(over={"algorithm.params.steps": [1, 2]}, zip=rows), [])
    assert [tuple(arm.values()) for arm in sweep.arms()] == [
        (1, 1, "well"), (1, 2, "nan"), (2, 1, "well"), (2, 2, "nan"),
    ]  # fmt: skip


def test_every_misspelt_key_of_every_trial_is_found_before_anything_runs(
    toy: Path, sweep: Cli, write: Write
) -> None:
    file = write(over={"algorithm.params.y": [1, 2], X: [1, "one", "two"], "sed": [1]})
    for options in (["--dry-run"], []):
        wrong = sweep(file, *options)
        assert wrong.exit_code == 2
        lines = wrong.stderr.splitlines()
        assert [line.partition(": ")[0] for line in lines[:-1]] == [
            "s.yaml:5:3", "s.yaml:3:3", "s.yaml:4:3", "s.yaml:4:3",
        ] or {line.partition(": ")[0] for line in lines[:-1]} == {
            "s.yaml:5:3", "s.yaml:3:3", "s.yaml:4:3",
        }  # fmt: skip
        assert "algorithm.params.y: unknown key" in wrong.stderr
        assert "'one'" in wrong.stderr
        assert "'two'" in wrong.stderr
        assert re.search("sed: unknown key .*did you mean 'seed'", wrong.stderr)
        assert not (toy / "sweeps").exists()


def test_a_dry_run_finds_what_cannot_be_built(toy: Path, sweep: Cli, write: Write) -> None:
    wrong = sweep(write(over={"algorithm.params.steps": [1, -2], "seed": "0..1"}), "--dry-run")
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines() == [
        "steps=-2: -2 steps cannot be made", "1 error; nothing was run",
    ]  # fmt: skip


def test_the_ends_of_a_searched_range_are_checked(toy: Path, sweep: Cli, write: Write) -> None:
    space = {X: {"low": 0, "high": 1}, "algorithm.params.steps": {"low": 1, "high": 9}}
    search = {"space": space, "objective": {"key": "score"}, "trials": 3, "sampler": "random"}
    wrong = sweep(write(search=search), "--dry-run")
    assert (wrong.exit_code, "algorithm.params.steps" in wrong.stderr) == (2, True)
    space["algorithm.params.steps"]["integer"] = True
    right = sweep(write(search=search, over={"seed": [1, 2]}), "--dry-run")
    assert right.exit_code == 0, right.output
    assert "1 to 9 (whole)" in right.stdout
    assert "6 trials would be in" in right.stdout


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"over": {"runs": ["a"]}}, "'runs' cannot be swept; 'sweeps' is"),
        ({"over": {"a..b": [1]}}, "'a..b' is no key"),
        ({"over": {X: []}}, "must have values"),
        ({"over": {X: [1, 1]}}, "has a value twice: 1 (got [1, 1])"),
        ({"over": {X: [1, 1.0]}}, "has a value twice: 1 (got [1, 1.0])"),
        ({"over": {X: [1]}, "zip": [{X: 2}]}, "is given twice"),
        ({"zip": [{"seed": 2}]}, "'seed' belongs into over"),
        ({"over": {"seed": "9..0"}}, "must go upwards"),
        ({"over": {"seed": "all"}}, "write a list of values, or whole numbers as 0..9"),
        ({"over": {"seed": [-1]}}, "seeds are whole numbers"),
        ({"over": {"seed": "0..99999", X: [1, 2]}}, "more than 100,000 trials"),
        ({"workers": 0}, "workers"),
        ({"executor": "locale"}, "Did you mean 'local'?"),
        ({"baseline": {X: 7}, "over": {X: [1, 2]}}, "baseline: 0 of 2 arms"),
    ],
)
def test_what_is_wrong_is_said(
    toy: Path, sweep: Cli, write: Write, keys: dict[str, object], reason: str
) -> None:
    wrong = sweep(write(**keys), "--dry-run")
    assert wrong.exit_code == 2, wrong.output
    assert reason in wrong.stderr


SPACE = {X: {"low": 0, "high": 1}}


@pytest.mark.parametrize(
    ("search", "over", "reason"),
    [
        ({"space": SPACE}, {ENDS: ["well", "nan"]}, "only seeds"),
        ({"space": SPACE, "sampler": "grid"}, {}, "grid needs"),
        ({"space": SPACE, "pruner": {"metric": "m"}}, {"seed": [1, 2]}, "one seed"),
        ({"space": {X: {"low": 2, "high": 1}}}, {}, "low .*high"),
        ({"space": {X: {"low": 0, "high": 1, "log": True}}}, {}, "above 0"),
        ({"space": {X: {"low": 0, "high": 0.5, "integer": True}}}, {}, "whole"),
    ],
)
def test_what_is_wrong_with_a_search_is_said(
    toy: Path, write: Write, search: dict[str, object], over: dict[str, object], reason: str
) -> None:
    full = {"objective": {"key": "score"}, "trials": 3, **search}
    with pytest.raises(ConfigError, match=reason):
        read_sweep(write(search=full, over=over), [])


def test_a_grid_of_a_search_has_no_more_points_than_trials(toy: Path, write: Write) -> None:
    space = {X: {"low": 0, "high": 1, "step": 0.25}, ENDS: ["well", "nan"]}
    search = {"space": space, "objective": {"key": "score"}, "trials": 7, "sampler": "grid"}
    points = [tuple(arm.values()) for arm in read_sweep(write(search=search), []).arms()]
    assert points[:3] == [(0.0, "well"), (0.0, "nan"), (0.25, "well")]
    assert len(points) == 7


def test_choosing_by_a_parameter_of_the_theory_is_warned_of(toy: Path) -> None:
    theory, goal = "algorithm.params.theory", "objective.key=root.V_r"
    warned = theory_warning(read_sweep("run.yaml", [f"{theory}.beta_r=1,2", goal]).config)
    assert warned is not None
    assert "choosing by them tunes a norm" in warned
    for harmless in ([f"{theory}.beta_r=1,2"], [f"{theory}.beta_r=1", f"{X}=1,2", goal]):
        assert theory_warning(read_sweep("run.yaml", harmless).config) is None


def test_an_inline_config_is_located_in_the_sweeps_file(toy: Path, sweep: Cli) -> None:
    (toy / "s.yaml").write_text("base:\n  algorithm:\n    name: toy\n    params: {xx: 1}\n")
    wrong = sweep("s.yaml", "--dry-run")
    assert (wrong.exit_code, "s.yaml:4:14: algorithm.params.xx" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("values", ["3..1", "0..99999999"])
def test_a_range_that_is_none_is_told_at_the_command_line(sweep: Cli, values: str) -> None:
    wrong = sweep("multigrid/trivial", "algorithm=exact", f"seed={values}", "--dry-run")
    assert wrong.exit_code == 2
    assert f"command line: seed: the range {values!r}" in wrong.stderr
