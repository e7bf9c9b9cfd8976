"""Whatever takes an executor computes on a cluster what it does on one machine."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from simulated_cluster import ray_params

from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import ExecutorRef, RunConfig, WorldModelRef
from empo_core.config.yaml import dump_yaml
from empo_core.experiment import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
RELIABILITY = Path(__file__).parents[3] / "tests/reliability"


@pytest.fixture
def on_cluster(cluster: Any) -> dict[str, Any]:
    """The executor, as configs name it."""
    return {"name": "ray", "params": ray_params(cluster)}


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """Commands replace the handlers."""
    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


def empo(folder: Path, command: str, config: dict[str, Any]) -> dict[str, Any]:
    """The output of a command for this config, as data."""
    path = folder / "config.yaml"
    path.write_text(dump_yaml(config))
    done = CliRunner().invoke(app, [command, str(path), "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_rollouts_are_those_of_one_machine_also_where_actors_are_killed(
    on_cluster: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("empo_rollout", reason="without it nobody collects rollouts")
    import torch

    def weights(executor: Any, folder: Path) -> list[torch.Tensor]:
        params = {
            "total_steps": 512, "num_envs": 4, "environment": "gymnasium/CartPole-v1",
            "experience": {"bptt_horizon": 16},
            "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
            "update": {"minibatch_size": 32}, "compute": {"threads": 1},
            "collection": {"actors": 2, "executor": executor},
            "reporting": {"evaluation_episodes": 0},
        }  # fmt: skip
        algorithm = {"name": "rollout", "params": params}
        config = {"algorithm": algorithm, "trackers": [], "runs": str(folder)}
        return list(run(RunConfig.model_validate(config)).policy.parameters())

    def kill_hosts() -> None:
        """End every actor once, each a moment after it has begun."""
        killed = set[int]()
        while len(killed) < 2 and not over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    old = time.time() - process.create_time() > 3
                    if process.pid not in killed and process.name() == "ray::Host" and old:
                        process.kill()
                        killed.add(process.pid)

    over = threading.Event()
    killer = threading.Thread(target=kill_hosts)
    killer.start()
    try:
        found = weights(on_cluster, tmp_path / "ray")
    finally:
        over.set()
        killer.join()
    for one, other in zip(found, weights("local", tmp_path / "local"), strict=True):
        assert torch.equal(one, other)


def test_worlds_are_explored_on_a_cluster_as_on_one_machine(on_cluster: dict[str, Any]) -> None:
    pytest.importorskip("empo_tabular", reason="without it there is no world to explore")
    pytest.importorskip("empo_exact", reason="without it nothing explores")
    from empo_exact.graph import build_graph

    world = build(WorldModelRef.model_validate("table/coma_pill"))
    found = build_graph(world, None, workers=2, executor=ExecutorRef.model_validate(on_cluster))
    alone = build_graph(world, None)
    for name in ("states", "offsets", "successor", "code", "prob"):
        assert (getattr(found, name) == getattr(alone, name)).all(), name


def test_trials_are_those_of_worker_processes(
    on_cluster: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("empo_sweep", reason="without it there are no sweeps")
    pytest.importorskip("empo_exact", reason="without it nothing is solved")
    monkeypatch.chdir(tmp_path)
    sweep = {
        "base": {"world_model": "multigrid/trivial", "algorithm": "exact"},
        "over": {"seed": "0..1", "algorithm.params.theory.beta_r": [1.0, 5.0]},
        "objective": {"key": "root.V_r"},
    }
    here = empo(tmp_path, "sweep", sweep | {"name": "local"})["arms"]
    assert [arm["mean"]["n"] for arm in here] == [2, 2]
    there = empo(tmp_path, "sweep", sweep | {"name": "ray", "executor": on_cluster})
    assert there["arms"] == here


def test_processes_that_solve_parts_find_the_values_of_one(
    on_cluster: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("empo_exact", reason="without it nothing is solved")

    def start(**compute: Any) -> object:
        params = {"preset": "paper", "keep": "none", "compute": {"workers": 1, **compute}}
        algorithm = {"name": "exact", "params": params}
        config = {"world_model": "multigrid/key_and_door", "algorithm": algorithm}
        return empo(tmp_path, "run", config | {"runs": str(tmp_path)})["root"]

    assert start(processes=2, executor=on_cluster) == start(processes=1)


@pytest.mark.parametrize(
    "faults",
    # Only without others is there an actor that waits for the node that is added.
    [["kill", "kill_node", "stop_actor", "publish_and_kill"], ["add_node"]],
    ids="+".join,
)
def test_a_learner_gets_through_every_fault_with_its_accounts_exact(
    faults: list[str], cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("empo_async_actors", reason="without it there are no actors")
    monkeypatch.syspath_prepend(str(RELIABILITY))
    import cluster_kills

    known = {fault.__name__: fault for fault in cluster_kills.FAULTS}
    cluster_kills.run([known[name] for name in faults], random.Random(0), cluster)
