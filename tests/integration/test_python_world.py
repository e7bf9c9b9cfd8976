"""The twenty-line world of the examples is solved, and correctly."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference
from empo_worlds.enumeration import enumerate_world

pytest.importorskip("empo_exact")
SCRIPT = Path(__file__).parents[2] / "examples" / "python_world.py"


def test_the_python_world_is_solved_as_plain_induction_solves_it() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=280, check=True
    )
    spec = importlib.util.spec_from_file_location("python_world", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    world = enumerate_world(example.TwoDoors())
    theory = CompleteTheory(beta_h=10.0, beta_r=20.0, zeta=2.0)
    reference = Reference(world, theory)
    (start,) = world.initial_state().tolist()
    values = reference.at((start,), 3)
    assert f"{values.v_r:.5f}" in done.stdout
    (power,) = reference.at((start + 1,), 2).x_h.values()
    assert f"X_h = {power:.6f}" in done.stdout
    waits, left, right = values.pi_r.values()
    assert left == pytest.approx(right)
    assert left > 1000 * waits


def test_the_class_takes_no_more_than_25_lines() -> None:
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("class "))
    end = next(i for i, line in enumerate(lines) if line.startswith("def main"))
    assert len([line for line in lines[start:end] if line.strip()]) <= 25
