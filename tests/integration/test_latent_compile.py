"""Compiled updates and plans do what the others do; in processes without checks of shapes."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

AGENT = """
import sys
import tempfile
from functools import partial

import numpy as np
import torch
from torch._dynamo.utils import counters

from empo_core import experiment
from empo_core.components import build
from empo_core.config import RunConfig
from empo_latent.environments.task_vector import TaskVector
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_core.config import merged
from empo_latent.replay import Replay
from empo_latent.update import Updater

torch.set_num_threads(1)


def data(compiled, **options):
    # Everything that changes from update to update: schedules, scales, multipliers. Without
    # dropout, which draws for heads in another order.
    entropy = {"schedule": "exponential", "coef": 1e-2, "end": 1e-4}
    agent = {
        "size": "tiny",
        "total_steps": 48,
        "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 10}}],
        "policy_loss": {
            "name": "awr",
            "params": {"normaliser": "running_scale", "scale_rate": 0.3, "entropy": entropy},
        },
        "optimistic_loss": {
            "name": "svg", "params": {"scale_rate": 0.3, "entropy": {"target_entropy": -1.0}},
        },
        "num_envs": 2, "collection": {"seed_steps": 40, "seed_updates": 4},
        "encoder": {"width": 8},
        "latents": {"size": 8, "group": 4, "width": 8},
        "bins": {"number": 11},
        "value": {"heads": 2, "dropout": 0.0},
        "replay": {"batch_size": 6},
        "learning": {"horizon": 1},
        "optimiser": {"lr": 3e-3},
        "imagination": {"candidates": 8},
        "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 4},
        "compute": {"compile": compiled, "threads": 1},
        "reporting": {"evaluation_episodes": 0, "log_interval": 2, "checkpoint_interval": 0},
    }
    return merged(agent, options)


def made(compiled, **options):
    params = LatentParams.model_validate(data(compiled, **options))
    vector = TaskVector(params.tasks, envs=2)
    vector.close()
    losses = {"policy": params.policy_loss, "optimistic": params.optimistic_loss}
    losses = {name: build(ref) for name, ref in losses.items()}
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, vector.spec, generator=generator, optimistic=True)
    with torch.no_grad():  # Heads that say 0 hide what follows them; so do ends of episodes.
        for name, weight in model.named_parameters():
            if not name.startswith("parts.termination."):
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    discounts = torch.tensor([0.9, 0.8])[: len(params.tasks)]
    return params, vector.spec, model, Updater(model, losses, params, discounts), discounts


def experience(params, spec, seed):
    # As a run has it: compiled functions mind how it lies in memory.
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(spec, envs=2, capacity=100, horizon=params.learning.horizon)

    def seen():
        return torch.randn(2, spec.words, generator=generator).numpy()

    for episode in range(6):
        replay.begin(seen(), np.array([True, True]))
        for step in range(3):
            ends = np.array([step == 2 and params.reward.episodic is True] * 2)
            action = torch.rand(2, spec.actions, generator=generator) * 2 - 1
            replay.add(action, 3 * seen()[:, 0], ends, seen())
    return replay.sample(params.replay.batch_size, generator)


def learned(compiled, updates, halved=True, **options):
    params, spec, model, updater, discounts = made(compiled, **options)
    found, graphs = [], []
    for index in range(updates):
        torch.manual_seed(index)
        if halved and index == updates - 2:
            discounts.mul_(0.5)  # A number in the graph would stay what it was.
        sequences = experience(params, spec, index)
        found.append(updater.update(sequences, (index + 1) / updates))
        graphs.append(counters["stats"]["unique_graphs"])
    return params, model, found, graphs


def agree(ours, theirs, off):
    (_, model, found, _), (_, other, expected, _) = ours, theirs
    for one, two in zip(found, expected, strict=True):
        assert one.keys() == two.keys()
        torch.testing.assert_close(one, two, rtol=off, atol=off)
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=off, atol=off)


def assert_all_changes(found):
    for name in ("entropy_coef", "scale", "loss"):
        for policy in ("policy", "optimistic"):
            prefix = "policy/" if policy == "policy" else "policy/optimistic_"
            key = f"loss/{policy}" if name == "loss" else f"{prefix}{name}"
            numbers = [float(metrics[key]) for metrics in found if key in metrics]
            assert len(set(numbers)) == len(numbers) > 2, key
