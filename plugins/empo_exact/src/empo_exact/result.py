"""What a solve returns: values and policies of every state and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from rich.console import RenderableType
from torch import Tensor

from empo_core.errors import SolveError, WorldError
from empo_core.protocols import Located
from empo_core.types import WorldSpec
from empo_core.worlds.row_table import RowTable
from empo_exact import memory
from empo_exact.asking import numbers_of, policies_of, time_of
from empo_exact.graph import StateGraph
from empo_exact.induction import (
    Policies,
    Problem,
    Seconds,
    empty_policies,
    room,
    sweep_block,
    terminal_values,
)
from empo_exact.kernel_data import Floats, make_scratch
from empo_exact.plugin import ExactParams
from empo_exact.reach import Unrolled, reachable_masks, unrolled_sizes
from empo_exact.values import Values, ValueStore

if TYPE_CHECKING:
    from empo_exact.chain import Chain

CHEAP_COUNT = 20_000_000
"""Steps of the unrolled graph below which it is counted without being asked for."""

State = Tensor | NDArray[Any] | Sequence[int] | int


@dataclass(frozen=True)
class StateValues:
    """Everything about one state at one time; goals in the order of ``spec.goals``.

    Attributes:
        terminal: Whether the episode is over there; then only ``V_r`` means anything.
        V_r: The robot's value, negative.
        U_r: The robot's intrinsic reward, negative.
        Q_r: Value of each joint robot action, robot 0 fastest; NaN where unavailable [robot].
        pi_r: The robot's policy [robot].
        X_h: Power of each human, by agent index.
        V_m: What each human hopes for, V_h^m; NaN where a human prior was given [goal].
        V_e: What each human can attain, V_h^e [goal].
        pi_h: Policy of each goal's human [goal action].
    """

    terminal: bool
    V_r: float
    U_r: float
    Q_r: Floats
    pi_r: Floats
    X_h: dict[int, float]
    V_m: Floats
    V_e: Floats
    pi_h: Floats


class ExactResult:
    """Values and policies at every reachable state and time.

    Attributes:
        problem: What was solved.
        params: The parameters it was solved with.
        seconds: Where the time went.
        seed: Seeds the rollouts that ``save`` draws.
    """

    def __init__(
        self,
        problem: Problem,
        store: ValueStore,
        params: ExactParams,
        seconds: Seconds,
        seed: int = 0,
    ) -> None:
        self.problem = problem
        self.params = params
        self.seconds = seconds
        self.seed = seed
        self.store = store
        self._peak_memory = memory.peak()
        self._worth_at = lru_cache(maxsize=2)(self._compute_worth)

    @property
    def spec(self) -> WorldSpec:
        """The world's specification."""
        return self.problem.graph.spec

    @property
    def graph(self) -> StateGraph:
        """The state graph."""
        return self.problem.graph

    @property
    def horizon(self) -> int | None:
        """Steps per episode; None where the world ends by itself (all times are then 0)."""
        return self.problem.horizon

    @property
    def times(self) -> list[int]:
        """Times whose values were kept."""
        return self.store.times

    @cached_property
    def unrolled(self) -> Unrolled:
        """Sizes of the graph of (time, state) pairs."""
        return unrolled_sizes(self.graph, self.horizon)

    @cached_property
    def _table(self) -> RowTable:
        return RowTable.of(self.graph.states)

    def find_rows(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """The number of each state row; -1 where it cannot be reached [state]."""
        return self._table.find(rows.astype(self.graph.states.dtype))

    def index(self, state: State) -> int:
        """The number of a state, given as a row or as its number.

        Raises:
            WorldError: The state cannot be reached.
        """
        if isinstance(state, int):
            if not 0 <= state < self.graph.num_states:
                raise WorldError(
                    f"there is no state number {state}; {self.spec.name!r} has "
                    f"{self.graph.num_states} states, numbered from 0"
                )
            return state
        if len(state) != self.spec.state_words:
            raise WorldError(
                f"state rows of {self.spec.name!r} have {self.spec.state_words} words, "
                f"not {len(state)}"
            )
        row = np.array([[int(word) for word in state]], self.graph.states.dtype)
        number = int(self._table.find(row)[0])
        if number < 0:
            raise WorldError(f"{self.spec.name!r} cannot reach the state {row[0].tolist()}")
        return number

    def find(self, positions: Mapping[int, tuple[int, int]]) -> NDArray[np.int64]:
        """Numbers of all states in which the given agents stand in the given (x, y) cells.

        Raises:
            WorldError: The world does not say where its agents are, or has no such agent.
        """
        world = self.problem.world
        if not isinstance(world, Located):
            raise WorldError(f"{self.spec.name!r} has no positions; ask by state row instead")
        where = world.positions(torch.from_numpy(self.graph.states)).numpy()
        match = np.ones(self.graph.num_states, np.bool_)
        for agent, cell in positions.items():
            if not 0 <= agent < len(self.spec.agents):
                raise WorldError(
                    f"{self.spec.name!r} has no agent {agent}; its {len(self.spec.agents)} agents "
                    "are numbered from 0"
                )
            match &= (where[:, agent] == np.array(cell)).all(-1)
        return np.flatnonzero(match)

    def reachable(self, time: int) -> NDArray[np.int64]:
        """Numbers of the states that can be reached after exactly this many steps."""
        if self.horizon is None:
            return np.arange(self.graph.num_states)
        return np.flatnonzero(reachable_masks(self.graph, time)[time])

    def at(self, state: State, time: int = 0) -> StateValues:
        """Values and policies in one state at one time.

        Raises:
            WorldError: The state cannot be reached within ``time`` steps.
            SolveError: The values of that time, or of the next, were not kept.
        """
        number = self.index(state)
        self._check_time(time)
        order = np.array([number], np.int32)
        spec = self.spec
        terminal = not self.alive(np.array([number]), time)[0]
        if terminal:
            policies = empty_policies(self.problem, 1)
            values = terminal_values(self.problem, 1)
        else:
            if self.horizon is not None and number >= self.graph.within(time):
                raise WorldError(f"{spec.name!r} cannot reach that state within {time} steps")
            policies, values = self._sweep(order, time)
        goals = self.problem.places
        return StateValues(
            terminal=terminal,
            V_r=float(values.v_r[0]),
            U_r=float(policies.u_r[0]),
            Q_r=policies.q_r[0],
            pi_r=policies.pi_r[0],
            X_h=dict(zip(spec.humans, policies.x_h[0].tolist(), strict=True)),
            V_m=values.v_m[0, goals],
            V_e=values.v_e[0, goals],
            pi_h=policies.pi_h[0][:, goals].T,
        )

    def alive(self, states: NDArray[np.int64], time: int) -> NDArray[np.bool_]:
        """Whether the episode goes on from each of some states at a time [state]."""
        if self.horizon is not None and time >= self.horizon:
            return np.zeros(len(states), np.bool_)
        return self.graph.alive[states]

    def _check_time(self, time: int) -> None:
        if time < 0 or (self.horizon is not None and time > self.horizon):
            last = "on" if self.horizon is None else f"to {self.horizon}"
            raise WorldError(f"there is no time {time}; times go from 0 {last}")

    def policies(self, time: int, states: NDArray[np.int64] | None = None) -> Policies:
        """Policies in many states at one time, goals human by human [state ...].

        Args:
            time: The time.
            states: State numbers; None means all states reachable within ``time`` steps.
        """
        self._check_time(time)
        if states is None:
            last = self.graph.num_states if self.horizon is None else self.graph.within(time)
            states = np.arange(min(last, self.graph.num_expanded))
        return self._sweep(states.astype(np.int32), time)[0]

    def robot_policy(self, time: int = 0) -> Floats:
        """The robot's policy in all states reachable within ``time`` steps [state robot]."""
        return self.policies(time).pi_r

    # What learned values are compared with: ``empo_core.protocols.Solution``.

    def reachable_states(self, steps_left: int) -> Int[Tensor, "state word"]:
        """Non-terminal states that an episode can be in with so many steps left, sorted."""
        time = time_of(self, steps_left)
        numbers = self.reachable(time)
        rows = self.graph.states[numbers[self.alive(numbers, time)]]
        return torch.from_numpy(rows[np.lexsort(rows.T[::-1])])

    def robot_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, " state"]:
        """V_r of each state."""
        numbers = numbers_of(self, states, steps_left)
        return torch.from_numpy(self._values(time_of(self, steps_left)).v_r[numbers])

    def robot_policies(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state robot_action"]:
        """The robots' policy in each state."""
        return torch.from_numpy(policies_of(self, states, steps_left, lambda found: found.pi_r))

    def goal_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal"]:
        """V_h^e of each state and goal."""
        numbers = numbers_of(self, states, steps_left)
        values = self._values(time_of(self, steps_left)).v_e
        return torch.from_numpy(values[numbers[:, None], self.problem.places])

    def chain(self) -> Chain:
        """The Markov chain that humans and robot form together, humans over all goals."""
        from empo_exact.chain import close_loop

        return close_loop(self)

    def export_storm(self, directory: Path) -> list[Path]:
        """Write the closed-loop chain and the game for the model checker Storm."""
        from empo_exact.storm import export_game

        files = self.chain().export_storm(directory)
        return files + export_game(self.graph, self.problem.game.achieved > 0, directory)

    def rollout(
        self, generator: torch.Generator, goals: Mapping[int, int] | None = None
    ) -> list[tuple[int, tuple[int, ...] | None]]:
        """One episode: state numbers, each with the joint action taken there (None at the end).

        Args:
            generator: Source of the randomness.
            goals: The goal (position in ``spec.goals``) that each human pursues; humans
                without one act by their average over goals.
        """
        from empo_exact.rollout import play

        return play(self, generator, goals or {})

    def summary(self) -> dict[str, Any]:
        """The result as JSON data."""
        root = self.at(0)
        graph: dict[str, Any] = {
            "states": self.graph.num_states,
            "transitions": self.graph.num_transitions,
        }
        cheap = self.graph.num_transitions * (self.horizon or 1) <= CHEAP_COUNT
        if cheap or self.params.count_unrolled:
            states, terminal, edges = self.unrolled
            graph |= {
                "unrolled_states": states,
                "unrolled_terminal": terminal,
                "unrolled_edges": edges,
            }
        return {
            "algorithm": "exact",
            "world": self.spec.name,
            "root": {
                "V_r": root.V_r,
                "U_r": root.U_r,
                "Q_r": [None if np.isnan(q) else float(q) for q in root.Q_r],
                "robot_policy": root.pi_r.tolist(),
                "X_h": {str(human): x for human, x in root.X_h.items()},
                "goals": [
                    {
                        "human": goal.human,
                        "goal": goal.name,
                        "weight": goal.weight,
                        "V_m": None if np.isnan(root.V_m[i]) else float(root.V_m[i]),
                        "V_e": float(root.V_e[i]),
                    }
                    for i, goal in enumerate(self.spec.goals)
                ],
            },
            "graph": graph,
            "seconds": vars(self.seconds),
            "peak_memory_bytes": self._peak_memory,
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        from empo_exact.report import tables

        return tables(self)

    def save(self, directory: Path) -> None:
        """Write tables that ``empo_exact.storage.load`` reads, and pictures where possible."""
        from empo_exact.pictures import draw
        from empo_exact.storage import save

        save(self, directory)
        draw(self, directory)

    def _sweep(self, order: NDArray[np.int32], time: int) -> tuple[Policies, Values]:
        """Both phases again in some states; values by position."""
        problem = self.problem
        policies = empty_policies(problem, len(order))
        out = room(problem, int(order.max(initial=0)) + 1)
        left = 1 if self.horizon is None else self.horizon - time
        sweep_block(
            problem, order, 0, len(order), self._worth_at(time), out, policies,
            make_scratch(problem.game), left,
        )  # fmt: skip
        return policies, Values(out.v_m[order], out.v_e[order], out.v_r[order])

    def _compute_worth(self, time: int) -> Values:
        """What reaching each state is worth one step after ``time``."""
        problem = self.problem
        after = 0 if self.horizon is None else time + 1
        if self.horizon is not None and after == self.horizon:
            values = terminal_values(problem, self.graph.num_states)
        else:
            values = self._values(after)
        return Values(problem.worth(values.v_m), problem.worth(values.v_e), values.v_r)

    def _values(self, time: int) -> Values:
        """The values at a time, of the states that can be reached by then."""
        try:
            return self.store.at(time)
        except KeyError:
            raise SolveError(
                f"the values at time {time} were not kept; solve with keep: all or disk"
            ) from None
