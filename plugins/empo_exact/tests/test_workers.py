"""However the work is spread, every number comes out the same to the last bit."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.config import ExecutorRef
from empo_core.errors import WorkerError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory

SHAPE = Shape(60, ("human", "robot", "human"), (3, 3, 2), 4, timed=True, masked=True)


class Board(WorldModel):
    """A human chooses a column and a robot a row: levels of several blocks, quickly told."""

    SIZE = 31

    def __init__(self) -> None:
        moves = tuple(f"by {k}" for k in range(16))
        human = AgentSpec(name="human", role="human", actions=moves)
        robot = AgentSpec(name="robot", role="robot", actions=moves)
        goals = tuple(Goal(human=0, name=f"column {k}", weight=1.0) for k in range(3))
        self.spec = WorldSpec(
            name="board",
            agents=(human, robot),
            goals=goals,
            state_words=2,
            state_dtype=torch.int32,
            horizon=3,
        )

    def initial_state(self) -> Tensor:
        return torch.zeros(2, dtype=torch.int32)

    def available(self, states: Tensor) -> Tensor:
        return torch.ones(len(states), 2, 16, dtype=torch.bool)

    def achieved(self, states: Tensor) -> Tensor:
        return (states[:, :1] + 1) % 7 == torch.arange(3)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        assert actions is None
        # Agent 0 is the fastest digit.
        moves = torch.cartesian_prod(torch.arange(16), torch.arange(16)).flip(1)
        rows = ((states[:, None] + moves) % self.SIZE).to(torch.int32).reshape(-1, 2)
        certain = torch.ones(len(rows), dtype=torch.float64)
        return Successors(offsets=torch.arange(len(rows) + 1), states=rows, prob=certain)

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return ((states + actions) % self.SIZE).to(torch.int32)

    def describe(self, state: Tensor) -> str:
        return str(state.tolist())


class FailingBoard(Board):
    """A world with a bug where levels have several blocks."""

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if (states > 15).any():
            raise ZeroDivisionError("the bug in this world")
        return super().transitions(states, actions)


def digest(result: ExactResult) -> str:
    """A hash of every number in the result."""
    found = hashlib.sha256()
    graph = result.graph
    for array in (graph.states, graph.offsets, graph.successor, graph.code, graph.prob):
        found.update(np.ascontiguousarray(array).tobytes())
    for time in result.times:
        for index in result.reachable(time):
            values = result.at(tuple(graph.states[index].tolist()), time=time)
            for number in (values.V_r, values.V_m, values.V_e, values.pi_r, values.pi_h):
                if number is not None:
                    found.update(np.asarray(number, dtype=np.float64).tobytes())
    return found.hexdigest()


def solved(world: WorldModel | None = None, **options: Any) -> str:
    world = world or TableWorld(random_table(SHAPE, 3))
    return digest(solve(world, ExactParams(compute=Compute(**options))))


def test_processes_change_nothing() -> None:
    alone = solved(Board(), workers=1)
    assert solved(Board(), workers=3, start_method="forkserver") == alone
    assert solved(Board(), workers=2, executor=ExecutorRef.model_validate("local")) == alone


def test_a_solve_in_ram_needs_neither_a_hash_seed_nor_what_it_was_not_asked_for() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        "others = ['empo_executors', 'empo_learning', 'empo_inspector', 'empo_exact.parts', "
        "'empo_exact.reductions', 'empo_exact.forecast']; "
        "sys.modules |= dict.fromkeys(others); import test_workers, empo_exact.algorithm; "
        "print(test_workers.solved(workers=1)); print([m for m in others if sys.modules[m]])"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1234"}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [solved(workers=1), "[]"]


def test_a_worker_that_fails_is_reported_with_its_traceback() -> None:
    with pytest.raises(WorkerError, match=r"(?s)in transitions.*this world"):
        solve(FailingBoard(), ExactParams(compute=Compute(workers=2)))


def test_callables_written_on_the_spot_reach_the_solver() -> None:
    """Closures and lambdas cannot be pickled, and need not be."""
    world = TableWorld(random_table(SHAPE, 3))
    goals = len(world.spec.goals)
    beta = 3.0
    constant = solve(
        world, ExactParams(theory=CompleteTheory(beta_h=beta), compute=Compute(workers=1))
    )
    called = solve(
        world,
        ExactParams(compute=Compute(workers=2)),
        Assumptions(
            beta_h=lambda states: torch.full((len(states), goals), beta, dtype=torch.float64)
        ),
    )
    assert digest(called) == digest(constant)
