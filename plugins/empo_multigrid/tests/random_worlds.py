"""Layouts and rows for tests: put together by hand, or drawn at random with every object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import strategies as st
from reference_scene import Scene

from empo_multigrid.layout import (
    ACTION_SETS,
    ANY_SIDE,
    BALL,
    BLOCK,
    BOX,
    BUSH,
    COLOURS,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    DOOR,
    DOOR_OPEN,
    DROP,
    EMPTY,
    FLOOR,
    FORWARD,
    GOAL_SQUARE,
    GONE,
    GREY,
    KEY,
    KILL_BUTTON,
    LAVA,
    LEFT,
    MAGIC_WALL,
    NOTHING,
    PAUSE_SWITCH,
    PICKUP,
    RIGHT,
    ROCK,
    STILL,
    SWITCH,
    TOGGLE,
    UNSTEADY,
    WALL,
    Layout,
)

BUTTONS = (KILL_BUTTON, PAUSE_SWITCH, CONTROL_BUTTON)


@dataclass
class Agent:
    """An agent and how it starts."""

    cell: int
    direction: int = 0
    colour: int = GREY
    rocks: bool = False
    magic: bool = False
    flags: int = 0
    forced: int = 0


@dataclass
class Item:
    """An item and its place."""

    kind: int
    place: int
    colour: int = GREY
    content: tuple[int, int] = (NOTHING, NOTHING)

    @property
    def look(self) -> tuple[int, ...]:
        """Properties that distinguish items: kind, colour and content."""
        return (self.kind, self.colour, *self.content)


@dataclass
class Fixed:
    """An object that stays in its cell, and its word."""

    kind: int
    cell: int
    word: int = 0
    colour: int = NOTHING
    target: int = NOTHING
    side: int = ANY_SIDE
    enter: float = 0.5
    solidify: float = 0.1


@dataclass
class Draft:
    """A world to be put together."""

    width: int
    height: int
    actions: tuple[int, ...] = ACTION_SETS["Actions"]
    terrain: dict[int, int] = field(default_factory=dict)
    stumble: dict[int, float] = field(default_factory=dict)
    agents: list[Agent] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    fixed: list[Fixed] = field(default_factory=list)
    masked: set[tuple[int, int, int]] = field(default_factory=set)
    reference: bool = False

    def build(self) -> tuple[Layout, tuple[int, ...]]:
        """The layout, and the row of the world as drafted."""
        cells = self.width * self.height
        items = sorted(self.items, key=lambda item: item.look)
        looks = sorted({item.look for item in items})
        mask = np.ones((len(self.agents), cells, len(self.actions)), bool)
        for entry in self.masked:
            mask[entry] = False
        fixed_at = np.full(cells, NOTHING, np.int16)
        for f, thing in enumerate(self.fixed):
            fixed_at[thing.cell] = f
        row = [w for a in self.agents for w in (a.cell, a.direction, a.flags, a.forced)]
        row += [place for _, place in sorted((item.look, item.place) for item in items)]
        positions = []
        for thing in self.fixed:
            positions.append(NOTHING if thing.kind == DISABLING_SWITCH else len(row))
            row += [] if thing.kind == DISABLING_SWITCH else [thing.word]
        agents, fixed = self.agents, self.fixed
        layout = Layout(
            width=self.width,
            height=self.height,
            actions=ints(self.actions),
            terrain=ints(self.terrain.get(cell, EMPTY) for cell in range(cells)),
            terrain_colour=ints([GREY] * cells),
            stumble=np.array([self.stumble.get(cell, 0.0) for cell in range(cells)]),
            agent_colour=ints(a.colour for a in agents),
            can_push_rocks=np.array([a.rocks for a in agents], bool),
            can_enter_magic=np.array([a.magic for a in agents], bool),
            tramples=np.array([a.colour == GREY or a.rocks or a.magic for a in agents], bool),
            action_mask=mask,
            item_kind=ints(item.kind for item in items),
            item_colour=ints(item.colour for item in items),
            item_content_kind=ints(item.content[0] for item in items),
            item_content_colour=ints(item.content[1] for item in items),
            item_group=ints(looks.index(item.look) for item in items),
            fixed_kind=ints(thing.kind for thing in fixed),
            fixed_cell=ints(thing.cell for thing in fixed),
            fixed_at=fixed_at,
            fixed_word=ints(positions),
            fixed_colour=ints(thing.colour for thing in fixed),
            fixed_target=ints(thing.target for thing in fixed),
            fixed_side=ints(thing.side for thing in fixed),
            fixed_enter=np.array([thing.enter for thing in fixed], np.float64),
            fixed_solidify=np.array([thing.solidify for thing in fixed], np.float64),
            goal_human=ints([0]),
            goal_cells=np.ones((1, cells), bool),
            reference=self.reference,
        )
        return layout, tuple(int(word) for word in row)


def ints(values: object) -> np.ndarray:
    """An int16 array of an iterable."""
    return np.array(list(values), np.int16)  # type: ignore[call-overload]


CONTENTS = {
    "empty": 8, "wall": 2, "lava": 2, "unsteady": 5, "ground": 2, "pushable": 5, "item": 3,
    "door": 2, "magic": 2, "bush": 3, "button": 3,
}  # fmt: skip

FOCUSES = (
    *CONTENTS, "button", "button", "button", "item", "door", "magic", "unsteady", "pushable",
)  # fmt: skip


def random_draft(random: Random) -> Draft:
    """A small crowded world, in a state that need not be reachable but makes sense."""
    arena = random.random() < 0.6
    width, height = (5, 3) if arena else (random.randint(1, 6), random.randint(1, 4))
    actions = random.choice([*ACTION_SETS.values(), *[ACTION_SETS["Actions"]] * 3])
    draft = Draft(width, height, actions, reference=random.random() < 0.5)
    palette = random.sample(range(len(COLOURS)), random.choice([1, 2, 2, 3]))
    num_agents = min(random.choice([1, 2, 2, 3, 3, 4, 4]), width * height)
    # In an arena the agents stand around two cells, and mostly look at one of them.
    hubs = {6, 8} if arena else set()
    standing = random.sample(
        [1, 3, 5, 7, 9, 11, 13] if arena else range(width * height), num_agents
    )
    # One kind of thing per world, much of it, makes for more encounters than a bit of all.
    focus, weights = random.choice(FOCUSES), dict(CONTENTS)
    if random.random() < 0.75:
        weights = {"empty": 8, focus: 12, random.choice(list(CONTENTS)): 3}
    for cell in range(width * height):
        contents = random.choices(list(weights), list(weights.values()))[0]
        if contents == "empty" and cell in hubs:
            contents = focus
        furnish(draft, random, cell, contents, palette, cell in standing, num_agents)
    for i, cell in enumerate(standing):
        colour = random.choice(palette)
        agent = Agent(cell, random_direction(random, draft, cell, hubs), colour)
        agent.rocks = random.random() < 0.5
        agent.magic = random.random() < 0.5
        agent.flags = random.choice([0] * 20 + [1, 2, 3])
        agent.forced = random.choice([0] * 15 + [random.randint(1, len(actions))])
        draft.agents.append(agent)
        if random.random() < 0.4:
            draft.items.append(random_item(random, palette, width * height + i))
    for item in draft.items:
        item.place = opened(random, draft, item)
    if random.random() < 0.2:
        draft.masked = {
            (i, random.randrange(width * height), random.randrange(len(actions)))
            for i in range(num_agents)
            for _ in range(width * height)
        }
    return draft


def random_direction(random: Random, draft: Draft, cell: int, hubs: set[int]) -> int:
    """Mostly a direction in which the grid goes on and where something is, best of all a hub."""
    x, y = cell % draft.width, cell // draft.width
    inside = [x + 1 < draft.width, y + 1 < draft.height, x > 0, y > 0]
    objects = {thing.cell for thing in draft.fixed} | {item.place for item in draft.items}
    steps = (1, draft.width, -1, -draft.width)
    weights = [
        1 + 9 * ahead + 30 * (ahead and cell + step in objects) + 300 * (cell + step in hubs)
        for ahead, step in zip(inside, steps, strict=True)
    ]
    return random.choices(range(4), weights)[0]


def random_item(random: Random, palette: list[int], place: int) -> Item:
    """A key, a ball or a box."""
    item = Item(random.choice([KEY, BALL, BOX]), place, random.choice(palette))
    if item.kind == BOX and random.random() < 0.7:
        item.content = random.choice([KEY, BALL]), random.choice(palette)
    return item


def opened(random: Random, draft: Draft, item: Item) -> int:
    """The place of an item, of which boxes may have been opened."""
    if item.kind != BOX or random.random() < 0.6:
        return item.place
    if item.content[0] == NOTHING:
        return GONE
    return item.place + draft.width * draft.height + len(draft.agents)


def furnish(
    draft: Draft,
    random: Random,
    cell: int,
    contents: str,
    palette: list[int],
    is_occupied: bool,
    num_agents: int,
) -> None:
    """Fill a cell; what an agent cannot share a cell with is left out where one stands."""
    if contents in ("wall", "pushable", "item", "button") and is_occupied:
        return
    ground = random.choice([EMPTY, EMPTY, LAVA, UNSTEADY, SWITCH, GOAL_SQUARE, FLOOR])
    if contents == "wall":
        draft.terrain[cell] = WALL
    elif contents == "lava":
        draft.terrain[cell] = LAVA
    elif contents == "unsteady" or (contents in ("ground", "pushable", "item")):
        draft.terrain[cell] = UNSTEADY if contents == "unsteady" else ground
    if draft.terrain.get(cell) == UNSTEADY:
        draft.stumble[cell] = random.choice([0.5, 0.5, 0.3, 0.0, 1.0])
    chance = random.choice([0.5, 0.7, 1.0, 0.0, 0.25])
    if contents == "pushable":
        # Blocks may have been pushed into open doors and over trampled bushes.
        under = random.choice([None] * 4 + [Fixed(DOOR, cell, DOOR_OPEN, palette[0])])
        under = random.choice([under] * 4 + [Fixed(BUSH, cell, 1, enter=chance)])
        if under:
            draft.terrain[cell] = EMPTY
            draft.stumble.pop(cell, None)
            draft.fixed.append(under)
        colour = random.choice(palette)
        draft.items.append(Item(random.choice([BLOCK, ROCK]), cell, colour))
    elif contents == "item":
        draft.items.append(random_item(random, palette, cell))
    elif contents == "door":
        state = DOOR_OPEN if is_occupied else random.randrange(3)
        draft.fixed.append(Fixed(DOOR, cell, state, random.choice(palette)))
    elif contents == "magic":
        solidify = random.choice([0.1, 0.0, 1.0])
        wall = Fixed(MAGIC_WALL, cell, int(random.random() < 0.8), side=random.randrange(5))
        wall.enter, wall.solidify = chance, solidify
        draft.fixed.append(wall)
    elif contents == "bush":
        draft.fixed.append(Fixed(BUSH, cell, int(random.random() < 0.2), enter=chance))
    elif contents == "button":
        draft.fixed.append(random_button(draft, random, cell, palette, num_agents))


def random_button(
    draft: Draft, random: Random, cell: int, palette: list[int], num_agents: int
) -> Fixed:
    """A button or switch in some state."""
    kind = random.choice([*BUTTONS, DISABLING_SWITCH])
    target = random.choice(BUTTONS if kind == DISABLING_SWITCH else palette)
    button = Fixed(kind, cell, colour=random.choice(palette), target=target)
    if kind == KILL_BUTTON:
        button.word = random.randrange(2)
    elif kind == PAUSE_SWITCH:
        button.word = random.randrange(4)
    elif kind == CONTROL_BUTTON:
        programmed = random.randint(0, num_agents)
        awaiting = int(programmed > 0 and random.random() < 0.5)
        # Only in reference mode is an old action kept while a new one is awaited.
        none = awaiting and not draft.reference
        recorded = 0 if none else random.randint(0, len(draft.actions))
        enabled = int(random.random() < 0.8)
        button.word = enabled | awaiting << 1 | programmed << 2 | recorded << 8
    return button


def random_actions(random: Random, layout: Layout, row: Sequence[int]) -> list[int]:
    """A joint action in which most agents do something that can have an effect."""
    scene, verbs = Scene.decode(layout, row), layout.actions.tolist()
    # Now and then only one agent does more than turning, for the shortcuts of reference mode.
    busy = random.choice([None, None, None, random.randrange(layout.num_agents)])
    chosen = []
    for i in range(layout.num_agents):
        verb = random.choice(fitting_verbs(scene, i))
        if busy not in (None, i):
            verb = random.choice([STILL, STILL, LEFT, RIGHT])
        if verb not in verbs or random.random() < 0.15:
            verb = random.choice(verbs)
        chosen.append(verbs.index(verb))
    return chosen


def fitting_verbs(scene: Scene, i: int) -> list[int]:
    """Verbs that fit the object in front of an agent."""
    item, (_, kind) = scene.item_at(scene.faced(i)), scene.fixed_at(scene.faced(i))
    if item is not None:
        return [FORWARD] if item.kind in (BLOCK, ROCK) else [PICKUP, TOGGLE]
    if kind == DOOR:
        return [TOGGLE, FORWARD]
    if kind in (*BUTTONS, DISABLING_SWITCH):
        return [TOGGLE]
    return [FORWARD] * 3 + [DROP] if scene.carried(i) else [FORWARD]


World = tuple[Layout, tuple[int, ...], Random]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A layout, a row, and a source of randomness that shrinks with them."""
    random = draw(st.randoms(use_true_random=False))
    layout, row = random_draft(random).build()
    return layout, row, random
