"""What single actions do, one agent at a time; part of ``law_from_the_page``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from situations import CARRIED, PORTABLE, Situation

from empo_multigrid import layout as lay

SWITCHES = (lay.KILL_BUTTON, lay.PAUSE_SWITCH, lay.DISABLING_SWITCH)


class Deeds:
    """Actions carried out in one step.

    Attributes:
        layout: The world's constant part.
        chosen: Each agent's action, by index, forced ones included.
        action: What these mean.
        closed: Cells in which a living agent stood when the step began.
        events: What has happened how often, in all that may happen.
    """

    def __init__(
        self, start: Situation, chosen: list[int], events: Counter[str] | None = None
    ) -> None:
        self.layout = start.layout
        self.chosen = chosen
        self.action = [int(self.layout.actions[c]) for c in chosen]
        self.closed = {cell for cell, dead in zip(start.cell, start.dead, strict=True) if not dead}
        self.seen: Counter[str] = Counter() if events is None else events

    def closed_to(self, s: Situation, cell: int) -> bool:
        """True if an agent is in the cell or a living one was when the step began."""
        return cell in self.closed or cell in s.cell

    def can_land(self, s: Situation, cell: int | None) -> bool:
        """True if a thing can be pushed or dropped there."""
        return (
            cell is not None
            and not self.closed_to(s, cell)
            and s.thing(cell) is None
            and s.open_ground(cell)
        )

    def can_push(self, s: Situation, i: int, pushed: Iterable[int]) -> bool:
        """True if the agent may push every rock among these things."""
        return bool(self.layout.can_push_rocks[i]) or all(s.kind(k) != lay.ROCK for k in pushed)

    def contested(self, s: Situation, i: int) -> int | None:
        """The cell that a move contests: its target, or where the last pushed thing lands."""
        pushed, behind = s.chain(i)
        if not pushed:
            return s.front(i)
        if self.closed_to(s, s.front(i)) or not self.can_push(s, i, pushed):
            return None
        return behind if self.can_land(s, behind) else None

    def act(self, s: Situation, i: int) -> None:
        """A normal agent acts, unless it has been stopped."""
        if s.dead[i] or s.paused[i]:
            self.seen["stopped before acting"] += 1
            return
        action = self.action[i]
        waiting = self.waiting(s, i)
        if action in (lay.LEFT, lay.RIGHT):
            s.direction[i] = (s.direction[i] + (1 if action == lay.RIGHT else 3)) % 4
        elif action == lay.FORWARD:
            self.move(s, i)
        elif action in (lay.PICKUP, lay.DROP, lay.TOGGLE):
            begun = self.handle(s, i, action)
            waiting = [b for b in waiting if b != begun]
        self.record(s, i, waiting)

    def record(self, s: Situation, i: int, waiting: list[int]) -> None:
        """Buttons that waited for this agent's action have it now."""
        for b in waiting:
            self.seen["action recorded"] += 1
            enabled = s.word[b] & 1
            s.word[b] = enabled | (s.word[b] >> 2 & 63) << 2 | self.chosen[i] + 1 << 8

    def waiting(self, s: Situation, i: int) -> list[int]:
        """The control buttons that wait for an agent's next action."""
        return [
            b
            for b in range(len(s.word))
            if self.layout.fixed_kind[b] == lay.CONTROL_BUTTON
            and s.word[b] & 2
            and s.word[b] >> 2 & 63 == i + 1
        ]

    def move(self, s: Situation, i: int, *, lucky: bool = False) -> None:
        """One cell forward, if possible; ``lucky`` who is let in by a bush or magic wall."""
        target = s.front(i)
        if target is None or self.closed_to(s, target):
            vacated = target is not None and target not in s.cell
            self.seen["move into a vacated cell"] += vacated
            return
        pushed, behind = s.chain(i)
        if pushed:
            if not (self.can_push(s, i, pushed) and self.can_land(s, behind)):
                return
            self.seen["push of a row" if len(pushed) > 1 else "push"] += 1
            self.seen["push of a rock"] += any(s.kind(item) == lay.ROCK for item in pushed)
            for item in reversed(pushed):
                y, x = divmod(s.place[item], self.layout.width)
                s.place[item] = s.beyond(x, y, s.direction[i])
        elif s.thing(target) is not None:
            return
        kind, index = s.fixed(target)
        if kind == lay.BUSH:
            if self.layout.tramples[i]:
                self.seen["trample"] += 1
                s.word[index] = 1
        elif not lucky and not s.open_ground(target):
            return
        self.seen["move"] += 1
        s.cell[i] = target
        if self.layout.terrain[target] == lay.LAVA:
            self.seen["lava"] += 1
            s.dead[i] = True

    def handle(self, s: Situation, i: int, action: int) -> int | None:
        """Pick up, drop or toggle; the control button whose programming began."""
        cell = s.front(i)
        if cell is None:
            return None
        carried = s.thing(CARRIED + i)
        item = s.thing(cell)
        if action == lay.PICKUP:
            if item is not None and carried is None and s.kind(item) in PORTABLE:
                self.seen["pickup"] += 1
                s.place[item] = CARRIED + i
        elif action == lay.DROP:
            doorway = s.fixed(cell)[0] == lay.DOOR
            if carried is not None and not doorway and self.can_land(s, cell):
                self.seen["drop"] += 1
                s.place[carried] = cell
        elif cell in s.cell:
            return None
        elif item is not None:
            if s.kind(item) == lay.BOX:
                self.seen["box opened"] += 1
                if self.layout.item_content_kind[item] == lay.NOTHING:
                    s.place[item] = None
                else:
                    s.opened[item] = True
        else:
            return self.toggle(s, i, carried, *s.fixed(cell))
        return None

    def toggle(
        self, s: Situation, i: int, carried: int | None, kind: int | None, b: int
    ) -> int | None:
        """Use what stays in its cell; the control button whose programming began."""
        layout, colour = self.layout, self.layout.agent_colour[i]
        if kind == lay.DOOR:
            fits = (
                carried is not None
                and s.kind(carried) == lay.KEY
                and s.colour(carried) == layout.fixed_colour[b]
            )
            if s.word[b] == lay.DOOR_OPEN:
                self.seen["door shut"] += 1
                s.word[b] = lay.DOOR_CLOSED
            elif s.word[b] == lay.DOOR_CLOSED or fits:
                self.seen["door opened" if s.word[b] == lay.DOOR_CLOSED else "door unlocked"] += 1
                s.word[b] = lay.DOOR_OPEN
        elif kind == lay.CONTROL_BUTTON and s.word[b] & 1:
            if colour == layout.fixed_target[b]:
                self.seen["button programmed"] += 1
                s.word[b] = 3 | i + 1 << lay.PROGRAMMED_SHIFT
                return b
            programmed, held = (s.word[b] >> 2 & 63) - 1, (s.word[b] >> lay.RECORDED_SHIFT) - 1
            if colour == layout.fixed_colour[b] and programmed >= 0 and held >= 0:
                self.seen["button triggered"] += 1
                s.forced[programmed] = held
        elif kind in SWITCHES and colour == layout.fixed_colour[b]:
            self.switch(s, kind, b)
        return None

    def switch(self, s: Situation, kind: int, b: int) -> None:
        """Use a kill button, pause switch or disabling switch of the right colour."""
        if kind == lay.KILL_BUTTON and s.word[b]:
            self.seen["kill"] += 1
            for j in self.targets(b):
                s.dead[j] = True
        elif kind == lay.PAUSE_SWITCH and s.word[b] & 2:
            s.word[b] ^= 1
            self.seen["pause" if s.word[b] & 1 else "release"] += 1
            for j in self.targets(b):
                s.paused[j] = bool(s.word[b] & 1)
        elif kind == lay.DISABLING_SWITCH:
            for other, its_kind in enumerate(self.layout.fixed_kind.tolist()):
                if its_kind == self.layout.fixed_target[b]:
                    self.disable(s, other, its_kind)

    def disable(self, s: Situation, b: int, kind: int) -> None:
        """Disable an enabled button or switch, or enable a disabled one."""
        self.seen["button disabled or enabled"] += 1
        if kind != lay.PAUSE_SWITCH:
            s.word[b] ^= 1
            return
        if s.word[b] & 1:
            self.seen["release by disabling"] += 1
            for j in self.targets(b):
                s.paused[j] = False
        s.word[b] = 0 if s.word[b] & 2 else 2

    def targets(self, b: int) -> list[int]:
        """The agents of a button's target colour."""
        return np.flatnonzero(self.layout.agent_colour == self.layout.fixed_target[b]).tolist()
