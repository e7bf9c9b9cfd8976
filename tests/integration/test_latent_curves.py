"""Learning curves of the latent agent and of its peer: their files, and how they are compared."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import latent_curves

FEW = ["--environment-steps", "120", "--evaluate-every", "60", "--episodes", "1", "--seeds", "0"]


def only_job(tmp_path: Path, agent: str, *options: str) -> latent_curves.Job:
    """The run that is asked for."""
    given = ["--agents", agent, *FEW, "--out", str(tmp_path), *options]
    (job,) = latent_curves.jobs(latent_curves.arguments(given))
    return job


def curve(tmp_path: Path, agent: str, *options: str) -> list[dict[str, Any]]:
    """Lines of the curve that a run leaves."""
    job = only_job(tmp_path, agent, *options)
    latent_curves.train_one(job._replace(config={**job.config, "runs": str(tmp_path / "runs")}))
    return list(csv.DictReader(job.target.read_text().splitlines()))


def test_soft_actor_critic_is_evaluated_at_equal_environment_steps(tmp_path: Path) -> None:
    lines = curve(tmp_path, "sac", "--tasks", "pendulum")
    assert [int(line["environment_step"]) for line in lines] == [60, 120]
    assert {(line["actor"], line["length"]) for line in lines} == {("policy", "200.0")}
    assert all(-2000 < float(line["return_mean"]) < 0 for line in lines)


def test_soft_actor_critic_repeats_actions_as_the_latent_agent_does(tmp_path: Path) -> None:
    pytest.importorskip("dm_control", reason="needs the extra dmc")
    (line,) = curve(tmp_path, "sac", "--tasks", "cartpole-swingup", "--evaluate-every", "0")
    assert (line["step"], line["environment_step"], line["length"]) == ("60", "120", "500.0")
    assert 0 <= float(line["return_mean"]) <= 1000


def test_a_run_leaves_its_curve_and_what_it_reported_and_is_not_done_again(tmp_path: Path) -> None:
    tiny: dict[str, Any] = {"replay": {"batch_size": 8}}
    tiny |= {"collection": {"acting": "policy", "seed_steps": 40, "seed_updates": 1}}
    tiny |= {"learning": {"updates_per_step": 0.1}, "imagination": {"candidates": 1}}
    options = ["--tasks", "pendulum", "--evaluate", "policy", "--params", json.dumps(tiny)]
    lines = curve(tmp_path, "svg", *options)
    assert [int(line["environment_step"]) for line in lines] == [60, 120]
    assert (tmp_path / "training" / "pendulum_svg_0.csv").read_text().startswith("step,episode/")
    assert not list((tmp_path / "runs").glob("*"))
    job = only_job(tmp_path, "svg", *options)
    latent_curves.note(job, tmp_path)
    assert latent_curves.missing([job], tmp_path) == []
    other = only_job(tmp_path, "svg", *options[:2])
    with pytest.raises(SystemExit, match="was made with other settings"):
        latent_curves.missing([other], tmp_path)


def test_curves_are_compared_by_the_mean_of_their_last_three_evaluations(tmp_path: Path) -> None:
    for seed, returns in enumerate(([0, 10, 20, 30], [0, 20, 30, 40])):
        rows = [
            f"{i},{i},Pendulum-v1,policy,{value},0,200,1,{seed}" for i, value in enumerate(returns)
        ]
        head = "step,environment_step,task,actor,return_mean,standard_error,length,seconds,seed"
        (tmp_path / f"pendulum_svg_{seed}.csv").write_text("\n".join([head, *rows]))
    table = latent_curves.table(latent_curves.read(sorted(tmp_path.glob("*.csv"))))
    # Means 20 and 30; t of one degree of freedom is 12.706, the standard error 5.
    assert "| pendulum | svg | policy | 2 | 1 to 3 | 25 (± 64) |" in table
