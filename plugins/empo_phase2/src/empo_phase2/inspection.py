"""The learned values of a run, for explanations and pages of its decisions.

They are those of all states of a small world, or of the states of episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64, Shaped
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import InitialStates, Successors
from empo_phase2.compare import SolvedStates
from empo_phase2.estimates import ValueEstimator
from empo_phase2.params import Phase2Theory
from empo_phase2.quantities import HIGHEST_Q
from empo_phase2.state_queries import StateEncoder
from empo_theory.equations import robot_policy
from empo_theory.inspection import NOT_KEPT, Inspection, InspectionScope
from empo_theory.parameters import CompleteTheory, TheoryParams
from empo_worlds.contract import achieved_in, successors_of
from empo_worlds.policy_checks import checked_human_policy
from empo_worlds.queries import is_terminal
from empo_worlds.row_table import RowTable

AT_ONCE = 4096
"""States that are valued at the same time."""
MOST_STATES = 100_000
"""Larger worlds are not searched to their end."""
EPISODES, MOST_STEPS = 256, 200
"""Episodes that say which states of larger worlds count, and their steps without a horizon."""

NEVER = 1 << 40
"""Steps after which a state is reached that none is known to be reached from."""

Rows = Shaped[np.ndarray, "state word"]
Times = Int64[np.ndarray, " state"]


class Estimates(NamedTuple):
    """What a learner thinks of some states from which an episode goes on.

    Attributes:
        v_r: V_r.
        v_e: V_h^e of each goal of the world.
        q_r: Q_r; NaN where a joint robot action is not available.
        pi_h: The policy of each goal's human.
    """

    v_r: Float[Tensor, " state"]
    v_e: Float[Tensor, "state goal"]
    q_r: Float[Tensor, "state robot_action"]
    pi_h: Float[Tensor, "state goal action"]


Estimate = Callable[[Tensor, Tensor], Estimates]
"""From state rows ``[state word]`` and steps left ``[state]`` to what is thought of them."""


class StateSelection(NamedTuple):
    """States that an inspection keeps.

    Attributes:
        rows: State rows, first those with which it begins.
        after: Steps after which each was seen first.
        total: How many states there are; None where not all were met.
    """

    rows: Rows
    after: Times
    total: int | None


class Transitions(NamedTuple):
    """Transitions of states, as an ``Inspection`` has them."""

    offsets: Int64[np.ndarray, " pair_plus_1"]
    successor: Int64[np.ndarray, " transition"]
    code: Int64[np.ndarray, " transition"]
    prob: Float64[np.ndarray, " code"]
    duration: Float64[np.ndarray, " code"]


@dataclass(frozen=True)
class LearnedRun:
    """A world, and what was learned in it.

    Attributes:
        world: The world.
        theory: The parameters of the equations that were learned.
        x_h_floor: Least X_h in equation (8).
        estimate: Values and policies of states.
    """

    world: WorldModel
    theory: CompleteTheory
    x_h_floor: float
    estimate: Estimate

    def inspection(self, scope: InspectionScope) -> Inspection:
        """Everything that can follow a state; see ``empo_theory.inspection.Inspectable``.

        Raises:
            WorldError: if there is no such state, or time.
        """
        spec = self.world.spec
        scope.kept_times(spec.horizon)  # Refuses times at which nobody acts.
        times = range(scope.time, 1 if spec.horizon is None else spec.horizon)
        if not times:
            limit = f"times go from 0 to {spec.horizon - 1}" if spec.horizon else "there is only 0"
            raise WorldError(f"there is no decision at time {scope.time}: {limit}")
        selection = self._selected(self._starts(scope), scope)
        moves = self._transitions(selection.rows)
        selection = selection._replace(after=_earliest(moves, selection.after))
        values = self._values(selection, times)
        return Inspection(
            spec=spec,
            theory=self.theory,
            rows=selection.rows,
            number=np.arange(len(selection.rows)),
            total=selection.total,
            **moves._asdict(),
            achieved=achieved_in(self.world, torch.from_numpy(selection.rows)).numpy(),
            first_time=scope.time,
            v_m=None,
            **{name: value.numpy() for name, value in values._asdict().items()},
            x_h_floor=self.x_h_floor,
        )

    def _starts(self, scope: InspectionScope) -> InitialStates:
        """The states to begin with, if they can be reached by that time as far as one can tell."""
        spec, initial = self.world.spec, self.world.initial_states()
        if scope.start is None:
            return initial
        if scope.start.shape != initial.states.shape[1:]:
            raise WorldError(
                f"state rows of {spec.name!r} have {spec.state_words} words, not {scope.start.size}"
            )
        start = torch.from_numpy(scope.start).to(initial.states.dtype)
        steps = scope.time if spec.horizon is not None else None
        reached = self._all_within(initial, steps, MOST_STATES)
        if reached is not None and not (reached.rows == start.numpy()).all(1).any():
            when = "" if steps is None else f" after {steps} steps"
            raise WorldError(f"{spec.name!r} cannot be in that state{when}")
        return InitialStates(start[None], torch.ones(1))

    def _selected(self, starts: InitialStates, scope: InspectionScope) -> StateSelection:
        """All states that can follow some if they fit, else those of episodes."""
        spec = self.world.spec
        actions = max(spec.num_actions[human] for human in spec.humans)
        numbers = 1 + len(spec.goals) * (1 + actions) + spec.num_robot_actions
        size = scope.value_bytes(numbers, spec.horizon) + 4 * spec.num_joint_actions
        size += spec.state_words * spec.state_dtype.itemsize
        max_states = MOST_STATES
        if scope.max_bytes is not None:
            # Each transition takes 6 bytes, and most joint actions have one.
            max_states = min(
                max_states, max(1, scope.max_bytes // (size + 6 * spec.num_joint_actions))
            )
        steps = None if spec.horizon is None else spec.horizon - scope.time
        whole = self._all_within(starts, steps, max_states)
        return self._of_episodes(starts, scope.time, max_states) if whole is None else whole

    def _all_within(
        self, starts: InitialStates, steps: int | None, max_states: int
    ) -> StateSelection | None:
        """All states that can follow some within so many steps; None if they are too many."""
        table = RowTable.of(starts.states.numpy())
        bounds = [0, table.count]
        while bounds[-1] > bounds[-2] and (steps is None or len(bounds) < steps + 2):
            newest = torch.from_numpy(table.rows[bounds[-2] :].copy())
            for part in torch.split(newest, AT_ONCE):
                table.number(successors_of(self.world, part).states.numpy())
                if table.count > max_states:
                    return None
            bounds.append(table.count)
        after = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        return StateSelection(table.rows.copy(), after, table.count)

    def _of_episodes(self, starts: InitialStates, time: int, max_states: int) -> StateSelection:
        """States of episodes, the most visited first, each with all that can follow it."""
        visited, after = self._visits(starts, time)
        table = RowTable.of(visited)
        bounds, following = [0], []
        for part in torch.split(torch.from_numpy(visited), AT_ONCE):
            successors = successors_of(self.world, part)
            ends = successors.offsets[:: self.world.spec.num_joint_actions][1:] + bounds[-1]
            following.append(table.number(successors.states.numpy()))
            bounds += ends.tolist()
        successor = np.concatenate(following)
        after = np.pad(after, (0, table.count - len(after)), constant_values=NEVER)

        def first(number: int) -> Int64[np.ndarray, " state"]:
            """The first states, and their successors."""
            states: Int64[np.ndarray, " state"]
            states = np.union1d(np.arange(number), successor[: bounds[number]])
            return states

        low, high = len(starts.prob), len(visited)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(first(middle)) <= max_states else (low, middle - 1)
        selected = first(low)
        return StateSelection(table.rows[selected], after[selected], None)

    def _visits(self, starts: InitialStates, time: int) -> tuple[Rows, Times]:
        """Distinct states of episodes, the starts first and then those visited most often.

        Also the fewest steps after which an episode was in each.
        """
        spec, generator = self.world.spec, torch.Generator().manual_seed(0)
        weights = torch.tensor([goal.weight for goal in spec.goals]).double()
        goals_of_humans = [torch.tensor(spec.goals_of(human)) for human in spec.humans]
        drawn = [
            goals[torch.multinomial(weights[goals], EPISODES, True, generator=generator)]
            for goals in goals_of_humans
        ]
        rows = starts.states[starts.draw(EPISODES, generator)]
        table = RowTable.of(starts.states.numpy())
        number = table.count
        visits = [np.stack([np.arange(number), np.zeros(number, np.int64)])]
        for step in range(MOST_STEPS if spec.horizon is None else spec.horizon - time):
            visits.append(np.stack([table.number(rows.numpy()), np.full(len(rows), step)]))
            goes_on = ~is_terminal(self.world, rows)
            if not goes_on.any():
                break
            rows, drawn = rows[goes_on], [goals[goes_on] for goals in drawn]
            left = 1 if spec.horizon is None else spec.horizon - time - step
            actions = self._actions(rows, left, drawn, generator)
            rows = self.world.step(rows, actions, generator)
        state, step_seen = np.concatenate(visits, 1)
        after = np.full(table.count, NEVER)
        np.minimum.at(after, state, step_seen)
        order = np.argsort(-np.bincount(state), kind="stable")
        order = np.concatenate([np.arange(number), order[order >= number]])
        return table.rows[order], after[order]

    def _actions(
        self,
        rows: Int[Tensor, "env word"],
        left: int,
        goals: list[Int[Tensor, " env"]],
        generator: torch.Generator,
    ) -> Int[Tensor, "env agent"]:
        """Actions of all agents: humans pursue their goals, robots act as learned."""
        spec, env = self.world.spec, torch.arange(len(rows))
        estimate = self.estimate(rows, torch.full((len(rows),), left))
        actions = torch.zeros(len(rows), len(spec.agents), dtype=torch.int64)
        for human, goal in zip(spec.humans, goals, strict=True):
            policy = estimate.pi_h[env, goal]
            actions[:, human] = torch.multinomial(policy, 1, generator=generator)[:, 0]
        is_available = ~estimate.q_r.isnan()
        pi_r = robot_policy(estimate.q_r, self.theory.beta_r, is_available)
        joint = torch.multinomial(pi_r, 1, generator=generator)[:, 0]
        for robot in spec.robots:
            actions[:, robot] = joint % spec.num_actions[robot]
            joint = joint // spec.num_actions[robot]
        return actions

    def _transitions(self, rows: Rows) -> Transitions:
        """Transitions of states; to those that are not kept, too."""
        table, successors = RowTable.of(rows), list[Successors]()
        for part in torch.split(torch.from_numpy(rows), AT_ONCE):
            successors.append(successors_of(self.world, part))
        length = np.concatenate([part.offsets.diff().numpy() for part in successors])
        prob = np.concatenate([part.prob.double().numpy() for part in successors])
        lasts = [
            np.ones(len(part.prob)) if part.duration is None else part.duration.double().numpy()
            for part in successors
        ]
        codes, code = np.unique(
            np.stack([prob, np.concatenate(lasts)]), axis=1, return_inverse=True
        )
        successor = np.concatenate([table.find(part.states.numpy()) for part in successors])
        successor = np.where(successor < 0, NOT_KEPT, successor).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(length)])
        return Transitions(offsets, successor, code.ravel(), codes[0], codes[1])

    def _values(self, selection: StateSelection, times: range) -> Estimates:
        """Values at all times; NaN where a state cannot be reached by then, or is terminal."""
        spec, rows = self.world.spec, torch.from_numpy(selection.rows)
        goes_on = (~is_terminal(self.world, rows)).numpy()
        parts = []
        for step, time in enumerate(times):
            reached = selection.after <= step if spec.horizon is not None else selection.after >= 0
            positions = torch.from_numpy(np.flatnonzero(goes_on & reached))
            left = 1 if spec.horizon is None else spec.horizon - time
            blocks = [
                self.estimate(rows[block], torch.full((len(block),), left))
                for block in torch.split(positions, AT_ONCE)
            ]
            parts.append(
                [_spread(positions, len(rows), column) for column in zip(*blocks, strict=True)]
            )
        return Estimates(*(torch.stack(column) for column in zip(*parts, strict=True)))


def inspect(
    learned: ValueEstimator,
    encoder: StateEncoder,
    prior: HumanPrior,
    theory: Phase2Theory,
    scope: InspectionScope,
    right: SolvedStates | None = None,
) -> Inspection:
    """What a learner thinks of the first world's states; see ``empo_theory.inspection``.

    Args:
        learned: Its values.
        encoder: Sees the world's states as the learner does.
        prior: How humans act in that world.
        theory: The parameters that were learned.
        scope: Where to begin, and how much to keep.
        right: Exact values, if they are known.
    """

    def estimate(rows: Int[Tensor, "state word"], left: Int[Tensor, " state"]) -> Estimates:
        estimates = learned(rows, left)
        q_r = estimates.q_r.double().clamp(max=HIGHEST_Q)
        humans = checked_human_policy(encoder.world, rows, prior.policy(rows, left))
        return Estimates(estimates.v_r, estimates.v_h_e, q_r, humans)

    shared = theory.model_dump(include=set(TheoryParams.model_fields))
    complete = CompleteTheory(**shared)
    run = LearnedRun(encoder.world, complete, theory.x_h_floor, estimate)
    result = run.inspection(scope)
    if right is None:
        return result
    place = RowTable.of(result.rows).find(right.rows.numpy())
    return result.with_right_values(
        place, right.steps_left.numpy(), right.v_r.numpy(), right.v_h_e.numpy()
    )


def _earliest(moves: Transitions, after: Times) -> Times:
    """Steps after which each state is reached first, given those after which it was seen."""
    is_kept = moves.successor != NOT_KEPT
    source = np.repeat(np.arange(len(moves.offsets) - 1), np.diff(moves.offsets))[is_kept]
    source //= (len(moves.offsets) - 1) // len(after)
    while True:
        earlier = after.copy()
        np.minimum.at(earlier, moves.successor[is_kept], after[source] + 1)
        if (earlier == after).all():
            return after
        after = earlier


def _spread(
    positions: Int[Tensor, " item"], size: int, blocks: tuple[Tensor, ...]
) -> Float[Tensor, "*trailing"]:
    """Numbers of some states in their places among all, NaN elsewhere."""
    values = torch.cat(blocks).double()
    return values.new_full((size, *values.shape[1:]), float("nan")).index_copy_(
        0, positions, values
    )
