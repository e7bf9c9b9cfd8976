"""One episode of a multigrid world: what its Gymnasium and PettingZoo adapters share."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from jaxtyping import Int8, Int16
from numpy.typing import NDArray

from empo_core.errors import WorldError
from empo_multigrid import layout as codes
from empo_multigrid.gym.window import Window
from empo_multigrid.layout import Layout
from empo_multigrid.plugin import MultigridParams, Simultaneity
from empo_multigrid.world import MultigridWorld, load_world

Observation = NDArray[np.int16]
Picture = NDArray[np.uint8] | str
State = tuple[int, Sequence[int]]
"""Steps since the episode began, and the state row."""
Info = dict[str, Int8[np.ndarray, " action"] | int]
"""Beside an observation: ``action_mask``, which actions the agent has, and ``steps_left``."""

RENDER_MODES: Final = ("human", "rgb_array", "ansi")
FPS: Final = 4
_ARROWS = 1 << 30  # Keys without a character are numbered from here on in SDL.
PLAY_KEYS: Final = {
    "right": (_ARROWS + 79, ord("d")),
    "left": (_ARROWS + 80, ord("a")),
    "still": (_ARROWS + 81, ord("s")),
    "forward": (_ARROWS + 82, ord("w")),
}
LIBRARY: Final = MultigridParams.library


def resolve_world(
    world: MultigridWorld | str | Path,
    *,
    max_steps: int | None = None,
    simultaneity: Simultaneity = "exact",
) -> MultigridWorld:
    """A world from itself, a name in the library, or the path of a world file.

    Args:
        world: E.g. ``"free_the_human"``, ``"multigrid/free_the_human"`` or ``"my/world.yaml"``.
        max_steps: Horizon instead of the file's.
        simultaneity: As in ``MultigridParams``.

    Raises:
        ConfigError: if the file is missing or is no world.
        WorldError: if there is no such world in the library, or options came with a ready world.
    """
    if isinstance(world, MultigridWorld):
        if max_steps is not None or simultaneity != "exact":
            raise WorldError("max_steps and simultaneity belong to the world that was given")
        return world
    file = Path(world)
    if file.suffix not in (".yaml", ".yml", ".json"):
        names = sorted(path.stem for path in LIBRARY.glob("*.yaml"))
        name = str(world).removeprefix("multigrid/")
        if name not in names:
            raise WorldError(f"no multigrid world is called {name!r}; there are {', '.join(names)}")
        file = LIBRARY / f"{name}.yaml"
    return load_world(
        MultigridParams(file=file.absolute(), max_steps=max_steps, simultaneity=simultaneity)
    )


class Game:
    """An episode in progress, and how it is shown."""

    def __init__(self, world: MultigridWorld, render_mode: str | None, tile_size: int) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise WorldError(f"render_mode {render_mode!r} is none of {', '.join(RENDER_MODES)}")
        self.world = world
        self.render_mode = render_mode
        self.tile_size = tile_size
        self.window = Window(world.spec.name, FPS) if render_mode == "human" else None
        self.steps = 0
        layout = world.layout
        self._row: Observation | None = None
        self._words: list[int] = []
        self._masks = layout.action_mask.astype(np.int8)
        self._is_masked = not layout.action_mask.all()
        self._goals = list(zip(layout.goal_human.tolist(), layout.goal_cells, strict=True))
        self._step = world.single_step()

    def start(self, state: State | None) -> None:
        """Begin at a state, or at the world's initial one."""
        if state is None:
            self._stand(self.world.initial_state().numpy(), 0)
        else:
            self.restore(state)

    def restore(self, state: State) -> None:
        """Go on from a state that ``snapshot`` returned."""
        steps, words = state
        row = torch.tensor([int(word) for word in words], dtype=torch.int16)
        self.world.available(row[None])  # Refuses what is no row of this world.
        if not steps >= 0:
            raise WorldError(f"a state begins with the steps taken so far, not {steps}")
        self._stand(row.numpy(), int(steps))

    def require_start(self) -> Observation:
        """The state row, which nothing may write to.

        Raises:
            ResetNeeded: if no episode was begun.
        """
        if self._row is None:
            raise ResetNeeded("call reset() first")
        return self._row

    def snapshot(self) -> State:
        """State of the episode."""
        return self.steps, tuple(self.current.tolist())

    @property
    def current(self) -> Int16[torch.Tensor, " word"]:
        """The state row."""
        return torch.from_numpy(self.require_start())

    @property
    def observation(self) -> Observation:
        """The state row for the outside, a copy."""
        return self.require_start().copy()

    @property
    def steps_left(self) -> int:
        """Steps until the horizon."""
        horizon = self.world.spec.horizon
        assert horizon is not None  # Multigrid worlds have one.
        return horizon - self.steps

    def is_terminated(self, agent: int) -> bool:
        """True if an agent was terminated, which is for good."""
        return bool(self._words[codes.AGENT_WORDS * agent + codes.FLAGS] & codes.TERMINATED)

    def is_achieved(self, goal: int) -> bool:
        """True if a goal's human stands in one of its cells."""
        human, cells = self._goals[goal]
        return bool(cells[self._cell(human)])

    def mask(self, agent: int) -> Int8[np.ndarray, " action"]:
        """Which actions an agent has, as ``Discrete.sample`` wants it."""
        mask: Int8[np.ndarray, " action"] = self._masks[agent, self._cell(agent)].copy()
        return mask

    def check_action(self, agent: int, action: object) -> int:
        """The action as a number.

        Raises:
            InvalidAction: if the agent does not have it.
        """
        spec = self.world.spec.agents[agent]
        if type(action) is int:
            index = action
        else:
            try:
                index = operator.index(np.asarray(action).item())
            except (TypeError, ValueError):
                index = -1
        if not 0 <= index < len(spec.actions):
            names = ", ".join(f"{i} {name}" for i, name in enumerate(spec.actions))
            raise InvalidAction(f"{action!r} is no action of {spec.name}; it has {names}")
        if self._is_masked and not self._masks[agent, self._cell(agent), index]:
            has = ", ".join(spec.actions[i] for i in np.flatnonzero(self.mask(agent)))
            raise InvalidAction(f"{spec.name} cannot do {spec.actions[index]} here; it has {has}")
        return index

    def advance(self, actions: Sequence[int], rng: np.random.Generator) -> None:
        """Take one step under a joint action, whose parts ``check_action`` returned."""
        # Actions were checked one by one, and the row is the world's: nothing is checked again.
        self._stand(self._step(self.require_start(), actions, rng.random()), self.steps + 1)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self.window is not None:
            self.window.close()

    def _stand(self, row: Observation, steps: int) -> None:
        """Stand at a state, which nothing writes to, and show it in the window, if there is one."""
        # Numbers of Python are read several times as fast as those of an array.
        self._row, self._words, self.steps = row, row.tolist(), steps
        if self.window is not None:
            self.window.show(self.world.render(self.current, tile_size=self.tile_size))

    def _cell(self, agent: int) -> int:
        return self._words[codes.AGENT_WORDS * agent + codes.CELL]

    def picture(self) -> Picture | None:
        """The state as the render mode wants it; in a window it is shown already."""
        if self.render_mode == "ansi":
            return self.world.describe(self.current)
        if self.render_mode == "rgb_array":
            return self.world.render(self.current, tile_size=self.tile_size)
        return None


