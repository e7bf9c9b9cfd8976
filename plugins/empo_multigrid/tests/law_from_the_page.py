"""The law of ``docs/explanation/transition_law.md`` (`exact` mode) as plain Python.

Written from the page by one who had not read the compiled code, and kept apart from it: it shares
the layout and the row format with the package, and nothing with ``reference_transition``. Every
rule stands here as the page says it, one agent at a time, without regard to speed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from law_effects import SWITCHES, Deeds
from situations import PORTABLE, Situation

from empo_multigrid import layout as lay
from empo_multigrid.layout import Layout


class Step(Deeds):
    """One step from one situation: conflicts and luck, as they are when it begins."""

    def __init__(
        self, start: Situation, actions: Sequence[int], events: Counter[str] | None = None
    ) -> None:
        agents = range(start.layout.num_agents)
        chosen = [int(action) for action in actions]
        able = [i for i in agents if not start.dead[i] and not start.paused[i]]
        for i in able:
            if start.forced[i] >= 0:
                chosen[i], start.forced[i] = start.forced[i], -1
        super().__init__(start, chosen, events)
        self.seen["action forced"] += chosen != list(actions)
        self.start = start
        acting = [i for i in able if self.action[i] != lay.STILL]
        self.luck = {i: self._luck(i) for i in acting}
        self.normal = [i for i in acting if self.luck[i] is None]

    def _luck(self, i: int) -> str | None:
        """What a move is left to: a magic wall, a bush, unsteady ground or nothing."""
        if self.action[i] != lay.FORWARD:
            return None
        start, layout = self.start, self.layout
        cell = start.front(i)
        if cell is not None:
            kind, index = start.fixed(cell)
            if kind == lay.MAGIC_WALL and start.word[index] and layout.can_enter_magic[i]:
                side = int(layout.fixed_side[index])
                if side in (lay.ANY_SIDE, (start.direction[i] + 2) % 4):
                    return "magic"
            if kind == lay.BUSH and not layout.tramples[i] and layout.fixed_enter[index] < 1:
                return "bush"
        # The layout says 0 where ground is not unsteady.
        return "unsteady" if layout.stumble[start.cell[i]] > 0 else None

    def blocks(self) -> list[list[int]]:
        """Normal agents in conflict, each block in the order of index."""
        parent = {i: i for i in self.normal}

        def root(i: int) -> int:
            while parent[i] != i:
                i = parent[i]
            return i

        def join(i: int, j: int) -> None:
            a, b = sorted((root(i), root(j)))
            parent[b] = a

        cells: dict[int, int] = {}
        for i in self.normal:
            cell = self._contests(i)
            if cell is not None:
                join(i, cells.setdefault(cell, i))
        switches = {}
        for i in self.normal:
            for j in self._may_stop(i):
                join(i, j)
            used = self._uses(i)
            if used is not None:
                switches[i] = used
        for i, j in itertools.combinations(switches, 2):
            (a, disabler), (b, other) = switches[i], switches[j]
            if a == b and (disabler or other):
                join(i, j)
        found = defaultdict(list)
        for i in self.normal:
            found[root(i)].append(i)
        return list(found.values())

    def _contests(self, i: int) -> int | None:
        """The cell that a normal agent's action competes for."""
        s, action = self.start, self.action[i]
        if action == lay.FORWARD:
            return self.contested(s, i)
        cell = s.front(i)
        if cell is None:
            return None
        item = s.thing(cell)
        if action == lay.PICKUP:
            return cell if item is not None and s.kind(item) in PORTABLE else None
        if action == lay.DROP:
            return cell
        if action == lay.TOGGLE and cell not in s.cell:
            if item is not None:
                return cell if s.kind(item) == lay.BOX else None
            return cell if s.fixed(cell)[0] == lay.DOOR else None
        return None

    def _button(self, i: int) -> int | None:
        """The button or switch that an agent toggles."""
        cell = self.start.front(i)
        if self.action[i] != lay.TOGGLE or cell is None:
            return None
        kind, index = self.start.fixed(cell)
        return index if kind in SWITCHES or kind == lay.CONTROL_BUTTON else None

    def _may_stop(self, i: int) -> Iterator[int]:
        """The normal agents that a kill button or pause switch works on."""
        b = self._button(i)
        if b is None or self.layout.fixed_colour[b] != self.layout.agent_colour[i]:
            return
        kind, word = int(self.layout.fixed_kind[b]), self.start.word[b]
        if (kind == lay.KILL_BUTTON and word & 1) or (kind == lay.PAUSE_SWITCH and word & 2):
            target = self.layout.fixed_target[b]
            yield from (j for j in self.normal if self.layout.agent_colour[j] == target)

    def _uses(self, i: int) -> tuple[int, bool] | None:
        """The kind of button that an agent uses (False) or flips a disabling switch of (True)."""
        b = self._button(i)
        if b is None:
            return None
        kind = int(self.layout.fixed_kind[b])
        if kind != lay.DISABLING_SWITCH:
            return kind, False
        works = self.layout.fixed_colour[b] == self.layout.agent_colour[i]
        return (int(self.layout.fixed_target[b]), True) if works else None

    def outcomes(self) -> dict[tuple[int, ...], float]:
        """All successors with their probabilities."""
        blocks = self.blocks()
        for block in blocks:
            self.seen[f"block of {len(block)}"] += 1
        lucky = [i for i, kind in self.luck.items() if kind is not None]
        self.seen["luck"] += len(lucky)
        found: dict[tuple[int, ...], float] = defaultdict(float)
        for winners in itertools.product(*blocks):
            p = 1.0
            for block in blocks:
                p /= len(block)
            s = self.start.copy()
            for i in winners:
                self.act(s, i)
            for i in self.normal:
                if i not in winners:
                    self.act(s, i)
            for q, after in self.lucky(s, lucky):
                found[after.row()] += p * q
        return dict(found)

    def lucky(self, s: Situation, agents: list[int]) -> Iterator[tuple[float, Situation]]:
        """All ways in which luck can turn out for those who were not stopped."""
        able = [i for i in agents if not s.dead[i] and not s.paused[i]]
        by = {k: [i for i in able if self.luck[i] == k] for k in ("unsteady", "magic", "bush")}
        for p, turned in self.stumbles(s, by["unsteady"]):
            for q, after in self.attempts(turned, by["magic"] + by["bush"]):
                yield p * q, after

    def stumbles(self, s: Situation, agents: list[int]) -> Iterator[tuple[float, Situation]]:
        """All ways in which agents that leave unsteady ground turn and move."""
        for turns in itertools.product((0, 3, 1), repeat=len(agents)):
            p = 1.0
            after = s.copy()
            for i, turn in zip(agents, turns, strict=True):
                chance = float(self.layout.stumble[s.cell[i]])
                p *= chance / 2 if turn else 1 - chance
                self.seen["stumble"] += bool(turn)
                after.direction[i] = (s.direction[i] + turn) % 4
            if p > 0:
                for q, moved in self.leave(after, agents):
                    yield p * q, moved

    def leave(self, s: Situation, agents: list[int]) -> Iterator[tuple[float, Situation]]:
        """Those who left unsteady ground move at once, unless a bush resists."""
        chances = {}
        for i in agents:
            cell = s.front(i)
            kind, index = s.fixed(cell) if cell is not None else (None, 0)
            if kind == lay.BUSH and not self.layout.tramples[i]:
                chances[i] = float(self.layout.fixed_enter[index])
        wanted = {i: self.contested(s, i) for i in agents}
        for entered in itertools.product((True, False), repeat=len(chances)):
            p = 1.0
            resisted = set()
            for (i, chance), enters in zip(chances.items(), entered, strict=True):
                p *= chance if enters else 1 - chance
                if not enters:
                    resisted.add(i)
            if p > 0:
                after = s.copy()
                cells = [wanted[i] for i in agents if i not in resisted]
                for i in agents:
                    alone = wanted[i] is None or cells.count(wanted[i]) == 1
                    self.seen["stumblers contest a cell"] += not alone and i not in resisted
                    self.seen["stumbler resisted by a bush"] += i in resisted
                    waiting = self.waiting(after, i)
                    if alone and i not in resisted:
                        self.move(after, i)
                    self.record(after, i, waiting)
                yield p, after

    def attempts(self, s: Situation, agents: list[int]) -> Iterator[tuple[float, Situation]]:
        """Who tries a magic wall or a bush, one after the other."""
        if not agents:
            yield 1.0, s
            return
        i, rest = agents[0], agents[1:]
        _, index = s.fixed(s.front(i))
        enter = float(self.layout.fixed_enter[index])
        ways = [(enter, "in"), (1 - enter, "fail")]
        if self.luck[i] == "magic":
            solid = float(self.layout.fixed_solidify[index])
            ways[1:] = [((1 - enter) * (1 - solid), "fail"), ((1 - enter) * solid, "solid")]
        for p, way in ways:
            if p > 0:
                self.seen[f"{self.luck[i]}: {way}"] += 1
                after = s.copy()
                waiting = self.waiting(after, i)
                if way == "in":
                    self.move(after, i, lucky=True)
                elif way == "solid":
                    after.word[index] = 0
                self.record(after, i, waiting)
                for q, last in self.attempts(after, rest):
                    yield p * q, last


def successors(
    layout: Layout,
    row: Sequence[int],
    actions: Sequence[int],
    events: Counter[str] | None = None,
) -> dict[tuple[int, ...], float]:
    """The distribution over successors of one state and joint action; counts what happens."""
    return Step(Situation(layout, row), actions, events).outcomes()
