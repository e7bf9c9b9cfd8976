"""Worlds drawn as text for tests, with their successors drawn the same way."""

from __future__ import annotations

from collections.abc import Sequence

import random_worlds as rw
from reference_scene import Scene
from reference_transition import transition

from empo_multigrid.layout import (
    ACTION_SETS,
    BALL,
    BLOCK,
    BLUE,
    BOX,
    BUSH,
    CONTROL_BUTTON,
    DOOR,
    GREY,
    KEY,
    KILL_BUTTON,
    LAVA,
    MAGIC_WALL,
    PAUSE_SWITCH,
    RED,
    ROCK,
    SWITCH,
    UNSTEADY,
    WALL,
    YELLOW,
    Layout,
)

S, L, R, F, P, D, T, DONE = range(8)
ARROWS = ">v<^"
TERRAIN = {"#": WALL, "~": LAVA, "u": UNSTEADY, "s": SWITCH}
ITEMS = {
    "B": (BLOCK, GREY), "O": (ROCK, GREY), "k": (KEY, RED), "K": (KEY, BLUE), "o": (BALL, RED),
    "X": (BOX, GREY),
}  # fmt: skip
WORDS = {
    DOOR: "_|!", MAGIC_WALL: "#m", BUSH: "b.", KILL_BUTTON: "xX", PAUSE_SWITCH: "pPqQ",
}  # fmt: skip


class World:
    """A world drawn with one character per cell, rows separated by spaces.

    ``.`` empty, ``#`` wall, ``~`` lava, ``u`` unsteady ground, ``s`` switch, ``> v < ^`` agents in
    reading order, ``B`` block, ``O`` rock, ``k`` red key, ``K`` blue key, ``o`` red ball, ``X``
    box; any other character is looked up in ``legend``. What an agent stands on is ``under`` it.
    """

    def __init__(
        self,
        picture: str,
        *,
        colours: Sequence[int] = (YELLOW,) * 4,
        content: tuple[int, int] | None = None,
        stumble: float = 0.5,
        actions: str = "Actions",
        reference: bool = False,
        magic: Sequence[int] = (),
        under: dict[int, object] | None = None,
        forced: dict[int, int] | None = None,
        flags: dict[int, int] | None = None,
        held: dict[int, tuple[int, int]] | None = None,
        **legend: object,
    ) -> None:
        rows = picture.split()
        self.draft = draft = rw.Draft(len(rows[0]), len(rows), ACTION_SETS[actions])
        draft.reference = reference
        for cell, sign in enumerate("".join(rows)):
            if sign in ARROWS:
                i = len(draft.agents)
                agent = rw.Agent(cell, ARROWS.index(sign), colours[i], colours[i] == GREY)
                agent.magic = i in magic
                agent.flags, agent.forced = (flags or {}).get(i, 0), (forced or {}).get(i, -1) + 1
                draft.agents.append(agent)
                self.put(cell, (under or {}).get(i), stumble)
            elif sign in ITEMS:
                kind, colour = ITEMS[sign]
                item = rw.Item(kind, cell, colour)
                item.content = content if kind == BOX and content else item.content
                draft.items.append(item)
            else:
                self.put(cell, TERRAIN.get(sign, legend.get(sign)), stumble)
                assert sign == "." or sign in TERRAIN or sign in legend
        for i, (kind, colour) in (held or {}).items():
            draft.items.append(rw.Item(kind, draft.width * draft.height + i, colour))
        self.layout: Layout
        self.layout, self.row = draft.build()

    def put(self, cell: int, thing: object, stumble: float) -> None:
        """Place terrain or a fixed object."""
        if isinstance(thing, int):
            self.draft.terrain[cell] = thing
            self.draft.stumble[cell] = stumble if thing == UNSTEADY else 0.0
        elif isinstance(thing, dict):
            self.draft.fixed.append(rw.Fixed(cell=cell, **thing))

    def after(self, *steps: Sequence[int]) -> World:
        """This world after joint actions with certain outcomes."""
        for actions in steps:
            ((_, self.row),) = transition(self.layout, self.row, actions)
        return self

    @property
    def scene(self) -> Scene:
        """The current state, decoded."""
        return Scene.decode(self.layout, self.row)

    def next(self, *actions: int) -> dict[str, float]:
        """The pictures of all successors, with probabilities."""
        drawn: dict[str, float] = {}
        for p, row in transition(self.layout, self.row, actions):
            picture = self.picture(row)
            drawn[picture] = drawn.get(picture, 0.0) + p
        # Rounded, so that tests can compare whole dictionaries of decimal fractions.
        return {picture: round(p, 12) for picture, p in drawn.items()}

    def picture(self, row: Sequence[int] | None = None) -> str:
        """The state as drawn: agents over items over fixed objects over terrain."""
        scene = Scene.decode(self.layout, self.row if row is None else row)
        signs = []
        for cell in range(self.layout.num_cells):
            terrain = {code: sign for sign, code in TERRAIN.items()}
            sign = terrain.get(int(self.layout.terrain[cell]), ".")
            f, kind = scene.fixed_at(cell)
            if f is not None and kind in WORDS:
                sign = WORDS[kind][scene.words[f]]
            elif f is not None:
                sign = "c" if kind == CONTROL_BUTTON else "d"
            item, agent = scene.item_at(cell), scene.agent_at(cell)
            if item is not None:
                sign = {look: name for name, look in ITEMS.items()}[item.kind, item.colour]
            if agent is not None:
                dead = scene.agents[agent].terminated
                sign = "†" if dead else ARROWS[scene.agents[agent].direction]
            signs.append(sign)
        width = self.layout.width
        return " ".join("".join(signs[y : y + width]) for y in range(0, len(signs), width))


def door(state: int, colour: int = RED) -> dict[str, int]:
    return {"kind": DOOR, "word": state, "colour": colour}


def bush(enter: float) -> dict[str, float]:
    return {"kind": BUSH, "enter": enter}


def wall(side: int, enter: float = 0.5, solidify: float = 0.1) -> dict[str, float]:
    return {"kind": MAGIC_WALL, "word": 1, "side": side, "enter": enter, "solidify": solidify}


def button(kind: int, colour: int, target: int, word: int = 1) -> dict[str, int]:
    return {"kind": kind, "word": word, "colour": colour, "target": target}


KILL = button(KILL_BUTTON, YELLOW, GREY)
PAUSE = button(PAUSE_SWITCH, YELLOW, GREY, 2)
CONTROL = button(CONTROL_BUTTON, YELLOW, GREY)
