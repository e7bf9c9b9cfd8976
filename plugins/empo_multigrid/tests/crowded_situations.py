"""Random small worlds full of agents and objects, and random states and joint actions in them.

Everything follows from a seed. States are constructed, not played into: agents carry things, are
paused, terminated, forced or waited for, doors stand open with blocks in them, and so on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from situations import CARRIED, PORTABLE, Situation

from empo_multigrid import layout as lay
from empo_multigrid.world import MultigridWorld, world_from_dict

PER_WORLD = 20
SIZES = ((2, 2), (3, 2), (3, 3), (3, 3), (4, 3), (4, 3), (6, 1), (4, 4))
COLOURS = ("yellow", "grey", "red")
CHANCES = (0.0, 0.25, 0.4, 1.0)
THEMES = (
    ("Or", "Cr", "Lr", "Kr", "Kr", "Bl"),
    ("Xr", "Xg", "Kr", "Br", "Un", "La", "Sw"),
    ("Bl", "Bl", "Ro", "Ro", "Un", "La", "Or", "Sw", "Wr"),
    ("Un", "Un", "Un", "Un", "Bl", "Ro"),
    ("Un", "Un", "Un", "Bu"),
    ("Bu", "Bu", "Un", "Gr"),
    ("Bl", "Bl", "Bl", "Ro"),
    ("Ma", "Ma", "Mn", "Ms", "Mw", "Me", "Un", "Fr"),
    ("Kb", "Ki", "Dk", "Un"),
    ("Ps", "Ps", "Dp", "Dp", "Pa"),
    ("Ps", "Kb", "Dp", "Un"),
    ("Un", "Un", "Bl", "Bl", "Ro", "Ro"),
    ("CB", "CB", "DC"),
    ("Lr", "Lr", "Cr", "Kr", "Kr", "Kg", "Xr"),
)
"""Codes of objects that have to do with one another."""
COMMON = ("..", "..", "Un", "La", "Bl", "Kr", "Wr")
ACTIONS = {
    "still": 0.5, "left": 1, "right": 1, "forward": 16, "pickup": 0.5, "drop": 0.5, "toggle": 0.5,
    "done": 0.3,
}  # fmt: skip


class Crowd(NamedTuple):
    """One world with some of its states and a joint action for each."""

    world: MultigridWorld
    rows: np.ndarray
    actions: np.ndarray


def crowds(seed: int, situations: int) -> Iterator[Crowd]:
    """Crowded situations, world by world; ``situations`` in all."""
    for number in range(situations // PER_WORLD):
        rng = random.Random(f"{seed} {number}")
        world = world_from_dict(_world(rng))
        drawn = [_state(rng, world.layout) for _ in range(PER_WORLD)]
        rows = np.array([state.row() for state in drawn], np.int16)
        actions = np.array([_joint_action(rng, state) for state in drawn], np.int64)
        yield Crowd(world, rows, actions)


def _world(rng: random.Random) -> dict[str, Any]:
    width, height = rng.choice(SIZES)
    cells = width * height
    agents = rng.choice([2, 3, 4, 4]) if cells > 5 else 2
    empty = rng.choice([0.3, 0.5, 0.7])
    codes = [code for theme in rng.sample(THEMES, rng.choice([1, 1, 2])) for code in theme]
    filled = [
        ".." if rng.random() < empty else rng.choice(codes if rng.random() < 0.8 else COMMON)
        for _ in range(cells)
    ]
    for i, cell in enumerate(rng.sample(range(cells), agents)):
        filled[cell] = "A" + ("ye"[i] if i < 2 else rng.choice("yer"))
    objects = {
        f"{cell % width},{cell // width}": given
        for cell, code in enumerate(filled)
        if (given := _object(rng, code))
    }
    return {
        "map": [filled[y * width : (y + 1) * width] for y in range(height)],
        "action_class": "Actions",
        "stumble_probability": rng.choice(CHANCES),
        "solidify_probability": rng.choice(CHANCES),
        "can_push_rocks": rng.choice(["", "e", "y", "ye"]),
        "agents": {str(i): {"can_enter_magic_walls": rng.random() < 0.4} for i in range(agents)},
        "humans": [0],
        "robots": [1],
        "objects": objects,
    }


def _object(rng: random.Random, code: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if code[0] == "X" and rng.random() < 0.7:
        given["contains"] = rng.choice(["Kr", "Kg", "Br"])
    if code == "Bu" or code[0] == "M":
        given["enter_probability"] = rng.choice(CHANCES)
    if code == "Un":
        given["stumble_probability"] = rng.choice(CHANCES)
    switch = code in ("Dk", "Dp", "DC")
    button = code in ("Kb", "Ki", "Ps", "Pa", "CB")
    if (button or switch) and rng.random() < 0.5:
        given["trigger_colour"] = rng.choice(COLOURS)
    if button and rng.random() < 0.5:
        given["target_colour"] = rng.choice(COLOURS)
    return given


def _state(rng: random.Random, layout: lay.Layout) -> Situation:
    """Any situation that obeys what play keeps: one thing or agent a cell, both on open ground.

    Most agents face one of two cells, some with another cell between, where blocks then lie.
    """
    s = Situation(layout, [0] * layout.state_words)
    for fixed, kind in enumerate(layout.fixed_kind.tolist()):
        s.word[fixed] = _word(rng, layout, kind)
    cells = list(range(layout.num_cells))
    wanted = rng.sample(cells + layout.fixed_cell.tolist() * 3, 2)
    between: list[int] = []
    odds = rng.choice([(1, 0), (4, 1), (1, 1)])
    for i in rng.sample(range(layout.num_agents), layout.num_agents):
        free = [c for c in cells if _may_stand(s, i, c)]
        places = [(c, rng.randrange(4), []) for c in free if c not in wanted]
        goal = rng.choices(wanted, odds)[0]
        facing = [place for place in _facing(layout, goal) if place[0] in free]
        if facing and rng.random() < 0.95:
            unsteady = [place for place in facing if layout.terrain[place[0]] == lay.UNSTEADY]
            places = facing + 2 * unsteady
        cell, s.direction[i], middle = rng.choice(places or [(rng.choice(free), 0, [])])
        s.cell[i] = cell
        cells.remove(cell)
        between += middle
        s.dead[i] = rng.random() < 0.03 or layout.terrain[cell] == lay.LAVA
        s.paused[i] = rng.random() < 0.05
        s.forced[i] = rng.randrange(len(layout.actions)) if rng.random() < 0.06 else -1
    for item in rng.sample(range(layout.num_items), layout.num_items):
        s.opened[item] = layout.item_content_kind[item] != lay.NOTHING and rng.random() < 0.3
        spots = [c for c in cells if s.open_ground(c)]
        near = [c for c in spots if c in (wanted if s.kind(item) in PORTABLE else between)]
        if s.kind(item) in PORTABLE:
            hands = [CARRIED + i for i in range(layout.num_agents) if s.thing(CARRIED + i) is None]
            spots = spots * (rng.random() < 0.5) + hands or spots
        spot = rng.choice(near if near and rng.random() < 0.6 else spots)
        s.place[item] = spot
        if spot < CARRIED:
            cells.remove(spot)
    return s


def _facing(layout: lay.Layout, goal: int) -> list[tuple[int, int, list[int]]]:
    """Where to stand and how to face a cell, and the cells between."""
    found: list[tuple[int, int, list[int]]] = []
    y, x = divmod(goal, layout.width)
    pushable = (layout.item_kind <= lay.ROCK).any()
    for direction in range(4):
        step = lay.DX[direction] + lay.DY[direction] * layout.width
        for far in (1, 1, 1, 2, 3) if pushable else (1,):
            to_x, to_y = x - far * lay.DX[direction], y - far * lay.DY[direction]
            if 0 <= to_x < layout.width and 0 <= to_y < layout.height:
                found.append(
                    (goal - far * step, direction, [goal - k * step for k in range(1, far)])
                )
    return found


def _may_stand(s: Situation, i: int, cell: int) -> bool:
    kind, _ = s.fixed(cell)
    entered = (kind == lay.BUSH and not s.layout.tramples[i]) or (
        kind == lay.MAGIC_WALL and s.layout.can_enter_magic[i]
    )
    return bool(entered) or s.open_ground(cell)


def _word(rng: random.Random, layout: lay.Layout, kind: int) -> int:
    if kind == lay.DOOR:
        return rng.choice([lay.DOOR_OPEN, lay.DOOR_CLOSED, lay.DOOR_LOCKED, lay.DOOR_LOCKED])
    if kind in (lay.MAGIC_WALL, lay.KILL_BUTTON):
        return int(rng.random() < 0.75)
    if kind == lay.BUSH:
        return int(rng.random() < 0.25)
    if kind == lay.PAUSE_SWITCH:
        return rng.choice([0, 2, 3, 3])
    if kind == lay.CONTROL_BUTTON:
        word = int(rng.random() < 0.8)
        if rng.random() < 0.75:
            word |= rng.randint(1, layout.num_agents) << lay.PROGRAMMED_SHIFT
            recorded = rng.randint(0, len(layout.actions))
            awaiting = recorded == 0 or rng.random() < 0.5
            word |= recorded << lay.RECORDED_SHIFT | 2 * awaiting
        return word
    return 0


def _joint_action(rng: random.Random, s: Situation) -> list[int]:
    """Mostly actions that make sense in front of what there is."""
    chosen = []
    for i in range(s.layout.num_agents):
        weights = dict(ACTIONS)
        front = s.front(i)
        if front is not None:
            kind, _ = s.fixed(front)
            item = s.thing(front)
            if item is not None and s.kind(item) in PORTABLE:
                weights["pickup"] = 8
                weights["toggle"] = 8 if s.kind(item) == lay.BOX else 1
            elif item is None and kind is not None and kind not in (lay.BUSH, lay.MAGIC_WALL):
                weights["toggle"] = 12 if kind == lay.DOOR else 40
            elif item is None and s.thing(CARRIED + i) is not None:
                weights["drop"] = 8
        chosen.append(rng.choices(range(len(ACTIONS)), list(weights.values()))[0])
    return chosen
