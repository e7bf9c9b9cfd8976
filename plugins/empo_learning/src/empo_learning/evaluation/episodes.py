"""Batched simulation of episodes under a robot policy and a human prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_core.types import WorldSpec
from empo_learning.evaluation.starts import Starts
from empo_worlds.policy_checks import human_policy, robot_policy
from empo_worlds.queries import is_terminal

AT_ONCE = 8192
"""Episodes that are played at the same time."""
MOST_STEPS = 1000
"""Steps after which an episode is cut in a world that has no horizon."""


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """All episodes that go on, or have just ended, at one step.

    Attributes:
        time: Steps of the episode so far, those before its start included.
        played: Steps since its start.
        episode: Their numbers.
        goals: What each human (in the order of ``spec.humans``) pursues, as positions on the
            ``goal`` axis.
        states: The state each is in.
        goes_on: Whether another step follows.
        robot: The robots' policy; zeros where the episode is over.
        humans: What each human does for the goal it pursues; zeros where it is over.
        actions: What each agent does next; zeros where it is over.
    """

    time: int
    played: int
    episode: Int[Tensor, " episode"]
    goals: Int[Tensor, "episode human"]
    states: Int[Tensor, "episode word"]
    goes_on: Bool[Tensor, " episode"]
    robot: Float[Tensor, "episode robot_action"]
    humans: Float[Tensor, "episode human action"]
    actions: Int[Tensor, "episode agent"]


@dataclass(frozen=True)
class EpisodeSampler:
    """A world model with its robot policy and human prior.

    Attributes:
        world: The world.
        robots: How the robots act.
        humans: How the humans act.
        max_steps: Cut episodes after so many steps; None: at the horizon, or after
            ``MOST_STEPS`` where there is none.
        starts: Where episodes begin; None: in the world's initial state.
    """

    world: WorldModel
    robots: RobotPolicy
    humans: HumanPrior
    max_steps: int | None = None
    starts: Starts | None = None

    @property
    def spec(self) -> WorldSpec:
        """The world's specification."""
        return self.world.spec

    @cached_property
    def begins(self) -> Starts:
        """Where episodes begin."""
        return self.starts or Starts.initial(self.world)

    def last_time(self, begin: int = 0) -> int:
        """Time from which no episode that began at another goes on."""
        cut = None if self.max_steps is None else begin + self.max_steps
        limits = [limit for limit in (self.spec.horizon, cut) if limit is not None]
        return min(limits, default=MOST_STEPS)

    def play(
        self,
        goal_index: Int[Tensor, " episode"],
        turn: Int[Tensor, " episode"],
        generator: torch.Generator,
    ) -> Iterator[EpisodeStep]:
        """Steps of all episodes; of those that begin at the same time, one after the other.

        Args:
            goal_index: The goal in question in each episode, as a position on the ``goal`` axis.
            turn: How many episodes of this goal come before it.
            generator: Source of the randomness.

        Raises:
            SolveError: if a policy is no probability distribution, or weights of goals are all 0.
        """
        chosen = self.begins.chosen(goal_index, turn, generator)
        times = self.begins.time[chosen]
        for begin in torch.unique(times).tolist():
            for episode in torch.split(torch.nonzero(times == begin)[:, 0], AT_ONCE):
                goals = pursued(self.spec, goal_index[episode], generator)
                states = self.begins.states[chosen[episode]]
                yield from self._play(begin, episode, states, goals, generator)

    def _play(
        self, begin: int, episode: Tensor, states: Tensor, goals: Tensor, generator: torch.Generator
    ) -> Iterator[EpisodeStep]:
        """One step after the other, until all of these episodes are over."""
        last = self.last_time(begin)
        for time in range(begin, last + 1):
            goes_on = ~is_terminal(self.world, states) & (time < last)
            robot, humans = self._policies(time, states, goes_on, goals)
            actions = self._draw(robot, humans, goes_on, generator)
            played = time - begin
            yield EpisodeStep(time, played, episode, goals, states, goes_on, robot, humans, actions)
            if not goes_on.any():
                return
            episode, goals = episode[goes_on], goals[goes_on]
            states = self.world.step(states[goes_on], actions[goes_on], generator)

    def _policies(
        self, time: int, states: Tensor, goes_on: Tensor, goals: Tensor
    ) -> tuple[Float[Tensor, "episode robot_action"], Float[Tensor, "episode human action"]]:
        """Of the robots, and of each human for its goal; zeros where an episode is over."""
        count, spec = len(states), self.spec
        robot = torch.zeros((count, spec.num_robot_actions), dtype=torch.float64)
        humans = torch.zeros((count, len(spec.humans), max(spec.num_actions)), dtype=torch.float64)
        if goes_on.any():
            # Many episodes are in the same state; policies are asked about each state once.
            rows, place = torch.unique(states[goes_on], dim=0, return_inverse=True)
            left = 1 if spec.horizon is None else spec.horizon - time
            robot[goes_on] = robot_policy(self.world, self.robots, rows, left)[place]
            by_goal = human_policy(self.world, self.humans, rows, left)
            by_goal = by_goal[:, :, : humans.shape[2]]
            humans[goes_on, :, : by_goal.shape[2]] = by_goal[place[:, None], goals[goes_on]]
        return robot, humans

    def _draw(
        self, robot: Tensor, humans: Tensor, goes_on: Tensor, generator: torch.Generator
    ) -> Int[Tensor, "episode agent"]:
        """A joint action for each episode that goes on, zeros for the others."""
        spec = self.spec
        actions = torch.zeros((len(goes_on), len(spec.agents)), dtype=torch.int64)
        if not goes_on.any():
            return actions
        for position, human in enumerate(spec.humans):
            chosen = torch.multinomial(humans[goes_on, position], 1, generator=generator)
            actions[goes_on, human] = chosen[:, 0]
        joint = torch.multinomial(robot[goes_on], 1, generator=generator)[:, 0]
        for agent in spec.robots:
            actions[goes_on, agent] = joint % spec.num_actions[agent]
            joint = joint // spec.num_actions[agent]
        return actions


def pursued(
    spec: WorldSpec, goal_index: Int[Tensor, " episode"], generator: torch.Generator
) -> Int[Tensor, "episode human"]:
    """Goals of each human: the owner's is the one in question, others' are drawn by weight."""
    owner = torch.tensor([goal.human for goal in spec.goals])[goal_index]
    pursued = goal_index[:, None].repeat(1, len(spec.humans))
    for position, human in enumerate(spec.humans):
        others = owner != human
        if not others.any():
            continue
        goals = spec.goals_of(human)
        weights = torch.tensor([spec.goals[goal].weight for goal in goals], dtype=torch.float64)
        if not weights.sum() > 0:
            raise SolveError(
                f"all goals of {spec.agents[human].name} (agent {human}) of {spec.name!r} have "
                "weight 0, so nothing says what it pursues. Give one of them a positive weight."
            )
        drawn = torch.multinomial(weights, int(others.sum()), True, generator=generator)
        pursued[others, position] = torch.tensor(goals)[drawn]
    return pursued
