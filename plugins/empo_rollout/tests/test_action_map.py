"""Actions between finite bounds: the map to them, its density and gradient, files, warnings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.distributions import ActionMap, diagonal_normal, missed_bounds
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, build_policy
from empo_rollout.policyfile import load_policy, save_policy

SPEC = EnvSpec(
    ObservationSpec(3), ActionSpec(low=(-300.0, -1.0, 0.0), high=(-200.0, 1.0, math.inf)), ("a",), 1
)


def distribution(policy: Networks, rows: int) -> Any:
    none = torch.zeros(rows, dtype=torch.long)
    step = policy.step(torch.zeros(rows, 3), policy.initial_memory(rows), none.bool(), none)
    return step.distribution


def test_finite_bounds_are_the_range_and_others_change_nothing() -> None:
    found = ActionMap.to_bounds(SPEC.actions)
    assert found is not None
    assert (found.centre.tolist(), found.half.tolist()) == ([-250, 0, 0], [50, 1, 1])
    for low, high in ((-1.0, 1.0), (-math.inf, math.inf), (3.0, math.inf), (-1e10, 1e10)):
        assert ActionMap.to_bounds(ActionSpec(low=(low,), high=(high,))) is None
    assert ActionMap.to_bounds(ActionSpec(choices=(2,))) is None


def test_densities_are_those_of_the_mapped_numbers() -> None:
    found = ActionMap.to_bounds(SPEC.actions)
    assert found is not None
    mean, log_std = torch.tensor([[0.3, -0.2, 1.0]]), torch.tensor([-0.5, 0.0, 0.2])
    plain, mapped = diagonal_normal(mean, log_std), diagonal_normal(mean, log_std, found)
    output = torch.tensor([[0.7, 0.1, -1.0]])
    action = found.centre + found.half * output
    density = plain.log_prob(output) - found.half.log().sum()
    torch.testing.assert_close(mapped.log_prob(action), density)
    torch.testing.assert_close(mapped.entropy(), plain.entropy() + found.half.log().sum())
    torch.testing.assert_close(mapped.mode, found.centre + found.half * mean)


def test_untrained_policies_span_the_range_and_saved_ones_act_the_same(tmp_path: Path) -> None:
    policy = build_policy(PolicyParams(), SPEC, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    drawn = distribution(policy, 4000).sample()
    assert abs(float(drawn[:, 0].mean()) + 250) < 3
    assert abs(float(drawn[:, 0].std()) - 50) < 3
    save_policy(tmp_path / "model.safetensors", policy, PolicyParams(), SPEC)
    loaded = load_policy(tmp_path / "model.safetensors", SPEC).policy
    assert torch.equal(distribution(loaded, 2).mode, distribution(policy, 2).mode)


@pytest.mark.parametrize(
    ("low", "high", "log_std", "missed"),
    [
        (-300.0, -200.0, 0.0, []),
        (-math.inf, math.inf, 0.0, []),
        (0.0, math.inf, 0.0, []),
        (3.0, math.inf, 0.0, [0]),
        (-math.inf, -3.0, 0.0, [0]),
        (3.0, math.inf, 1.0, []),
    ],
)
def test_bounds_that_a_policy_misses_are_known(
    low: float, high: float, log_std: float, missed: list[int]
) -> None:
    assert missed_bounds(ActionSpec(low=(low,), high=(high,)), log_std) == missed
