"""Compiled rules do what the package ``overcooked`` does, which they were written to equal."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import package
import pytest

from empo_benchmarks.overcooked import kernel
from empo_benchmarks.overcooked.kitchen import Kitchen
from empo_benchmarks.overcooked.params import OvercookedParams

LAYOUTS = ("cramped_room", "coordination_ring")
GOLDEN = json.loads(Path(__file__).with_name("golden_steps.json").read_text())
"""For each layout state, joint action, successor, shaped and other payments, by the package."""
needs_package = pytest.mark.skipif(
    not package.is_installed(),
    reason=f"needs the package: pip install --no-deps overcooked=={package.VERSION}",
)


def assert_equal_steps(kitchen: Kitchen, steps: package.Steps) -> None:
    """The kernel's successors and events are those of the package."""
    found, events = kernel.successors(kitchen, steps.before, steps.actions)
    assert np.array_equal(found, steps.after)
    assert np.array_equal(np.array(package.PAID)[events], steps.shaped)
    assert np.array_equal(package.SOUP * (events == kernel.SOUP_SERVED), steps.paid)


@needs_package
def test_the_package_has_the_version_whose_rules_these_are() -> None:
    assert version("overcooked") == package.VERSION


@needs_package
@pytest.mark.parametrize(
    "steps", [2_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_steps_are_the_packages(layout: str, steps: int) -> None:
    kitchen = Kitchen.of(OvercookedParams.model_validate({"layout": layout}))
    found = package.walk(kitchen, layout, steps, seed=0)
    assert_equal_steps(kitchen, found)
    assert len(found.before) == steps
    assert found.paid.any()
    assert set(np.unique(found.shaped)) == {0, 3, 5}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_golden_steps_are_taken(layout: str) -> None:
    kitchen = Kitchen.of(OvercookedParams.model_validate({"layout": layout}))
    golden = package.Steps.of(GOLDEN[layout])
    assert len(golden.before) == 200
    assert set(np.unique(golden.shaped)) == {0, 3, 5}
    assert golden.paid.any()
    assert_equal_steps(kitchen, golden)


@pytest.mark.parametrize(
    ("layout", "counts"),
    [
        ("cramped_room", [1, 19, 89, 262, 621, 1405, 3745, 10904]),
        ("coordination_ring", [1, 19, 88, 221, 454, 854, 2067, 4665]),
    ],
)
def test_as_many_states_are_new_at_each_depth_as_in_the_package(
    layout: str, counts: list[int]
) -> None:
    kitchen = Kitchen.of(OvercookedParams.model_validate({"layout": layout}))
    seen = np.array([kitchen.start()], np.int16)
    found = [1]
    for _ in counts[1:]:
        rows, _ = kernel.successors(kitchen, seen, None)
        known, seen = len(seen), np.unique(np.concatenate([seen, rows]), axis=0)
        found.append(len(seen) - known)
    assert found == counts