def action_keys(actions: Sequence[str]) -> dict[tuple[int, ...], int]:
    """Actions by the codes of the keys that stand for them in ``gymnasium.utils.play``.

    They are the arrows and W, A, S, D, for directions and staying, and digits for all actions.
    """
    keys: dict[tuple[int, ...], int] = {
        (ord("1") + action,): action for action in range(min(len(actions), 9))
    }
    for name, codes_of_name in PLAY_KEYS.items():
        if name in actions:
            keys |= dict.fromkeys(((code,) for code in codes_of_name), actions.index(name))
    return keys


def chosen_agent(world: MultigridWorld, agent: int | None) -> int:
    """The agent that was asked for; None asks for the first robot, else agent 0."""
    spec = world.spec
    if agent is None:
        return spec.robots[0] if spec.robots else 0
    if not 0 <= agent < len(spec.agents):
        raise WorldError(f"{spec.name!r} has {len(spec.agents)} agents; there is no agent {agent}")
    return agent


def goal_index(world: MultigridWorld, agent: int, name: str) -> int:
    """Position on the ``goal`` axis of an agent's goal."""
    goals = {world.spec.goals[goal].name: goal for goal in world.spec.goals_of(agent)}
    if name not in goals:
        there = ", ".join(goals) or "none"
        agent_name = world.spec.agents[agent].name
        raise WorldError(f"{agent_name} has no goal called {name!r}; its goals: {there}")
    return goals[name]


def role_names(world: MultigridWorld) -> list[str]:
    """``human_0`` and so on, counted within each role."""
    names: list[str] = []
    for agent in world.spec.agents:
        number = sum(name.startswith(agent.role) for name in names)
        names.append(f"{agent.role}_{number}")
    return names


def row_space(layout: Layout) -> spaces.Box:
    """Range of each word of a row."""
    num_actions = len(layout.actions)
    agent = [layout.num_cells - 1, 3, codes.TERMINATED | codes.PAUSED, num_actions]
    high = agent * layout.num_agents
    low = [0] * len(high) + [codes.GONE] * layout.num_items
    high += [2 * layout.opened - 1] * layout.num_items
    for kind, word in zip(layout.fixed_kind, layout.fixed_word, strict=True):
        if word >= 0:
            low.append(0)
            largest = num_actions << 8 | layout.num_agents << 2 | 3
            high.append(largest if kind == codes.CONTROL_BUTTON else 3)
    return spaces.Box(np.array(low, np.int16), np.array(high, np.int16), dtype=np.int16)
