"""The overcooked world model: rows in, all successors out."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_benchmarks.certain import certain_successors
from empo_benchmarks.overcooked import goals, kernel, planner
from empo_benchmarks.overcooked.features import KitchenFeatures
from empo_benchmarks.overcooked.kitchen import ACTIONS, COOK_WORDS, DIRECTIONS, PLACE, Kitchen
from empo_benchmarks.overcooked.params import OvercookedParams
from empo_benchmarks.overcooked.picture import sheet
from empo_benchmarks.overcooked.sketch import sketch
from empo_core.errors import WorldError
from empo_core.types import AgentSpec, Goal, Overlay, Successors, WorldSpec
from empo_pictures.picture_sheet import PictureSheet
from empo_theory.inspection import Sketch
from empo_worlds.grid.world import GridWorld, positions
from empo_worlds.queries import checked_actions
from empo_worlds.rows import state_rows


def load_world(params: OvercookedParams) -> OvercookedWorld:
    """The world that the params describe."""
    name = params.layout if isinstance(params.layout, str) else "a kitchen"
    return OvercookedWorld(Kitchen.of(params), name, params.max_steps)


class OvercookedWorld(GridWorld):
    """A robot and a human cook onion soups; see ``WorldModel``.

    Attributes:
        kitchen: The map, the rules' numbers, and what the words of a row are.
        spec: Agents, goals, row format, horizon. A row is place, direction and held item of
            robot and human, the item on each counter, onions and steps cooked of each pot, and
            the number of soups served.
    """

    def __init__(self, kitchen: Kitchen, name: str, max_steps: int | None) -> None:
        self.kitchen = kitchen
        self._goals = tuple(goals.kitchen_goals(kitchen))
        self._limits = np.array(kitchen.values)
        same = np.eye(len(self._goals)).tolist()
        self.spec = WorldSpec(
            name=f"{name}, {kitchen.onions} onions cook {kitchen.cook_time} steps",
            agents=(
                AgentSpec(name="robot", role="robot", actions=ACTIONS),
                AgentSpec(name="human", role="human", actions=ACTIONS),
            ),
            goals=tuple(
                Goal(human=1, name=goal.name, weight=1.0, features=tuple(features))
                for goal, features in zip(self._goals, same, strict=True)
            ),
            state_words=len(kitchen.values),
            state_dtype=torch.int16,
            horizon=max_steps,
            releases_gil=True,
            features=KitchenFeatures(kitchen),
        )

    def content(self) -> Kitchen:
        """The kitchen; see ``empo_core.protocols.WorldModel``."""
        return self.kitchen

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""
        return torch.tensor(self.kitchen.start(), dtype=torch.int16)

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """One successor per state and joint action; see ``WorldModel.transitions``."""
        rows = self._checked(states)
        chosen = None if actions is None else checked_actions(self.spec, actions, len(rows))
        return certain_successors(kernel.successors(self.kitchen, rows, chosen)[0])

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """All actions, always: what is impossible does nothing."""
        self._checked(states)
        return torch.ones((len(states), len(self.spec.agents), len(ACTIONS)), dtype=torch.bool)

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where each goal of ``spec.goals`` is achieved in each state."""
        return torch.from_numpy(goals.achieved(self.kitchen, self._goals, self._checked(states)))

    def goal_actions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state goal"]:
        """The action of a human who pursues each goal; that of the achieved is to stay."""
        rows = self._checked(states)
        actions = planner.chosen_actions(self.kitchen, self._goals, rows)
        actions[goals.achieved(self.kitchen, self._goals, rows)] = 0
        return torch.from_numpy(actions)

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cells of robot and human."""
        cells = self.kitchen.floor[self._checked(states)[:, PLACE : 2 * COOK_WORDS : COOK_WORDS]]
        return positions(torch.from_numpy(cells.astype(np.int64)), self.kitchen.width)

    def views(self, states: Int[Tensor, "state word"]) -> Float[Tensor, "state agent feature"]:
        """What each cook sees: itself, the other cook, the kitchen; words, one-hot."""
        rows = torch.from_numpy(self._checked(states))
        order = np.arange(rows.shape[1])
        order[: 2 * COOK_WORDS] = np.roll(order[: 2 * COOK_WORDS], COOK_WORDS)
        both = torch.stack([rows, rows[:, order]], 1)
        words = KitchenFeatures(self.kitchen).words(both.flatten(0, 1))
        return words.view(*both.shape[:2], words.shape[1])

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """A line about each cook, each thing that lies or cooks anywhere, and soups served."""
        row, kitchen = self._checked(state[None])[0].tolist(), self.kitchen
        lines = []
        for number, agent in enumerate(self.spec.agents):
            place, facing, held = row[COOK_WORDS * number :][:COOK_WORDS]
            x, y = kitchen.at(int(kitchen.floor[place]))
            lines.append(
                f"{agent.name} at ({x},{y}) faces {DIRECTIONS[facing]}, holds {kitchen.thing(held)}"
            )
        for cell in kitchen.counters:
            if item := row[kitchen.word[cell]]:
                x, y = kitchen.at(cell)
                lines.append(f"counter ({x},{y}): {kitchen.thing(item)}")
        for cell in kitchen.pots:
            onions, cooked = row[kitchen.word[cell] :][:2]
            x, y = kitchen.at(cell)
            lines.append(f"pot ({x},{y}): onions {onions}, cooked {cooked}/{kitchen.cook_time}")
        return "\n".join([*lines, f"soups served: {row[-1]}"])

    def sketch(self, states: Int[Tensor, "state word"]) -> Sketch:
        """Pictures of many states for a page that draws them."""
        return sketch(self.kitchen, self._goals, self.spec, self._checked(states))

    def _sheet(
        self, row: Int16[np.ndarray, " word"], overlay: Overlay | None, tile_size: int | None
    ) -> PictureSheet:
        return sheet(self.kitchen, self._goals, self.spec, row.tolist(), overlay, tile_size)

    def _checked(self, states: Int[Tensor, "state word"]) -> Int16[np.ndarray, "state word"]:
        """The rows as the compiled code wants them."""
        rows = state_rows(self.spec, states)
        wrong = kernel.first_wrong(self._limits, self.kitchen.rules, rows)
        if wrong >= 0:
            raise WorldError(
                f"row {wrong}, {rows[wrong].tolist()}, is no state of {self.spec.name}: words have "
                f"{self.kitchen.values} values, cooks stand in two places, what cooks has onions, "
                f"and counters bear at most {self.kitchen.counter_items} things"
            )
        return rows
