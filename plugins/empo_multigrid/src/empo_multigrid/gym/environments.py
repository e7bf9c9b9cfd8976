"""Multigrid worlds as Gymnasium and PettingZoo environments.

An observation is the state row, which is all there is to know. All randomness comes from the
generator that ``reset(seed=...)`` seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.utils import seeding
from jaxtyping import Shaped
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

import empo_multigrid.registration  # noqa: F401  Importing this module registers the id.
from empo_core.errors import SolveError, WorldError
from empo_core.protocols import HumanPrior
from empo_multigrid.gym.game import (
    FPS,
    RENDER_MODES,
    Game,
    Info,
    Observation,
    Picture,
    State,
    action_keys,
    chosen_agent,
    goal_index,
    resolve_world,
    role_names,
    row_space,
)
from empo_multigrid.plugin import Simultaneity
from empo_multigrid.world import MultigridWorld
from empo_worlds.contract import state_text
from empo_worlds.policy_checks import SUM_TOLERANCE, UNAVAILABLE_TOLERANCE, human_policy

Others = HumanPrior | Callable[[MultigridWorld, int, torch.Tensor, int], Sequence[float]]
"""Behaviour of agents that are not controlled: a human prior (each human pursues a goal drawn by
weight when the episode begins, others act at random), or a function of the world, the agent,
the state row and the remaining steps that returns a probability per action."""


class MultigridEnv(gymnasium.Env[Observation, np.int64]):
    """One agent's view of a multigrid world; the other agents are part of the environment.

    With a ``goal``, reaching it pays 1 and ends the episode; otherwise rewards are 0. The
    episode also ends when the agent is terminated, and is truncated at the world's horizon.
    ``info["action_mask"]`` says which actions are available.

    Args:
        world: A world, the name of one in the library, or the path of a world file.
        agent: Index of the agent that acts; None takes the first robot, else agent 0.
        others: How the other agents act; None: uniformly at random.
        goal: Name of one of the agent's goals, if it is a human; None pays nothing.
        max_steps: Horizon instead of the file's.
        simultaneity: As in ``MultigridParams``.
        render_mode: ``"human"`` (a window, by the extra ``window``), ``"rgb_array"``, ``"ansi"``
            or None.
        tile_size: Pixels per cell of pictures.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": FPS}  # noqa: RUF012

    def __init__(
        self,
        world: MultigridWorld | str | Path = "free_the_human",
        *,
        agent: int | None = None,
        others: Others | None = None,
        goal: str | None = None,
        max_steps: int | None = None,
        simultaneity: Simultaneity = "exact",
        render_mode: str | None = None,
        tile_size: int = 48,
    ) -> None:
        made = resolve_world(world, max_steps=max_steps, simultaneity=simultaneity)
        self._game = Game(made, render_mode, tile_size)
        self.world = made
        self.render_mode = render_mode
        self.agent = chosen_agent(made, agent)
        self._others = others
        self._goal = None if goal is None else goal_index(made, self.agent, goal)
        self._pursued: dict[int, int] = {}
        self.observation_space = cast(spaces.Space[Observation], row_space(made.layout))
        self.action_space = spaces.Discrete(len(made.spec.agents[self.agent].actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; ``options={"state": env.get_state()}`` begins it elsewhere."""
        super().reset(seed=seed)
        options = options or {}
        if unknown := sorted(options.keys() - {"state"}):
            raise WorldError(f"reset has no option {unknown[0]!r}; it has 'state'")
        self._game.start(options.get("state"))
        self._pursued = self._draw_goals()
        return self._game.observation, self._info()

    def step(self, action: object) -> tuple[Observation, float, bool, bool, Info]:
        """Act; the other agents act at the same time.

        Raises:
            InvalidAction: if the agent does not have the action here.
        """
        game = self._game
        game.require_start()
        checked = game.check_action(self.agent, action)
        actions = [
            checked if agent == self.agent else self._draw_action(agent)
            for agent in range(len(self.world.spec.agents))
        ]
        game.advance(actions, self.np_random)
        reached = self._goal is not None and game.is_achieved(self._goal)
        over = reached or game.is_terminated(self.agent)
        return game.observation, float(reached), over, game.steps_left <= 0, self._info()

    def render(self) -> Picture | None:
        """A picture or a text of the state; None in a window or without a render mode."""
        return self._game.picture()

    def close(self) -> None:
        """Close the window, if there is one."""
        self._game.close()

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Keys for ``gymnasium.utils.play``: arrows, W A S D, and digits."""
        return action_keys(self.world.spec.agents[self.agent].actions)

    def get_state(self) -> State:
        """State of the episode: the steps taken, and the state row."""
        return self._game.snapshot()

    def set_state(self, state: State) -> None:
        """Go on from a state that ``get_state`` returned; the randomness is left alone."""
        self._game.restore(state)

    def _info(self) -> Info:
        mask = self._game.mask(self.agent)
        return {"action_mask": mask, "steps_left": self._game.steps_left}

    def _draw_goals(self) -> dict[int, int]:
        """A goal for each human that a prior moves, with probability proportional to weight."""
        pursued = {}
        spec = self.world.spec
        for human in spec.humans if isinstance(self._others, HumanPrior) else ():
            goals = [goal for goal in spec.goals_of(human) if spec.goals[goal].weight > 0]
            if goals and human != self.agent:
                weight = np.array([spec.goals[goal].weight for goal in goals])
                pursued[human] = goals[
                    int(self.np_random.choice(len(goals), p=weight / weight.sum()))
                ]
        return pursued

    def _draw_action(self, agent: int) -> int:
        """Action of an agent that is not controlled."""
        prob = np.asarray(self._probabilities(agent), dtype=np.float64)
        return int(self.np_random.choice(len(prob), p=prob / prob.sum()))

    def _probabilities(self, agent: int) -> Sequence[float] | Shaped[np.ndarray, " action"]:
        others, row, left = self._others, self._game.current, max(1, self._game.steps_left)
        if others is None:
            return self._game.mask(agent)
        if not isinstance(others, HumanPrior):
            return self._checked_chances(agent, others(self.world, agent, row.clone(), left))
        if agent not in self._pursued:
            return self._game.mask(agent)
        number = len(self.world.spec.agents[agent].actions)
        policy = human_policy(self.world, others, row[None], left)
        chances: Shaped[np.ndarray, " action"]
        chances = policy[0, self._pursued[agent], :number].numpy()
        return chances

    def _checked_chances(self, agent: int, probabilities: Sequence[float]) -> Sequence[float]:
        """What a function says that an agent does, if the agent can do so."""
        spec, chances = self.world.spec.agents[agent], np.asarray(probabilities, dtype=np.float64)
        mask = self._game.mask(agent) > 0
        if chances.shape != mask.shape or not (
            (chances >= 0).all()
            and abs(chances.sum() - 1) <= SUM_TOLERANCE
            and (chances[~mask] <= UNAVAILABLE_TOLERANCE).all()
        ):
            can = ", ".join(name for name, may in zip(spec.actions, mask, strict=True) if may)
            raise SolveError(
                f"others returned {np.array2string(chances, threshold=20)} for {spec.name} (agent "
                f"{agent}); it must be one probability for each of {len(mask)} actions, at least "
                "0, with a sum of 1, and 0 for what is not available. Available in this state are "
                f"{can}. {state_text(self.world, self._game.current)}"
            )
        return probabilities


class MultigridParallelEnv(ParallelEnv[str, Observation, int]):  # type: ignore[misc]
    """All agents of a multigrid world acting at once, as PettingZoo wants it.

    Agents are called ``human_0``, ``human_1``, ..., ``robot_0``, ..., ``other_0``, ..., counted
    within their role in the order of the world's agents. A human with a goal in ``goals`` gets
    1 when it first reaches it; all other rewards are 0. An agent that is terminated leaves;
    at the horizon all are truncated. ``infos[agent]["action_mask"]`` says what is available.

    Args:
        world: A world, the name of one in the library, or the path of a world file.
        goals: Name of a goal per agent name.
        max_steps: Horizon instead of the file's.
        simultaneity: As in ``MultigridParams``.
        render_mode: ``"human"`` (a window, by the extra ``window``), ``"rgb_array"``, ``"ansi"``
            or None.
        tile_size: Pixels per cell of pictures.
    """

    metadata = {  # noqa: RUF012
        "name": "empo_multigrid_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": FPS,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        world: MultigridWorld | str | Path = "free_the_human",
        *,
        goals: Mapping[str, str] | None = None,
        max_steps: int | None = None,
        simultaneity: Simultaneity = "exact",
        render_mode: str | None = None,
        tile_size: int = 48,
    ) -> None:
        made = resolve_world(world, max_steps=max_steps, simultaneity=simultaneity)
        self._game = Game(made, render_mode, tile_size)
        self.world = made
        self.render_mode = render_mode
        self.possible_agents = role_names(made)
        self._index = {name: index for index, name in enumerate(self.possible_agents)}
        self._goals = {
            name: goal_index(made, self._checked(name), goal)
            for name, goal in (goals or {}).items()
        }
        self._unpaid: set[str] = set()
        self.agents: list[str] = []
        self.observation_spaces = {name: row_space(made.layout) for name in self.possible_agents}
        self.action_spaces = {
            name: spaces.Discrete(len(made.spec.agents[index].actions))
            for name, index in self._index.items()
        }
        self.np_random, _ = seeding.np_random()

    def observation_space(self, agent: str) -> spaces.Box:
        """The space of state rows."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The agent's actions."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Begin an episode; ``options={"state": env.get_state()}`` begins it elsewhere."""
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        # PettingZoo's checker passes options of its own and expects them to be passed over.
        self._game.start((options or {}).get("state"))
        self.agents = self._alive(self.possible_agents)
        self._unpaid = set(self._goals)
        return self._reports(self.agents)

    def step(
        self, actions: Mapping[str, object]
    ) -> tuple[
        dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]
    ]:
        """Take one step; every agent in ``agents`` acts.

        Raises:
            InvalidAction: if an agent has no action, or one it does not have here.
        """
        game, acting = self._game, self.agents
        game.require_start()
        if actions.keys() != set(acting):
            raise InvalidAction(f"actions are for {sorted(actions)}; {acting} have to act")
        joint = [
            game.check_action(index, actions[name])
            if name in actions
            # Whoever has left does nothing; the world ignores its action.
            else int(np.argmax(game.mask(index)))
            for name, index in self._index.items()
        ]
        game.advance(joint, self.np_random)
        observations, infos = self._reports(acting)
        rewards = self._rewards(acting)
        truncated = game.steps_left <= 0
        terminations = {name: game.is_terminated(self._index[name]) for name in acting}
        truncations = dict.fromkeys(acting, truncated)
        self.agents = [] if truncated else [n for n in acting if not terminations[n]]
        return observations, rewards, terminations, truncations, infos

    def render(self) -> Picture | None:
        """A picture or a text of the state; None in a window or without a render mode."""
        return self._game.picture()

    def close(self) -> None:
        """Close the window, if there is one."""
        self._game.close()

    def get_state(self) -> State:
        """State of the episode: the steps taken, and the state row."""
        return self._game.snapshot()

    def set_state(self, state: State) -> None:
        """Go on from a state that ``get_state`` returned; the randomness is left alone."""
        self._game.restore(state)
        over = self._game.steps_left <= 0
        self.agents = [] if over else self._alive(self.possible_agents)

    def _checked(self, name: str) -> int:
        if name not in self._index:
            raise WorldError(f"no agent is called {name!r}; there are {self.possible_agents}")
        return self._index[name]

    def _alive(self, names: list[str]) -> list[str]:
        return [name for name in names if not self._game.is_terminated(self._index[name])]

    def _reports(self, names: list[str]) -> tuple[dict[str, Observation], dict[str, Info]]:
        left = self._game.steps_left
        observations = dict.fromkeys(names, self._game.observation)
        infos: dict[str, Info] = {
            name: {"action_mask": self._game.mask(self._index[name]), "steps_left": left}
            for name in names
        }
        return observations, infos

    def _rewards(self, names: list[str]) -> dict[str, float]:
        reached = {name for name in self._unpaid if self._game.is_achieved(self._goals[name])}
        self._unpaid -= reached
        return {name: float(name in reached) for name in names}
