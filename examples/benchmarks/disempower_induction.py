"""Robots of one layout side by side, from the last step back: the humans are worked out once."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empo_benchmarks.disempower.world import DisempowerWorld
from empo_exact.assumptions import Assumptions
from empo_exact.game import Block, Policies, Values, make_scratch
from empo_exact.graph import StateGraph
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import ExactParams
from empo_exact.problem import pose
from empo_exact.robots import phase2
from empo_exact.sweep import Workspace, empty_policies, room, sweep_block, terminal_values


class Induction:
    """Backward induction over a graph that several robots share.

    Args:
        world: The world.
        graph: All its states.
        params: Theory of the robot and of the humans whom it expects.
        has_robot: Phase 2 is worked out, too.
    """

    def __init__(
        self,
        world: DisempowerWorld,
        graph: StateGraph,
        params: ExactParams,
        *,
        has_robot: bool = True,
    ) -> None:
        self.seconds, begin = 0.0, time.process_time()
        self._problem = replace(pose(world, graph, params, Assumptions()), has_phase2=has_robot)
        self._scratch = make_scratch(self._problem.game, self._problem.rho)
        values = terminal_values(self._problem, graph.num_states)
        self._later = Payoffs.of(self._problem, values)
        self.seconds = time.process_time() - begin

    @property
    def places(self) -> np.ndarray:
        """Columns of policies in which the world's goals are [goal]."""
        return self._problem.places

    def step(self, moment: int, humans: Policies | None = None) -> tuple[Policies, Values]:
        """Policies and values at a time, of all states within its reach, and go a step back.

        Args:
            moment: The time, one before that of the last call.
            humans: Policies of the same Phase 1, worked out already; None: work it out.
        """
        begin, problem, later = time.process_time(), self._problem, self._later
        count = problem.graph.within(moment)
        policies, values = empty_policies(problem, count), room(problem, count)
        block = Block(np.arange(count, dtype=np.int32), 0, count)
        left = (problem.horizon or 1) - moment
        if humans is None:
            space = Workspace(0, self._scratch, policies)
            _, _, bad = sweep_block(problem, block, later, values, space, left)
        else:
            policies = policies._replace(pi_h=humans.pi_h)
            theory, payoffs = problem.theory_at(left), later.read_by(0)[1]
            bad = phase2(
                problem.game, theory, block, payoffs, later.v_r, self._scratch, values, policies
            )
        if bad:
            raise RuntimeError(f"{bad} states have no finite U_r at time {moment}")
        self._later = Payoffs.of(problem, values)
        self.seconds += time.process_time() - begin
        return policies, values


@dataclass(frozen=True)
class Humans:
    """Both humans at one time.

    Attributes:
        policies: As the solver has them.
        of_goals: Policy of each goal's human, the user's goals first [state action goal].
        mean: Policies over all goals [human state action].
        truly: Policies in pursuit of the true goals [human state action].
    """

    policies: Policies
    of_goals: np.ndarray
    mean: np.ndarray
    truly: np.ndarray

    @classmethod
    def of(cls, policies: Policies, places: np.ndarray, true_goals: list[int]) -> Humans:
        """Both humans, whose true goals are cells."""
        of_goals = np.ascontiguousarray(policies.pi_h[:, :, places])
        states, actions = of_goals.shape[:2]
        humans, cells = len(true_goals), len(places) // len(true_goals)
        of_human = np.repeat(np.eye(humans), cells, 0) / cells
        mean = (of_goals.reshape(-1, len(places)) @ of_human).reshape(states, actions, humans)
        truly = [of_goals[:, :, human * cells + goal] for human, goal in enumerate(true_goals)]
        return cls(policies, of_goals, np.stack(np.moveaxis(mean, 2, 0)), np.stack(truly))


def exact_params(robot: dict[str, Any], humans: dict[str, float | str]) -> ExactParams:
    """Params of a robot of the settings, beside the humans whom it expects."""
    theory = {**robot["theory"], **humans}
    return ExactParams.model_validate(
        {**robot, "theory": theory, "keep": "all", "rollouts": 0, "inspector": False}
    )
