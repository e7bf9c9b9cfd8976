"""Checks of a world before learning begins: roles, goals, and which goals can be reached."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_theory.parameters import TheoryParams
from empo_worlds.contract import achieved_in, available_in, successors_of
from empo_worlds.roles import check_humans
from empo_worlds.row_table import RowTable
from empo_worlds.terminal_states import best_reward, first_terminal, warning_of

log = logging.getLogger(__name__)

MOST_PAIRS = 500_000
"""Worlds with more (state, joint action) pairs than this are not searched."""


def check_world(spec: WorldSpec) -> None:
    """Refuse worlds in which there is nothing to learn.

    Raises:
        UnsuitableWorldError: if humans, robots or goals are missing, or an agent has no role.
    """
    if not spec.robots:
        raise UnsuitableWorldError(
            f"{spec.name!r} has no robot, so there is nothing to learn. Give an agent the role "
            "'robot' in the world."
        )
    check_humans(spec)
    for human in spec.humans:
        if not any(spec.goals[goal].weight > 0 for goal in spec.goals_of(human)):
            raise UnsuitableWorldError(
                f"{spec.agents[human].name} (agent {human}) of {spec.name!r} has goals of weight 0 "
                "only, so its power is undefined. Add goals to the world."
            )


def check_starts(world: WorldModel, starts: Int[Tensor, "start word"]) -> None:
    """Refuse worlds that start in a terminal state.

    Raises:
        SolveError: if episodes are over when they begin.
    """
    stuck = ~available_in(world, starts).any(2).all(1)
    if bool(stuck.any()):
        raise SolveError(
            f"episodes of {world.spec.name!r} start in a terminal state, so there is nothing to "
            f"learn:\n{world.describe(starts[stuck][0])}"
        )


def check_reach(world: WorldModel, theory: TheoryParams) -> None:
    """Search a small world for goals that its human can never achieve, and for dead ends.

    Goals that are out of reach are logged. What humans and robots are likely to do is not looked
    at, so power may be 0 in further states.

    Raises:
        SolveError: if in a state that can be reached a human cannot attain any goal that counts,
            whatever anyone does, so X_h is 0 there and U_r not defined.
    """
    spec = world.spec
    reach = Reach.of(world)
    if reach is None:
        return
    counted = [goal.weight > 0 or theory.x_agg == "sum" for goal in spec.goals]
    for human in spec.humans:
        goals = [g for g in spec.goals_of(human) if counted[g]]
        # A goal that holds at the start was not achieved by anyone.
        never = [spec.goals[g].name for g in goals if not reach.achieved[reach.after, g].any()]
        human_name = f"{spec.agents[human].name} (agent {human}) of {spec.name!r}"
        if len(never) == len(goals):
            raise SolveError(
                f"{human_name} cannot reach any of its goals ({', '.join(never)}), so its power is "
                "0 and U_r infinite whatever the robots do. Add goals that it can reach."
            )
        dead_end = reach.dead_end(np.asarray(reach.achieved[:, goals].any(1)), spec.horizon)
        if dead_end is not None:
            state, time = dead_end
            when = "" if spec.horizon is None else f" after {time} steps"
            raise SolveError(
                f"{human_name} can attain none of its goals (of positive weight, where weights "
                f"count) from a state reached{when}, so X_h is 0 and U_r is not finite. Add goals "
                "that cover every cell where the human can be, or remove the dead end. The state "
                f"is:\n{world.describe(torch.from_numpy(reach.rows[state].copy()))}"
            )
        if never:
            log.info(
                "%s can never reach %s of its %d goals", human_name, ", ".join(never), len(goals)
            )


def warning(world: WorldModel, theory: TheoryParams) -> str | None:
    """A warning of a terminal state that is better than any other can be."""
    state = first_terminal(world)
    if state is None:
        return None
    return warning_of(world, state, theory.terminal_value, best_reward(world, theory))


@dataclass(frozen=True, slots=True)
class Reach:
    """All states that a small world can get into, and where each of them can lead in a step.

    Attributes:
        rows: The states, the first of them those in which episodes start.
        achieved: Whether each goal is achieved [state goal].
        source: The state before each step that is possible, in rising order [step].
        after: The state after it [step].
        num_starts: Number of states in which episodes start.
    """

    rows: Shaped[np.ndarray, "state word"]
    achieved: Bool[np.ndarray, "state goal"]
    source: Int[np.ndarray, " step"]
    after: Int[np.ndarray, " step"]
    num_starts: int = 1

    @classmethod
    def of(cls, world: WorldModel) -> Reach | None:
        """The states of a world; None if it is too large."""
        spec = world.spec
        start = world.initial_states().states
        table = RowTable(spec.state_words, start.numpy().dtype)
        table.number(start.numpy())
        num_known, steps = 0, []
        for _ in range(spec.horizon or MOST_PAIRS):
            rows = torch.from_numpy(table.rows[num_known:].copy())
            if not len(rows):
                break
            if table.count * spec.num_joint_actions > MOST_PAIRS:
                return None
            successors = successors_of(world, rows)
            items = successors.offsets[:: spec.num_joint_actions].diff().numpy()
            source = num_known + np.arange(len(rows)).repeat(items)
            num_known = table.count
            possible = (successors.prob > 0).numpy()
            number = table.number(successors.states.numpy()[possible]).astype(np.int64)
            steps.append(np.unique(source[possible] << 32 | number))
        pairs = np.concatenate(steps)
        all_rows = torch.from_numpy(table.rows.copy())
        return cls(
            all_rows.numpy(),
            achieved_in(world, all_rows).numpy(),
            pairs >> 32,
            pairs & 0xFFFFFFFF,
            len(start),
        )

    def dead_end(
        self, achieved: Bool[np.ndarray, " state"], horizon: int | None
    ) -> tuple[int, int] | None:
        """A state, and the latest time from which no goal can be achieved there, if there is any.

        Args:
            achieved: Where some goal is achieved.
            horizon: Steps of an episode; None: it goes on for ever.
        """
        count = len(self.rows)
        # can[k]: whether some goal can be achieved within k steps; the last holds from then on.
        can = [np.zeros(count, np.bool_)]
        while horizon is None or len(can) <= horizon:
            good = achieved[self.after] | can[-1][self.after]
            newest = np.zeros(count, np.bool_)
            newest[self.source[good]] = True
            if (newest == can[-1]).all():
                break
            can.append(newest)
        goes_on = np.zeros(count, np.bool_)
        goes_on[self.source] = True
        here = np.zeros(count, np.bool_)
        here[: self.num_starts] = True
        if horizon is None:
            stuck = np.flatnonzero(goes_on & ~can[-1])
            return (int(stuck[0]), 0) if len(stuck) else None
        latest, time = None, 0
        first_time = dict[bytes, int]()
        while time < horizon:
            # Once the same states come again, whole periods are skipped up to the last ones, in
            # which fewer steps are left than goals may take.
            again = first_time.setdefault(np.packbits(here).tobytes(), time)
            if period := time - again:
                time += period * max((horizon - len(can) - time) // period, 0)
            stuck = np.flatnonzero(here & goes_on & ~can[min(horizon - time, len(can) - 1)])
            if len(stuck):
                latest = int(stuck[0]), time
            following = np.zeros(count, np.bool_)
            following[self.after[here[self.source]]] = True
            here, time = following, time + 1
        return latest
