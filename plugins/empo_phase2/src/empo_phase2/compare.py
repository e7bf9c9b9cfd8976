"""Comparison of learned values with the exact ones, where a world can be solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.components import build
from empo_core.config import AlgorithmRef, Config, HumanPriorRef, installed
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.protocols import Algorithm, RunContext, WorldModel
from empo_core.runs.atomic import make_folder
from empo_core.tracker_group import TrackerGroup
from empo_core.trees import StateDict
from empo_learning.bounded_curve import BoundedCurve, load_numbers
from empo_phase2.estimates import ValueEstimates
from empo_phase2.experience import Block
from empo_phase2.params import Phase2Theory
from empo_theory.solved_world import SolvedWorld
from empo_worlds.row_table import RowTable

AT_ONCE = 4096
"""TimedStates that are assessed at the same time."""

SHARED = ("gamma_h", "gamma_r", "beta_r", "zeta", "xi", "eta", "x_agg", "u_agg", "terminal_value")
"""Parameters of the theory that a solver must have, too."""


Learned: TypeAlias = Callable[[Int[Tensor, "state word"], Int[Tensor, " state"]], ValueEstimates]
"""From non-terminal states of the world and their remaining steps to what is thought of them."""


@dataclass(frozen=True, slots=True)
class SolvedStates:
    """Timed states with their exact values.

    Attributes:
        rows: State rows of the world.
        steps_left: Remaining steps.
        v_r: Exact V_r.
        pi_r: Exact policy of the robots.
        v_h_e: Exact V_h^e.
    """

    rows: Int[Tensor, "state word"]
    steps_left: Int[Tensor, " state"]
    v_r: Float[Tensor, " state"]
    pi_r: Float[Tensor, "state robot_action"]
    v_h_e: Float[Tensor, "state goal"]

    @classmethod
    def of(cls, solution: SolvedWorld, world: WorldModel) -> SolvedStates:
        """All timed states that an episode can go on from, the initial one first."""
        horizon = world.spec.horizon
        parts = []
        for left in range(1 if horizon is None else horizon, 0, -1):
            rows = solution.reachable_states(left)
            if left == (horizon or 1):
                start = world.initial_state()[None]
                rows = torch.cat([start, rows[(rows != start).any(1)]])
            parts.append(
                (
                    rows,
                    torch.full((len(rows),), left),
                    solution.robot_values(rows, left).double(),
                    solution.robot_policies(rows, left).double(),
                    solution.goal_values(rows, left).double(),
                )
            )
        return cls(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def __len__(self) -> int:
        """Number of timed states."""
        return len(self.rows)


class Comparison:
    """Compares what is learned with the solution of the same world, as training goes on.

    Attributes:
        right: All timed states with their exact values, the start of an episode first.
        history: Training steps and errors by name, e.g. ``Compare/V_r_mean_rel``, of the
            comparisons so far.
    """

    def __init__(
        self,
        solution: SolvedWorld,
        world: WorldModel,
        stored: Callable[[Int[Tensor, "state word"]], Int[Tensor, "state stored_word"]],
    ) -> None:
        """Look up all right values; ``stored`` makes the learner's rows from the world's."""
        self.right = SolvedStates.of(solution, world)
        self.history: BoundedCurve[tuple[int, dict[str, float]]] = BoundedCurve()
        self._table = RowTable.of(_keys(stored(self.right.rows), self.right.steps_left))
        self._is_visited = np.zeros(len(self.right), np.bool_)

    @property
    def is_visited(self) -> Bool[Tensor, " state"]:
        """True for timed states that have been visited."""
        return torch.from_numpy(self._is_visited)

    @property
    def coverage(self) -> float:
        """Share of the timed states that have been visited."""
        return float(self._is_visited.mean())

    def observe(self, block: Block) -> None:
        """Mark the timed states that an actor was in."""
        transitions = block.transitions
        rows = block.states.rows[transitions.state]
        numbers = self._table.find(_keys(rows, transitions.steps_left))
        self._is_visited[numbers[numbers >= 0]] = True

    def record(self, step: int, learned: Learned) -> dict[str, float]:
        """Compare what is learned now, and remember the result in ``history``."""
        metrics = self.measure(self.assess(learned))
        self.history.append((step, metrics))
        return metrics

    def assess(self, learned: Learned) -> ValueEstimates:
        """Learned values of all timed states of ``right``."""
        rows, steps_left = self.right.rows, self.right.steps_left
        parts = [
            learned(rows[first : first + AT_ONCE], steps_left[first : first + AT_ONCE])
            for first in range(0, len(rows), AT_ONCE)
        ]
        names = ValueEstimates.__slots__
        return ValueEstimates(*(torch.cat([getattr(part, n) for part in parts]) for n in names))

    def measure(self, estimates: ValueEstimates) -> dict[str, float]:
        """Errors of the values of all timed states: at the start, on average and at worst."""
        right = self.right
        off = (estimates.v_r.double() - right.v_r).abs()
        metrics = _spread("V_r", "abs", off) | _spread("V_r", "rel", off / right.v_r.abs())
        variation = (estimates.pi_r.double() - right.pi_r).abs().sum(1) / 2
        metrics |= _spread("pi_r", "tv", variation)
        # The worst goal counts at the start; elsewhere goals and states count alike.
        error = (estimates.v_h_e.double() - right.v_h_e).abs()
        metrics["Compare/V_h_e_root_abs"] = float(error[0].max())
        metrics["Compare/V_h_e_mean_abs"] = float(error.mean())
        metrics["Compare/V_h_e_max_abs"] = float(error.max())
        return metrics | {"Compare/coverage": self.coverage}

    def state_dict(self) -> StateDict:
        """The history, and what has been seen."""
        return {"history": self.history.state_dict(), "seen": self.is_visited.clone()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        load_numbers(self.history, state_dict["history"])
        self._is_visited[:] = state_dict["seen"].numpy()


def solver_for(
    name: str, theory: Phase2Theory, human_prior: HumanPriorRef, registry: Registry | None = None
) -> AlgorithmRef:
    """An algorithm, named by its component, with params that make it solve what is learned.

    Raises:
        UnknownComponentError: if there is no such algorithm.
        ConfigError: if the algorithm cannot be told to solve the same problem.
    """
    registry = registry if registry is not None else installed()
    fields = registry.get("algorithm", name).params_model().model_fields
    symbols = _symbols(fields["theory"].annotation) if "theory" in fields else frozenset()
    missing = [f"theory.{key}" for key in SHARED if key not in symbols]
    missing += [key for key in ("human_prior",) if key not in fields]
    if missing:
        raise ConfigError(
            f"reporting.compare: algorithm {name!r} cannot solve what is learned here: it has no "
            f"{', '.join(missing)} among its params; compare with another, e.g. exact, or with none"
        )
    theory_params: dict[str, Any] = {key: getattr(theory, key) for key in SHARED}
    if "accrual" in symbols:
        theory_params["accrual"] = "discrete"  # Learners count U_r once per step.
    params: dict[str, Any] = {"theory": theory_params, "human_prior": human_prior}
    # Nothing reads the rollouts, page and diagnostics of the solver.
    usual = {"rollouts": 0, "keep": "all", "inspector": False, "diagnostics": []}
    params |= {key: value for key, value in usual.items() if key in fields}
    return AlgorithmRef.model_validate(
        {"name": name, "params": params}, context={"registry": registry}
    )


def _symbols(model: Any) -> frozenset[str]:
    """Names of the fields of a config model; none of what is no such model."""
    is_model = isinstance(model, type) and issubclass(model, Config)
    return frozenset(model.model_fields) if is_model else frozenset()


def solve(
    reference: AlgorithmRef,
    world: WorldModel,
    directory: Path,
    seed: int = 0,
    registry: Registry | None = None,
) -> SolvedWorld:
    """The solution of a world by another algorithm, whose files go into a directory.

    Raises:
        ConfigError: if the solution does not know the right values of every state.
        SolveError: if the algorithm cannot solve the world.
    """
    make_folder(directory)
    algorithm: Algorithm = build(reference, registry=registry)
    context = RunContext(
        world=world, seed=seed, directory=directory, tracker=TrackerGroup([]), resume=False
    )
    result = algorithm.run(context)
    if not isinstance(result, SolvedWorld):
        raise ConfigError(
            f"reporting.compare: algorithm {reference.name!r} does not tell the values of every "
            f"state (its result, a {type(result).__name__}, is no SolvedWorld); compare with "
            "another, e.g. exact, or with none"
        )
    return result


def _keys(
    rows: Int[Tensor, "state stored_word"], steps_left: Int[Tensor, " state"]
) -> NDArray[np.int64]:
    """Rows and remaining steps in one row of integers."""
    keys = torch.cat([rows.to(torch.int64), steps_left[:, None].to(torch.int64)], 1)
    return keys.numpy()


def _spread(name: str, unit: str, errors: Float[Tensor, " state"]) -> dict[str, float]:
    """A difference at the start, on average and at worst."""
    return {
        f"Compare/{name}_root_{unit}": float(errors[0]),
        f"Compare/{name}_mean_{unit}": float(errors.mean()),
        f"Compare/{name}_max_{unit}": float(errors.max()),
    }
