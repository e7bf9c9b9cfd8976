"""The goals of a world file, and whether they cover what can be walked on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from empo_core.config.yaml import Loc
from empo_core.types import Goal
from empo_multigrid.file.mapcodes import Code
from empo_multigrid.file.problems import Problems
from empo_multigrid.file.worldfile import GoalEntry, WorldFile
from empo_multigrid.layout import DOOR, LAVA, WALL, Bools

MAX_GOAL_CELLS = 10**8
_SHOWN_CELLS = 8


class Goals(NamedTuple):
    """All goals, human by human, and the cells of each ``[goal cell]``."""

    goals: tuple[Goal, ...]
    cells: Bools


def compile_goals(
    file: WorldFile, codes: list[Code], size: tuple[int, int], humans: list[int], problems: Problems
) -> Goals:
    """Every human's goals, in the order of the file."""
    for human in file.goals:
        if human not in humans:
            problems.add(("goals", human), f"agent {human} is no human; humans: {humans}")
    lists: list[tuple[Loc, list[GoalEntry]]] = [
        (("goals", human), entries) for human, entries in file.goals.items()
    ]
    if file.possible_goals:
        lists.append((("possible_goals",), file.possible_goals))
    for loc, entries in lists:
        _check_entries(loc, entries, size, problems)
    problems.check()

    count = sum(len(_entries(file, human)) for human in humans)
    if count * len(codes) > MAX_GOAL_CELLS:
        problems.add(
            (lists[0][0] if lists else ()),
            f"{count:,} goals on {len(codes):,} cells are too many; "
            f"their product may be {MAX_GOAL_CELLS:,}",
        )
        problems.check()
    _warn_of_walls(lists, codes, size[0], problems)
    goals: list[Goal] = []
    cells = np.zeros((count, len(codes)), dtype=np.bool_)
    for human in humans:
        entries = _entries(file, human)
        for entry, name in zip(entries, _names(entries), strict=True):
            _mark(cells[len(goals)], entry, size[0])
            weight = 1 / len(entries) if entry.weight is None else entry.weight
            goals.append(Goal(human=human, name=name, weight=weight, features=_bounds(entry)))
    if count and file.goal_coverage == "complete":
        _check_coverage(file, codes, size[0], humans, Goals(tuple(goals), cells), problems)
    return Goals(tuple(goals), cells)


def _entries(file: WorldFile, human: int) -> list[GoalEntry]:
    return file.goals.get(human, file.possible_goals or [])


def _mark(cells: NDArray[np.bool_], entry: GoalEntry, width: int) -> None:
    grid = cells.reshape(-1, width)  # A view.
    for area in entry.cells:
        grid[area.top : area.bottom + 1, area.left : area.right + 1] = True


def _bounds(entry: GoalEntry) -> tuple[float, float, float, float]:
    """The first column, first row, last column and last row that a goal has cells in."""
    areas = entry.cells
    return (
        float(min(area.left for area in areas)),
        float(min(area.top for area in areas)),
        float(max(area.right for area in areas)),
        float(max(area.bottom for area in areas)),
    )


def _names(entries: list[GoalEntry]) -> list[str]:
    """One name per goal; goals on the same cells are numbered."""
    names: dict[str, None] = {}
    numbers: dict[str, int] = {}  # Counting anew for every goal would take minutes.
    for entry in entries:
        plain = name = entry.name or "+".join(str(area) for area in entry.cells)
        while name in names:
            numbers[plain] = numbers.get(plain, 1) + 1
            name = f"{plain} #{numbers[plain]}"
        names[name] = None
    return [*names]


def _check_entries(
    loc: Loc, entries: list[GoalEntry], size: tuple[int, int], problems: Problems
) -> None:
    width, height = size
    names: set[str] = set()
    for position, entry in enumerate(entries):
        for area in entry.cells:
            if area.right >= width or area.bottom >= height:
                problems.add(
                    (*loc, position),
                    f"{area} is outside the map, whose last cell is ({width - 1},{height - 1})",
                )
        if entry.name is not None and entry.name in names:
            problems.add((*loc, position, "name"), f"another goal is called {entry.name!r}, too")
        names.add(entry.name or "")
    if entries and not any(entry.weight != 0 for entry in entries):
        problems.add(loc, "all weights are 0; give some goal a positive weight")


def _warn_of_walls(
    lists: list[tuple[Loc, list[GoalEntry]]], codes: list[Code], width: int, problems: Problems
) -> None:
    walls = np.array([code.layer == "terrain" and code.kind == WALL for code in codes])
    grid = walls.reshape(-1, width)
    for loc, entries in lists:
        for position, entry in enumerate(entries):
            if all(grid[a.top : a.bottom + 1, a.left : a.right + 1].all() for a in entry.cells):
                reason = "can never be reached: all of its cells are walls; drop or move the goal"
                problems.warn((*loc, position), reason)


def _check_coverage(
    file: WorldFile,
    codes: list[Code],
    width: int,
    humans: list[int],
    goals: Goals,
    problems: Problems,
) -> None:
    walkable = np.array([_is_walkable(code) for code in codes], dtype=np.bool_)
    reported: set[Loc] = set()
    for human in humans:
        goal_indices = [index for index, goal in enumerate(goals.goals) if goal.human == human]
        missing = np.flatnonzero(walkable & ~goals.cells[goal_indices].any(0))
        loc: Loc = ("goals", human) if human in file.goals else ("possible_goals",)
        if file.possible_goals is None and human not in file.goals:
            loc = ("goals",)
        if not len(missing) or loc in reported:
            continue
        reported.add(loc)
        cells_text = ", ".join(
            f"({cell % width},{cell // width})" for cell in missing[:_SHOWN_CELLS]
        )
        more = f" and {len(missing) - _SHOWN_CELLS} more" if len(missing) > _SHOWN_CELLS else ""
        problems.add(
            loc,
            f"no goal of agent {human} has the cell{'s'[: len(missing) > 1]} {cells_text}{more}; a "
            "human there might have no power. Add goals, or write 'goal_coverage: partial'",
        )


def _is_walkable(code: Code) -> bool:
    if code.layer == "fixed":
        return code.kind == DOOR
    return code.layer != "terrain" or code.kind not in (WALL, LAVA)
