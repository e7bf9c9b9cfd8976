"""One transition, the readable way; the batched kernel is tested against it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from empo_bushworld.layout import MOVES, Layout


def successors(
    layout: Layout, row: Sequence[int], actions: Sequence[int]
) -> dict[tuple[int, ...], float]:
    """Successor rows of a row under a joint action, with their probabilities.

    Args:
        layout: The world.
        row: Cell of each robot, cell of each human, density of each cell.
        actions: Indices into ``MOVES``, robots first.
    """
    number, robots = len(actions), len(layout.robots)
    cells, densities = list(row[:number]), list(row[number:])
    targets: dict[int, int] = {}
    for agent, action in enumerate(actions):
        x, y = cells[agent] % layout.width, cells[agent] // layout.width
        x, y = x + MOVES[action][0], y + MOVES[action][1]
        target = y * layout.width + x
        inside = 0 <= x < layout.width and 0 <= y < layout.height
        # Whoever has a lower number has claimed the cell first; a cell left now is not free.
        if inside and target not in cells and target not in targets.values():
            targets[agent] = target
    trodden = list(densities)
    for robot in range(robots):
        passes = actions[robot] == len(MOVES) - 1
        if passes or robot in targets:
            cell = cells[robot] if passes else targets[robot]
            trodden[cell] = max(0, trodden[cell] - 1)
            cells[robot] = cell
    movers = [agent for agent in targets if agent >= robots]
    chances = {agent: 1 - densities[targets[agent]] / layout.impenetrable for agent in movers}
    probabilities: dict[tuple[int, ...], float] = {}
    for outcome in itertools.product((False, True), repeat=len(movers)):
        coins = dict(zip(movers, outcome, strict=True))
        p = math.prod(chances[k] if success else 1 - chances[k] for k, success in coins.items())
        after = [targets[k] if coins.get(k) else cell for k, cell in enumerate(cells)]
        if p > 0:
            probabilities[*after, *trodden] = p
    return probabilities
