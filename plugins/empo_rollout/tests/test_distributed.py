"""Two real processes that learn together, against one that learns from what both saw."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from empo_core.errors import ConfigError
from empo_learning.distributed import Group, join
from empo_rollout.buffer import Rollout
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks
from empo_rollout.ppo import Ppo, Updater
from empo_rollout.ppo_params import PpoParams

HORIZON, SEGMENTS, RANKS = 5, 4, 2
EACH = HORIZON * SEGMENTS
STEADY = {"sampling": "sequential", "update_epochs": 2}
FAR = {"name": "sgd", "lr": 1.0, "max_grad_norm": None}


def learner(made: Any, policy: Networks, plan: VecPlan, group: Group | None = None) -> Updater:
    generator = torch.Generator().manual_seed(0)
    losses = [(Ppo(PpoParams()), 1.0)]
    return Updater(
        policy, losses, made.params, plan, made.spec,
        device="cpu", generator=generator, group=group,
    )  # fmt: skip


def joined(rollouts: list[Rollout]) -> Rollout:
    """Rollouts of several processes joined into one; segments are concatenated."""
    lists = {
        field.name: [getattr(each, field.name) for each in rollouts] for field in fields(Rollout)
    }
    return Rollout(
        **{name: torch.cat(some, int(some[0].ndim > 1 and name != "memory"))
           for name, some in lists.items()}
    )  # fmt: skip


def seen(made: Any, policy: Networks, rank: int) -> Rollout:
    rollout: Rollout = made.rollout(policy, HORIZON, SEGMENTS, seed=rank)
    if rank == 1:  # Ranks may see very different shares of what counts.
        rollout.valid[:, :2] = False
        rollout.reward += 3
    return rollout


def scenes(scene: Any) -> dict[str, Any]:
    return {
        "passes": (scene(policy={"memory": "lstm", "critic": "shared"}, update=STEADY), 2),
        "far": (scene(update={**STEADY, "target_kl": 0.08}, optimiser=FAR), 1),
    }


def work(directory: Path, scene: Any) -> None:
    """Body of each process: updates, collectives, saved results."""
    with join() as group:
        rank = group.rank
        result: dict[str, torch.Tensor] = {}
        for name, (made, accumulate) in scenes(scene).items():
            rollout = seen(made, made.policy(), rank)
            policy = made.policy(rank)  # Only the first process has the right one.
            plan = made.plan(HORIZON, SEGMENTS, EACH // 2, accumulate)
            metrics = learner(made, policy, plan, group).update(rollout, 0.0)
            result |= {f"{name}/{key}": value for key, value in policy.state_dict().items()}
            result |= {f"{name}/{key}": torch.tensor(number) for key, number in metrics.items()}
        assert group.sum(rank + 1) == 3
        assert group.shared({"rank": rank}) == {"rank": 0}
        assert group.gathered(rank) == ([0, 1] if rank == 0 else [])
        assert group.is_first is (rank == 0)
        unequal = made.plan(HORIZON, SEGMENTS, EACH // (1 + rank))
        message = rf"rank {rank} .*20 steps .*minibatches of {EACH // (1 + rank)}"
        with pytest.raises(ConfigError, match=message):
            learner(made, made.policy(), unequal, group)
    save_file(result, directory / f"{rank}.safetensors")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, scene: Any) -> list[dict[str, torch.Tensor]]:
    """Final weights and metrics of both processes, of which this one is the first."""
    directory = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    first, second = (common | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1"))
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context((directory / "1.txt").open("w"))
        process = subprocess.Popen(
            [sys.executable, __file__, str(directory)], env=os.environ | second, stderr=errors
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        variables = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in first.items():
            variables.setenv(name, value)
        work(directory, scene)
        assert process.wait(100) == 0, (directory / "1.txt").read_text()
    return [load_file(directory / f"{rank}.safetensors") for rank in range(RANKS)]


def test_all_processes_end_with_the_same_weights_and_numbers(
    results: list[dict[str, torch.Tensor]],
) -> None:
    first, second = results
    assert first.keys() == second.keys()
    assert [key for key in first if not torch.equal(first[key], second[key])] == []


@pytest.mark.parametrize("name", ["passes", "far"])
def test_two_processes_learn_what_one_would_from_both_rollouts(
    scene: Any, results: list[dict[str, torch.Tensor]], name: str
) -> None:
    made, _ = scenes(scene)[name]
    policy = made.policy()
    halves = [seen(made, policy, rank) for rank in range(RANKS)]
    # The first minibatch of both processes, then the second: the middle pair is exchanged.
    order = torch.tensor([0, 1, 4, 5, 2, 3, 6, 7])
    plan = made.plan(HORIZON, RANKS * SEGMENTS, EACH)
    metrics = learner(made, policy, plan).update(joined(halves).segments(order), 0.0)
    together = {
        key.removeprefix(f"{name}/"): value
        for key, value in results[0].items()
        if key.startswith(f"{name}/")
    }
    for key, weight in policy.state_dict().items():
        torch.testing.assert_close(together[key], weight, atol=1e-6, rtol=1e-6)
    for key, number in metrics.items():
        if key != "value/explained_variance":  # The mean of both, not that of all.
            assert float(together[key]) == pytest.approx(number, abs=1e-5), key
    assert metrics["optim/minibatches"] == (4 if name == "passes" else 3)


def test_one_process_needs_no_others() -> None:
    with join() as group:
        tensor = torch.arange(3.0)
        group.add_up([tensor])
        group.spread([tensor])
        assert tensor.tolist() == [0, 1, 2]
        assert (group.rank, group.size, group.sum(3), group.is_first) == (0, 1, 3, True)
        assert group.totals({"a": 1.5}) == {"a": 1.5}
        assert (group.shared("x"), group.gathered("x")) == ("x", ["x"])
        assert group.device("cpu") == torch.device("cpu")
        assert group.device("cuda") == torch.device("cuda")
    assert Group(1, 4, 1).device("cuda") == torch.device("cuda:1")
    assert Group(1, 4, 1).device("cuda:0") == torch.device("cuda:0")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are missing"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "must be numbers: .*'one'"),
    ],
)
def test_a_broken_environment_is_explained(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    whole = {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in ((whole if "RANK" in variables else {}) | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        join()


@pytest.mark.slow
def test_torchrun_starts_a_run_that_one_process_keeps_records_of(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "algorithm:\n"
        "  name: rollout\n"
        "  params:\n"
        "    total_steps: 1024\n"
        "    environment: gymnasium/CartPole-v1\n"
        "    num_envs: 4\n"
        "    vectorisation: {backend: serial}\n"
        "    experience: {bptt_horizon: 32}\n"
        "    update: {minibatch_size: 64}\n"
        "    reporting: {evaluation_episodes: 0}\n"
        "trackers: [jsonl]\n"
        "runs: runs\n"
    )
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    own = tmp_path / "own"
    own.mkdir()
    done = subprocess.run(
        [sys.executable, *command, "-m", "empo_core", "run", str(config), "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(own)},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    summary = json.loads(done.stdout)  # Printed once, though two processes did it.
    assert summary["run_dir"] == str(directory)
    assert summary["steps"] == 1024
    assert summary["iterations"] == 1024 // (RANKS * 4 * 32)
    assert not list(own.glob("empo-run-*"))


if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("kit", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    kit = importlib.util.module_from_spec(spec)
    sys.modules["kit"] = kit
    spec.loader.exec_module(kit)
    torch.set_num_threads(1)
    work(Path(sys.argv[1]), kit.Scene)