"""

REPLAYED = """
MARKS, MEMORY = [], []
begin = torch.compiler.cudagraph_mark_step_begin


def mark():
    begin()
    MARKS.append(len(MEMORY))
    for memory in MEMORY:  # What a CUDA graph returned belongs to it again.
        memory.fill_(float("nan") if memory.is_floating_point() else 0)


def replayed(graph, inputs, options=None):
    # As CUDA graphs do, returns the same memory every time.
    kept = {}

    def run(*arguments):
        returned = list(graph(*arguments))
        for index, new in enumerate(returned):
            if torch.is_tensor(new) and not new.requires_grad:
                if index not in kept:
                    kept[index] = new.clone()
                    MEMORY.append(kept[index])
                kept[index].copy_(new)
                returned[index] = kept[index].view_as(new)
        return tuple(returned)

    return run


torch.compiler.cudagraph_mark_step_begin = mark
torch.compile = partial(torch.compile, backend=replayed)
updates = 5
second = {"name": "gymnasium/MountainCarContinuous-v0", "params": {"max_episode_steps": 10}}
everything = {
    "tasks": [*data(True)["tasks"], second],
    "learning": {"horizon": 2},
    "latents": {"task_size": 2},
    "reward": {"episodic": True},
    "policy_loss": {"params": {"trust_region": {}}},
}
compiled, plain = (learned(each, updates, **everything) for each in (True, False))
agree(compiled, plain, 1e-3)
assert_all_changes(plain[2])
undisturbed = learned(False, updates, halved=False, **everything)
assert undisturbed[2][-1]["value/td_mean"] != plain[2][-1]["value/td_mean"]
assert len(MARKS) == updates and MARKS[0] == 0 < MARKS[1], MARKS
# One of each policy, and one of the model.
assert compiled[3] == [3] * 5, compiled[3]
assert not counters["graph_break"], counters["graph_break"]
print("agreed")
"""


WHOLE = """
from torch._inductor.cudagraph_trees import MarkStepBox

torch.compile = partial(torch.compile, backend=sys.argv[1])
compiled, plain = (learned(each, 5) for each in (True, False))
agree(compiled, plain, 1e-4)
assert_all_changes(plain[2])
assert compiled[3] == [3] * 5, compiled[3]


def planner(params, model, compiled):
    kind = {"horizon": params.learning.horizon, "discount": torch.tensor([0.9])}
    return Planner(model, params.planner, **kind, value_heads=2, compiled=compiled)


params, model = plain[:2]
makers = [planner(params, model, compiled) for compiled in (True, False)]
with torch.no_grad():
    z, mean = model.encode(torch.eye(3)[:2]), torch.zeros(1, 2, 1)
    noise = makers[1].noise(mean, torch.Generator().manual_seed(0))
    marks = MarkStepBox.mark_step_counter
    plans = [maker.plan(z, mean, explore=True, optimistic=True, noise=noise) for maker in makers]
torch.testing.assert_close(plans[0][:3], plans[1][:3], rtol=0, atol=1e-4)
assert marks - MarkStepBox.mark_step_counter == 1  # It counts downwards.
# What plans start from, and rounds that follow.
assert counters["stats"]["unique_graphs"] == 5, counters["stats"]

with tempfile.TemporaryDirectory() as runs:
    algorithm = {"name": "latent", "params": data(True)}
    config = {"algorithm": algorithm, "runs": runs, "trackers": ["jsonl"], "seed": 0}
    run = experiment.Experiment.start(RunConfig.model_validate(config))
    lines = (run.directory / "metrics.jsonl").read_text().splitlines()
assert run.result.summary()["updates"] == 12 and "loss/optimistic" in lines[-1]
# All that this took was there already.
assert counters["stats"]["unique_graphs"] == 5, counters["stats"]
assert not counters["graph_break"], counters["graph_break"]
print("agreed")
"""


def run(*command: str, script: str, timeout_s: float = 120) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGENT + script, *command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

    assert done.stdout == "agreed\n", done.stderr


@pytest.mark.slow
def test_one_graph_of_each_loss_serves_all_updates_and_may_write_over_what_it_returned() -> None:
    run(script=REPLAYED)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_updates_plans_and_runs_do_what_others_do() -> None:
    run("inductor", script=WHOLE, timeout_s=590)
