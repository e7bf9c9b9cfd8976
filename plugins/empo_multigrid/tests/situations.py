"""A state row of a multigrid world taken apart, for ``law_from_the_page``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from empo_multigrid import layout as lay
from empo_multigrid.layout import Layout

CARRIED = 10_000
"""Added to an agent's index: the place of what it carries."""

PUSHABLE = (lay.BLOCK, lay.ROCK)
PORTABLE = (lay.KEY, lay.BALL, lay.BOX)


class Situation:
    """A state row taken apart. Lists by agent, item and fixed object."""

    def __init__(self, layout: Layout, row: Sequence[int]) -> None:
        words = [int(word) for word in row]
        n = layout.num_agents
        self.layout = layout
        self.cell = words[0 : 4 * n : 4]
        self.direction = words[1 : 4 * n : 4]
        self.dead = [bool(flags & lay.TERMINATED) for flags in words[2 : 4 * n : 4]]
        self.paused = [bool(flags & lay.PAUSED) for flags in words[2 : 4 * n : 4]]
        self.forced = [word - 1 for word in words[3 : 4 * n : 4]]
        self.place: list[int | None] = []
        self.opened: list[bool] = []
        for word in words[4 * n : 4 * n + layout.num_items]:
            opened = word >= layout.opened
            spot = word - layout.opened if opened else word
            self.opened.append(opened)
            if spot == lay.GONE:
                self.place.append(None)
            else:
                last = spot - layout.num_cells
                self.place.append(spot if last < 0 else CARRIED + last)
        self.word = [words[at] if at >= 0 else 0 for at in layout.fixed_word.tolist()]

    def copy(self) -> Situation:
        other = object.__new__(Situation)
        other.layout = self.layout
        for name in ("cell", "direction", "dead", "paused", "forced", "place", "opened", "word"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def row(self) -> tuple[int, ...]:
        """The canonical row: words of items that cannot be told apart are sorted."""
        layout, words = self.layout, []
        for i in range(layout.num_agents):
            flags = self.dead[i] * lay.TERMINATED | self.paused[i] * lay.PAUSED
            words += [self.cell[i], self.direction[i], flags, self.forced[i] + 1]
        groups = defaultdict(list)
        for item, place in enumerate(self.place):
            word = lay.GONE if place is None else place
            if word >= CARRIED:
                word += layout.num_cells - CARRIED
            groups[layout.item_group[item]].append(word + self.opened[item] * layout.opened)
        for group in sorted(groups):
            words += sorted(groups[group])
        words += [0] * (layout.state_words - len(words))
        for fixed, at in enumerate(layout.fixed_word.tolist()):
            if at >= 0:
                words[at] = self.word[fixed]
        return tuple(words)

    def front(self, agent: int) -> int | None:
        """The cell that an agent faces; beyond the edge is nothing."""
        y, x = divmod(self.cell[agent], self.layout.width)
        return self.beyond(x, y, self.direction[agent])

    def beyond(self, x: int, y: int, direction: int) -> int | None:
        x, y = x + lay.DX[direction], y + lay.DY[direction]
        inside = 0 <= x < self.layout.width and 0 <= y < self.layout.height
        return y * self.layout.width + x if inside else None

    def thing(self, spot: int) -> int | None:
        """The item that lies in a cell, or is carried."""
        return self.place.index(spot) if spot in self.place else None

    def kind(self, item: int) -> int:
        table = self.layout.item_content_kind if self.opened[item] else self.layout.item_kind
        return int(table[item])

    def colour(self, item: int) -> int:
        table = self.layout.item_content_colour if self.opened[item] else self.layout.item_colour
        return int(table[item])

    def fixed(self, cell: int) -> tuple[int | None, int]:
        """Kind and index of what is fixed here; no kind where nothing is, or a trampled bush."""
        index = int(self.layout.fixed_at[cell])
        if index == lay.NOTHING:
            return None, index
        kind = int(self.layout.fixed_kind[index])
        return (None if kind == lay.BUSH and self.word[index] else kind), index

    def open_ground(self, cell: int) -> bool:
        """True if a cell, but for who or what is in it, is walked on freely or an open door."""
        kind, index = self.fixed(cell)
        if kind is None:
            return int(self.layout.terrain[cell]) != lay.WALL
        return kind == lay.DOOR and self.word[index] == lay.DOOR_OPEN

    def chain(self, agent: int) -> tuple[list[int], int | None]:
        """What a move of the agent would push, nearest first, and the cell behind all of it."""
        pushed: list[int] = []
        cell = self.front(agent)
        while cell is not None:
            item = self.thing(cell)
            if item is None or self.kind(item) not in PUSHABLE:
                break
            pushed.append(item)
            y, x = divmod(cell, self.layout.width)
            cell = self.beyond(x, y, self.direction[agent])
        return pushed, cell
