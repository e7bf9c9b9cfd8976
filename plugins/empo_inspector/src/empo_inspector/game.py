"""Episodes in which people act for some agents; nothing here knows of terminals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8

from empo_core.errors import ConfigError
from empo_core.protocols import HumanPrior, RobotPolicy, WorldModel
from empo_inspector.pcg32 import Pcg32
from empo_pictures.pictures import episode_overlay
from empo_worlds.contract import successors_of
from empo_worlds.policy_checks import human_policy, robot_policy
from empo_worlds.queries import is_terminal

Policies: TypeAlias = tuple[RobotPolicy, HumanPrior]


@dataclass(frozen=True, slots=True)
class Turn:
    """A state of a game, and all that decides how it goes on.

    Attributes:
        time: Steps of the episode so far.
        row: The state.
        random: State of the random numbers.
        available: Which actions each agent has.
        robots: The robots' joint policy; empty where the episode is over.
        others: Policies of all other agents by index, for the goals they pursue; likewise.
    """

    time: int
    row: tuple[int, ...]
    random: int
    available: list[list[bool]]
    robots: list[float]
    others: dict[int, list[float]]

    @property
    def is_over(self) -> bool:
        """True if nobody acts any more."""
        return not self.robots


class Game:
    """An episode so far.

    Random numbers are used in this order: one per human for its goal; then, in each step, one per
    human who is not played, one per other agent, one for the robots together unless all of them
    are played, and one for the successor.

    Attributes:
        goals: The goal of each human, as positions in ``spec.goals``; None where it has none.
        turns: The states, at least one.
        actions: The joint actions between them.
    """

    def __init__(
        self,
        world: WorldModel,
        policies: Policies | None,
        played: Sequence[int],
        *,
        seed: int = 0,
        goals: Mapping[int, int] | None = None,
        begin: tuple[int, Sequence[int]] | None = None,
    ) -> None:
        """Begin an episode.

        Args:
            world: Its world.
            policies: How the agents act that are not played; None: evenly among what they can do.
            played: The agents that people act for, by index.
            seed: Of the random numbers, at most ``MOST_SEED``.
            goals: Goals that humans (agent index) pursue; of others they are drawn by weight, if
                they matter.
            begin: Time and state row; None: the world's start.

        Raises:
            ConfigError: if a goal is not the human's.
            SolveError: if the policies do not know the state.
        """
        self.world, self.seed, self.played = world, seed, tuple(played)
        self._policies, random, chosen_goals = policies, Pcg32(seed), list[int | None]()
        for human in world.spec.humans:
            human_goals = world.spec.goals_of(human)
            drawn = random.draw(_shares([world.spec.goals[goal].weight for goal in human_goals]))
            matters = human_goals and (policies is not None or human in played)
            chosen_goals.append((goals or {}).get(human, human_goals[drawn] if matters else None))
            if chosen_goals[-1] not in (*human_goals, None):
                raise ConfigError(
                    f"goal {chosen_goals[-1]} is not {world.spec.agents[human].name}'s"
                )
        self.goals = tuple(chosen_goals)
        time, row = begin or (0, world.initial_state().tolist())
        self.turns, self.actions = [self._turn(time, row, random.state)], list[tuple[int, ...]]()

    @property
    def now(self) -> Turn:
        """The state that the game is in."""
        return self.turns[-1]

    def step(self, player_actions: Mapping[int, int]) -> None:
        """Let every agent act.

        Args:
            player_actions: The action of each agent that is played.

        Raises:
            ConfigError: if the episode is over, or an action is not available; nothing has changed.
            SolveError: if the policies do not know the state that follows.
        """
        world, spec, turn = self.world, self.world.spec, self.now
        if turn.is_over:
            raise ConfigError("the episode is over")
        for agent, action in player_actions.items():
            if not turn.available[agent][action]:
                agent_spec = spec.agents[agent]
                raise ConfigError(f"{agent_spec.name} cannot do {agent_spec.actions[action]!r} now")
        random, actions = Pcg32(0), dict(player_actions)
        random.state = turn.random
        for agent, chances in turn.others.items():
            if agent not in player_actions:
                actions[agent] = random.draw(chances)
        if any(robot not in player_actions for robot in spec.robots):
            joint = self._robot_actions()
            fits = [
                all(player_actions.get(r, a) == a for r, a in by_robot.items())
                for by_robot in joint
            ]
            chances = [chance * fit for chance, fit in zip(turn.robots, fits, strict=True)]
            drawn = joint[random.draw(_shares(chances if sum(chances) > 0 else turn.robots))]
            actions = drawn | actions
        chosen = tuple(actions[agent] for agent in range(len(spec.agents)))
        row = torch.tensor([turn.row], dtype=spec.state_dtype)
        successors = successors_of(world, row, torch.tensor([chosen]))
        item = random.draw(successors.prob.double().tolist())
        self.turns.append(self._turn(turn.time + 1, successors.states[item].tolist(), random.state))
        self.actions.append(chosen)

    def undo(self) -> bool:
        """Go back to the state before, its random numbers included; False at the beginning."""
        if self.actions:
            del self.actions[-1], self.turns[-1]
            return True
        return False

    def reached(self) -> dict[int, int]:
        """The time at which each goal was first achieved, of those that were."""
        rows = torch.tensor([turn.row for turn in self.turns], dtype=self.world.spec.state_dtype)
        hits = self.world.achieved(rows)[1:]
        first = hits.int().argmax(0) if len(hits) else ()
        begun = self.turns[0].time + 1
        return {g: begun + int(k) for g, k in enumerate(first) if hits[int(k), g]}

    def frames(self) -> list[UInt8[np.ndarray, "height width 3"]]:
        """Pictures of all states.

        Raises:
            ConfigError: if the world cannot draw itself.
        """
        world, spec = self.world, self.world.spec
        pairs = zip(spec.humans, self.goals, strict=True)
        goals = {human: goal for human, goal in pairs if goal is not None}
        frames = []
        for turn, actions in itertools.zip_longest(self.turns, self.actions):
            caption, row = f"t = {turn.time}", torch.tensor(turn.row, dtype=spec.state_dtype)
            overlay = episode_overlay(spec, goals, caption, actions, turn.robots, turn.others)
            frame = world.render(row, overlay)
            if frame is None:
                raise ConfigError(f"{spec.name!r} cannot draw itself; leave out --gif")
            frames.append(frame)
        return frames

    def _turn(self, time: int, row: Sequence[int], random: int) -> Turn:
        """A state with everybody's policies."""
        world, spec = self.world, self.world.spec
        states = torch.tensor([list(row)], dtype=spec.state_dtype)
        available: list[list[bool]] = world.available(states)[0].tolist()
        robots, others = list[float](), dict[int, list[float]]()
        ends = time == spec.horizon or bool(is_terminal(world, states)[0])
        if not ends and self._policies is None:
            even = [_shares(mask) for mask in available]
            robots = [math.prod(even[r][a] for r, a in j.items()) for j in self._robot_actions()]
            others = {human: even[human] for human in spec.humans}
            others |= {a: even[a] for a, agent in enumerate(spec.agents) if agent.role == "other"}
        elif not ends and self._policies is not None:
            left = 1 if spec.horizon is None else spec.horizon - time
            acting, prior = self._policies
            robots = robot_policy(world, acting, states, left)[0].tolist()
            by_goal = human_policy(world, prior, states, left)
            for human, goal in zip(spec.humans, self.goals, strict=True):
                others[human] = by_goal[0, goal, : spec.num_actions[human]].tolist()
        return Turn(time, tuple(row), random, available, robots, others)

    def _robot_actions(self) -> list[dict[int, int]]:
        """The action of each robot in each of their joint actions."""
        spec, joint_actions = self.world.spec, [dict[int, int]()]
        for robot in spec.robots:
            joint_actions = [
                joint | {robot: a}
                for a in range(spec.num_actions[robot])
                for joint in joint_actions
            ]
        return joint_actions


def _shares(weights: Sequence[float]) -> list[float]:
    """The weights over their sum, unless that is 0; summed from left to right.

    Not by ``sum``, which rounds differently from Python 3.12 on, and from what JavaScript does.
    """
    *_, total = itertools.accumulate(weights, initial=0.0)
    return [weight / total for weight in weights] if total > 0 else [*map(float, weights)]
