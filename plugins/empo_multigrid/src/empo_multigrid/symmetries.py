"""Mirrors and rotations of a grid, and exchanges of agents, that leave a layout as it is.

Candidates are compared with the layout. Agents are exchanged only where the transition law does
not let their numbers decide about anything, and if transitions of states on random walks agree.

Items of equal kind, colour and content need no symmetry: rows do not tell them apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Int16, Int64
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_core.world_structure import Symmetry
from empo_multigrid import layout as codes
from empo_multigrid.layout import Layout
from empo_worlds.samples import walked_states
from empo_worlds.symmetry_checks import false_symmetry

MOST_PAIRS = 20
"""Pairs of agents that a mirror may exchange, at most."""
SAMPLED_STATES = 1000


@dataclass(frozen=True)
class Geometry:
    """A mirror or rotation of a grid.

    Attributes:
        name: For people.
        cell: Where each cell goes [cell].
        direction: What each direction becomes [direction].
        swaps_turns: A left turn becomes a right turn.
    """

    name: str
    cell: Int64[np.ndarray, " cell"]
    direction: Int64[np.ndarray, " direction"]
    swaps_turns: bool


def geometries(width: int, height: int) -> list[Geometry]:
    """A mirror along each axis, and on squares the rotation by a quarter turn, after none."""
    y, x = np.divmod(np.arange(width * height), width)
    across = y * width + width - 1 - x
    over = (height - 1 - y) * width + x
    # Directions are east, south, west, north.
    candidates = [
        Geometry("no mirror", np.arange(width * height), np.array([0, 1, 2, 3]), False),
        Geometry("mirror left and right", across, np.array([2, 1, 0, 3]), True),
        Geometry("mirror top and bottom", over, np.array([0, 3, 2, 1]), True),
        Geometry("rotate by half a turn", over[across], np.array([2, 3, 0, 1]), False),
    ]
    if width == height:
        turned = x * width + height - 1 - y
        candidates.append(
            Geometry("rotate by a quarter turn", turned, np.array([1, 2, 3, 0]), False)
        )
        candidates.append(
            Geometry("mirror along a diagonal", x * width + y, np.array([1, 0, 3, 2]), True)
        )
        candidates.append(
            Geometry(
                "mirror along the other diagonal", turned[across], np.array([3, 2, 1, 0]), True
            )
        )
    return candidates


def find_symmetries(world: WorldModel, layout: Layout) -> list[Symmetry]:
    """Symmetries of a world from which all others follow, as far as they are of this kind."""
    spec, symmetries = world.spec, _exchanges(world, layout)
    for geometry in geometries(layout.width, layout.height)[1:]:
        for agents in _arrangements(spec, layout):
            symmetry = _symmetry(spec, layout, geometry, agents)
            if symmetry is not None:
                symmetries.append(symmetry)
                break  # Others that move cells like this follow from it and the exchanges.
    return symmetries


def _exchanges(world: WorldModel, layout: Layout) -> list[Symmetry]:
    """Exchanges of two agents who cannot be told apart, enough for all others to follow."""
    exchanges: list[Symmetry] = []
    stay = geometries(layout.width, layout.height)[0]
    alike = list(range(len(world.spec.agents)))
    for i, j in _pairs(world.spec, layout):
        swapped = _swapped(world.spec, (i, j))
        symmetry = _symmetry(world.spec, layout, stay, swapped)
        if symmetry is None or alike[i] == alike[j]:
            continue
        states, _ = walked_states(world, SAMPLED_STATES)
        if false_symmetry(world, symmetry, states) is None:
            alike = [alike[i] if group == alike[j] else group for group in alike]
            exchanges.append(symmetry)
    return exchanges


def _pairs(spec: WorldSpec, layout: Layout) -> list[tuple[int, int]]:
    """Pairs of agents of one role, where the law does not let their numbers decide anything."""
    if _numbers_decide(layout):
        return []
    return [
        (i, j)
        for i, j in itertools.combinations(range(len(spec.agents)), 2)
        if spec.agents[i].role == spec.agents[j].role
        and not (layout.can_push_rocks[i] and (layout.item_kind == codes.ROCK).any())
    ]


def _numbers_decide(layout: Layout) -> bool:
    """True if there is something about which two agents may meet in the order of their numbers.

    See ``docs/explanation/transition_law/exact_and_reference.md``: pushed blocks, walls and bushes
    that are tried, switches and buttons, unsteady ground, and things to pick up with two more
    around.
    """
    small = np.isin(layout.item_kind, (codes.KEY, codes.BALL, codes.BOX)).any()
    return bool(
        layout.reference
        or (layout.fixed_kind != codes.DOOR).any()
        or (layout.item_kind == codes.BLOCK).any()
        or (layout.terrain == codes.UNSTEADY).any()
        or (small and layout.num_agents > 2)
    )


def _arrangements(spec: WorldSpec, layout: Layout) -> Iterator[tuple[int, ...]]:
    """All agents as they are, then every pair exchanged, then every two pairs."""
    yield _swapped(spec)
    pairs = _pairs(spec, layout)[:MOST_PAIRS]
    for pair in pairs:
        yield _swapped(spec, pair)
    for first, second in itertools.combinations(pairs, 2):
        if not set(first) & set(second):
            yield _swapped(spec, first, second)


def _swapped(spec: WorldSpec, *pairs: tuple[int, int]) -> tuple[int, ...]:
    agents = list(range(len(spec.agents)))
    for i, j in pairs:
        agents[i], agents[j] = j, i
    return tuple(agents)


def _symmetry(
    spec: WorldSpec, layout: Layout, geometry: Geometry, agents: Sequence[int]
) -> Symmetry | None:
    """The symmetry that moves cells and exchanges agents; None where the layout has it not."""
    actions = _actions(layout, geometry)
    fixed, goals = _fixed(layout, geometry), _goals(spec, layout, geometry, agents)
    if actions is None or fixed is None or goals is None:
        return None
    other, cell = np.array(agents), geometry.cell
    mask = layout.action_mask[other][:, cell][:, :, actions]
    if not (
        np.array_equal(layout.terrain[cell], layout.terrain)
        and np.array_equal(layout.stumble[cell], layout.stumble)
        and np.array_equal(mask, layout.action_mask)
        and all(
            np.array_equal(of[other], of)
            for of in (
                layout.agent_colour,
                layout.can_push_rocks,
                layout.can_enter_magic,
                layout.tramples,
            )
        )
    ):
        return None
    rows = _RowMap(layout, geometry, other, actions, fixed)
    width = torch.from_numpy(actions)
    exchanged = [spec.agents[a].name for a, b in enumerate(agents) if a != b]
    parts = [geometry.name] if geometry.name != "no mirror" else []
    parts += [f"exchange {', '.join(exchanged)}"] if exchanged else []

    def renamed(states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent action"]:
        return width.expand(len(states), len(agents), -1)

    return Symmetry(
        name=" and ".join(parts), rows=rows, agents=tuple(agents), actions=renamed, goals=goals
    )


def _actions(layout: Layout, geometry: Geometry) -> Int64[np.ndarray, " action"] | None:
    """The action that each action becomes; None where a world lacks one."""
    turns = {codes.LEFT: codes.RIGHT, codes.RIGHT: codes.LEFT} if geometry.swaps_turns else {}
    actions = layout.actions.tolist()
    becomes = [turns.get(action, action) for action in actions]
    if not set(becomes) <= set(actions):
        return None
    return np.array([actions.index(action) for action in becomes], np.int64)


def _fixed(layout: Layout, geometry: Geometry) -> Int64[np.ndarray, " chosen"] | None:
    """The fixed object that each becomes; None where there is none like it."""
    target = layout.fixed_at[geometry.cell[layout.fixed_cell]].astype(np.int64)
    if (target == codes.NOTHING).any():
        return None
    turned = np.append(geometry.direction, codes.ANY_SIDE)
    magic = layout.fixed_kind == codes.MAGIC_WALL
    side = np.where(magic, turned[np.where(magic, layout.fixed_side, 0)], layout.fixed_side)
    same = [
        np.array_equal(of[target], of)
        for of in (
            layout.fixed_kind,
            layout.fixed_colour,
            layout.fixed_target,
            layout.fixed_enter,
            layout.fixed_solidify,
        )
    ]
    return target if all(same) and np.array_equal(layout.fixed_side[target], side) else None


def _goals(
    spec: WorldSpec, layout: Layout, geometry: Geometry, agents: Sequence[int]
) -> tuple[int, ...] | None:
    """The goal that each becomes; None where there is none like it."""
    back = np.argsort(geometry.cell)
    left = list(range(len(spec.goals)))
    images = []
    for goal, cells in enumerate(layout.goal_cells):
        human, weight = agents[spec.goals[goal].human], spec.goals[goal].weight
        image_cells = cells[back]
        like = [
            other
            for other in left
            if spec.goals[other].human == human
            and spec.goals[other].weight == weight
            and np.array_equal(layout.goal_cells[other], image_cells)
        ]
        if not like:
            return None
        images.append(like[0])
        left.remove(like[0])
    return tuple(images)


class _RowMap:
    """The image of each row; see ``layout`` for the words."""

    def __init__(
        self,
        layout: Layout,
        geometry: Geometry,
        agents: Int64[np.ndarray, " agent"],
        actions: Int64[np.ndarray, " action"],
        fixed: Int64[np.ndarray, " chosen"],
    ) -> None:
        self._layout, self._agents, self._fixed = layout, agents, fixed
        self._direction = geometry.direction.astype(np.int16)
        self._cell = geometry.cell.astype(np.int16)
        self._forced = np.append(0, actions + 1).astype(np.int16)
        places = np.concatenate([geometry.cell, layout.num_cells + agents])
        # GONE is -1, the last place of the table.
        self._place = np.concatenate([places, layout.opened + places, [codes.GONE]]).astype(
            np.int16
        )

    def __call__(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state word"]:
        """The images."""
        layout, rows = self._layout, states.numpy()
        images = rows.copy()
        per_agent = rows[:, : layout.first_item_word].reshape(len(rows), -1, codes.AGENT_WORDS)
        agent_images = per_agent.copy()
        agent_images[:, self._agents, codes.CELL] = self._cell[per_agent[:, :, codes.CELL]]
        agent_images[:, self._agents, codes.DIRECTION] = self._direction[
            per_agent[:, :, codes.DIRECTION]
        ]
        agent_images[:, self._agents, codes.FLAGS] = per_agent[:, :, codes.FLAGS]
        agent_images[:, self._agents, codes.FORCED] = self._forced[per_agent[:, :, codes.FORCED]]
        images[:, : layout.first_item_word] = agent_images.reshape(len(rows), -1)
        items = slice(layout.first_item_word, layout.first_item_word + layout.num_items)
        images[:, items] = self._place[rows[:, items]]
        for group in np.unique(layout.item_group):
            words = layout.first_item_word + np.flatnonzero(layout.item_group == group)
            images[:, words] = np.sort(images[:, words], 1)
        for thing, other in enumerate(self._fixed):
            word = layout.fixed_word[thing]
            if word != codes.NOTHING:
                column = rows[:, word]
                if layout.fixed_kind[thing] == codes.CONTROL_BUTTON:
                    column = self._renamed_button(column)
                images[:, layout.fixed_word[other]] = column
        return torch.from_numpy(images)

    def _renamed_button(self, words: Int16[np.ndarray, " state"]) -> Int16[np.ndarray, " state"]:
        """Words of a control button with agent and action renamed."""
        low = words & 3
        agent = (words >> codes.PROGRAMMED_SHIFT) & (
            1 << codes.RECORDED_SHIFT - codes.PROGRAMMED_SHIFT
        ) - 1
        action = words >> codes.RECORDED_SHIFT
        renamed = np.append(0, self._agents + 1)[agent]
        word = low | renamed << codes.PROGRAMMED_SHIFT
        word |= self._forced[action].astype(np.int64) << codes.RECORDED_SHIFT
        button_words: Int16[np.ndarray, " state"] = word.astype(np.int16)
        return button_words
