"""Kernels in plain numba (``EMPO_PLAIN_KERNELS=1``) agree with those of vector instructions.

As a script it prints every value of the problems below as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from comparison import exact_params
from random_games import Shape, TableWorld, random_table
from reference_solver import Parameters
from test_reference_solver import FILES, golden, golden_parameters, golden_table

from empo_exact import simd
from empo_exact.result import ExactResult
from empo_exact.setup import Assumptions
from empo_exact.solver import solve


def solutions() -> Iterator[ExactResult]:
    """The golden tables, and games with durations, missing actions, habits and odd exponents."""
    for name in FILES:
        data = golden(name)
        yield solve(TableWorld(golden_table(data)), exact_params(golden_parameters(data)))
    for timed in (False, True):
        shape = Shape(30, ("human", "robot", "human"), (3, 2, 3), 4, timed=timed, masked=timed)
        world = TableWorld(random_table(shape, 5))
        params = Parameters(beta_h=7.0, gamma_h=0.9, gamma_r=0.95, zeta=1.7, xi=1.3, eta=1.1)
        yield solve(world, exact_params(params, nu=0.25 * timed), Assumptions())


def numbers() -> list[list[float]]:
    """Values and policies of all states and times of each problem."""
    found = []
    for result in solutions():
        arrays = []
        for time in result.times:
            values, policies = result.store.at(time), result.policies(time)
            arrays += [*values, policies.pi_h, policies.pi_r, policies.x_h, policies.u_r]
        found.append(np.concatenate([array.ravel() for array in arrays]).tolist())
    return found


def test_plain_kernels_give_the_same_numbers() -> None:
    assert not simd.PLAIN_KERNELS, "run the tests without EMPO_PLAIN_KERNELS"
    done = subprocess.run(
        [sys.executable, __file__],
        # Compiled without optimisation, which takes two thirds of the time.
        env={**os.environ, "EMPO_PLAIN_KERNELS": "1", "NUMBA_OPT": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    plain = json.loads(done.stdout)
    assert plain["FOUR"] == 1
    for ours, theirs in zip(numbers(), plain["numbers"], strict=True):
        assert len(ours) > 100
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-14)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.stdout.write(json.dumps({"FOUR": simd.FOUR, "numbers": numbers()}))
