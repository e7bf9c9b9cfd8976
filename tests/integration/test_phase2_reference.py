"""The batched targets are those of the plain reference on what actors really collect."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from reference_targets import PlainTargets, ReferenceTargets
from reference_values import ReferenceValues
from torch import nn

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Collector
from empo_phase2.experience import Block
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_phase2.targets import TargetComputer
from empo_phase2.warmup import ScheduledTheory

SETTING = ScheduledTheory(gamma_h=0.95, gamma_r=0.9, beta_r=5.0)
THEORY = {"zeta": 2.0, "xi": 1.0, "eta": 1.1}
MLP = {"name": "mlp", "params": {"hidden": 8}}


@pytest.mark.parametrize(
    "values",
    [
        {"q_r": MLP, "v_h_e": MLP},
        pytest.param({"q_r": None, "v_h_e": "lookup", "v_r": MLP}, marks=pytest.mark.slow),
        pytest.param(
            dict.fromkeys(("q_r", "v_h_e", "x_h", "u_r", "v_r"), MLP), marks=pytest.mark.slow
        ),
    ],
    ids=["usual", "looking ahead", "everything"],
)
@pytest.mark.parametrize(
    "targets",
    [{}, {"max_pairs": 1}, pytest.param({"model_based": False}, marks=pytest.mark.slow)],
    ids=["all profiles", "sampled profile", "no model"],
)
def test_targets_of_collected_experience_are_those_of_the_reference(
    targets: dict[str, object], values: dict[str, object]
) -> None:
    if values["q_r"] is None and targets:
        pytest.skip("looking ahead needs all profiles")
    torch.manual_seed(0)
    params = Phase2Params.model_validate(
        {
            "human_prior": "path-heuristic",
            "values": values,
            "theory": THEORY,
            "targets": targets,
            "num_envs": 3,
        }
    )
    ref = WorldModelRef.model_validate({"name": "multigrid/trivial", "params": {"max_steps": 3}})
    problem = Problem.of(params, build(ref), ref)
    quantities, replay = problem.quantities(), problem.replay()
    collector: Collector = build(params.collector)
    collector.start(problem.factory)
    collector.publish(quantities.published(), 0)
    for step in range(4):
        for experience in collector.collect(step):
            replay.add(Block.from_arrays(experience.arrays), training_step=step)
    collector.stop()
    for network in quantities.networks.values():
        if isinstance(network, nn.Module):
            network.eval()
    batch = replay.transitions(torch.arange(2))
    model_based = params.targets.model_based
    compute = TargetComputer(quantities, model_based=model_based)
    uniform = torch.rand(len(batch), generator=torch.Generator().manual_seed(0))
    found = compute(batch, replay.states, SETTING, uniform)
    values = ReferenceValues(
        problem.spec, problem.slots, params.theory, quantities.networks, SETTING
    )
    plain = ReferenceTargets(values, model_based).compute(
        batch, replay.states, uniform.tolist(), together=True
    )
    for field in fields(PlainTargets):
        batched, expected = getattr(found, field.name), getattr(plain, field.name)
        if batched is None:
            continue
        if field.name in ("q_r", "v_h_e"):
            counts = getattr(plain, f"{field.name}_weight") > 0
            batched, expected = batched[counts], expected[counts]
        # Networks compute in single precision, and round as the size of a batch has it.
        torch.testing.assert_close(batched.double(), expected, rtol=1e-3, atol=1e-5)
