"""The file format of BushWorld, and the constants of a world."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from empo_core import Config
from empo_core.config.files import joined, located_error, read_yaml, validate_document
from empo_core.config.yaml import MAX_PROBLEMS, Document
from empo_core.errors import ConfigError

log = logging.getLogger(__name__)

MAX_CELLS = 4096
MAX_AGENTS = 8
"""There are 5^agents joint actions, each with up to 2^humans successors."""
MOVES = ((0, -1), (-1, 0), (0, 1), (1, 0), (0, 0))
"""Changes of (x, y) by the actions N, W, S, E and pass."""


def _rows(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return [_cells(line) for line in value.splitlines() if line.strip()]
    return [_cells(line) for line in value] if isinstance(value, list) else value


def _cells(line: JsonValue) -> JsonValue:
    if isinstance(line, str):
        return [*line.split()]
    return [str(cell) for cell in line] if isinstance(line, list) else line


def _rectangle(value: JsonValue) -> JsonValue:
    """``"x,y"``, ``"x1,y1, x2,y2"``, ``[x, y]``, ``[x1, y1, x2, y2]`` or two pairs."""
    if isinstance(value, str):
        parts = value.split(",")
        if not all(re.fullmatch(r"\s*[0-9]{1,6}\s*", part) for part in parts):
            raise ValueError("must be a cell 'x,y' or a rectangle 'x1,y1, x2,y2'")
        value = [int(part) for part in parts]
    match value:
        case [list() as first, list() as last]:
            value = [*first, *last]
    if isinstance(value, list) and len(value) == 2:
        value = [*value, *value]
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("must be a cell 'x,y' or a rectangle 'x1,y1, x2,y2'")
    return value


Cell = Annotated[int, Field(ge=0)]
Rectangle = Annotated[
    list[Cell], BeforeValidator(_rectangle, json_schema_input_type=str | list[int | list[int]])
]


class WorldFile(Config):
    """A BushWorld as its file describes it."""

    name: str = Field("bushworld", min_length=1, description="Title of the world.")
    description: str = Field("", description="Description of the world.")
    map: Annotated[
        list[list[str]], BeforeValidator(_rows, json_schema_input_type=str | list[str])
    ] = Field(
        description="One line per row of cells, separated by blanks: Ro a robot, Hu a human, "
        ". or .. no bush, a number the density of a bush."
    )
    B: int = Field(1, ge=1, le=30_000, description="Density at which a bush is impenetrable.")
    max_steps: int = Field(10, ge=1, description="Steps after which an episode ends.")
    fill_density: int = Field(0, ge=0, description="Density under the players at the start.")
    possible_goals: list[Rectangle] | None = Field(
        None,
        min_length=1,
        description="Cells 'x,y' or rectangles 'x1,y1, x2,y2' that each human may want to "
        "reach; default: every cell. (0,0) is the top left.",
    )
    render_tile_size: int | None = Field(
        None,
        ge=8,
        le=256,
        description="Pixels per side of a cell; null: 96, 48 in animations; fewer if many cells.",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_seed(cls, data: JsonValue) -> JsonValue:
        if isinstance(data, dict) and "seed" in data:
            raise ValueError(
                "'seed' has no place in a world, whose probabilities are exact; remove it and "
                "seed the run instead"
            )
        return data


@dataclass(frozen=True)
class Layout:
    """The constants of a world, and its initial state.

    Cells are numbered row by row from the top left.

    Attributes:
        width: Number of columns.
        height: Number of rows.
        robots: Cell of each robot at the start, in reading order.
        humans: Cell of each human at the start, in reading order.
        densities: Density of every cell at the start.
        impenetrable: Density B; a human enters a bush of density d with chance 1 - d / B.
        goals: Inclusive rectangles (x1, y1, x2, y2), the same for every human.
    """

    name: str
    width: int
    height: int
    robots: tuple[int, ...]
    humans: tuple[int, ...]
    densities: tuple[int, ...]
    impenetrable: int
    goals: tuple[tuple[int, int, int, int], ...]
    max_steps: int
    tile: int | None


def read_layout(
    path: Path, max_steps: int | None = None, impenetrable: int | None = None
) -> Layout:
    """The layout in a file.

    Args:
        path: The file.
        max_steps: Replaces the file's, unless None.
        impenetrable: Replaces the file's ``B``, unless None.

    Raises:
        ConfigError: if the file cannot be used; one located line per problem.
    """
    document = read_yaml(path)
    world = validate_document(WorldFile, document)
    errors = _map_problems(document, world, impenetrable or world.B)
    if problems := list(itertools.islice(errors, MAX_PROBLEMS + 1)):
        raise joined(problems)
    layout = layout_of(world, max_steps, impenetrable)
    if not layout.robots:
        log.warning("%s: map: has no robot; write Ro where one starts", document.place(("map",)))
    return layout


def layout_of(
    world: WorldFile, max_steps: int | None = None, impenetrable: int | None = None
) -> Layout:
    """The layout of a file whose map was checked."""
    width, height = len(world.map[0]), len(world.map)
    tokens = [token for row in world.map for token in row]
    cells = range(width * height)
    single_cells = [[x, y, x, y] for y in range(height) for x in range(width)]
    return Layout(
        name=world.name,
        width=width,
        height=height,
        robots=tuple(cell for cell in cells if tokens[cell] == "Ro"),
        humans=tuple(cell for cell in cells if tokens[cell] == "Hu"),
        densities=tuple(
            world.fill_density if token in ("Ro", "Hu") else int(token.replace(".", "0"))
            for token in tokens
        ),
        impenetrable=impenetrable or world.B,
        goals=tuple(_ordered(goal) for goal in world.possible_goals or single_cells),
        max_steps=max_steps or world.max_steps,
        tile=world.render_tile_size,
    )


def _ordered(goal: list[int]) -> tuple[int, int, int, int]:
    x1, y1, x2, y2 = goal
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def _map_problems(document: Document, world: WorldFile, impenetrable: int) -> Iterator[ConfigError]:
    """Checks that need the whole map."""
    rows, tokens = world.map, [token for row in world.map for token in row]
    if not rows or not all(rows):
        yield located_error(document, ("map",), "is empty; write rows of Ro, Hu, . and numbers")
        return
    for y, row in enumerate(rows):
        if len(row) != len(rows[0]):
            reason = f"row {y} has {len(row)} cells, but row 0 has {len(rows[0])}"
            yield _map_error(document, y, 0, reason)
        for x, token in enumerate(row):
            if reason := _token_problem(token, impenetrable):
                yield _map_error(document, y, x, reason)
    if world.fill_density > impenetrable:
        reason = f"{world.fill_density} is more than B = {impenetrable}"
        yield located_error(document, ("fill_density",), reason)
    humans, robots = tokens.count("Hu"), tokens.count("Ro")
    for wrong, reason in (
        (not humans, "has no human; write Hu where one starts"),
        (humans + robots > MAX_AGENTS, f"has {humans + robots} agents; at most {MAX_AGENTS} fit"),
        (len(tokens) > MAX_CELLS, f"has {len(tokens)} cells; at most {MAX_CELLS} fit"),
    ):
        if wrong:
            yield located_error(document, ("map",), reason)
    yield from _goal_problems(document, world)


def _token_problem(token: str, impenetrable: int) -> str:
    if token in ("Ro", "Hu", ".", ".."):
        return ""
    if not re.fullmatch("[0-9]{1,6}", token):
        return f"{token!r} is not Ro, Hu, ., .. or the density of a bush"
    if int(token) > impenetrable:
        return f"density {token} is more than B = {impenetrable}"
    return ""


def _map_error(document: Document, y: int, x: int, reason: str) -> ConfigError:
    """An error about one cell of the map, however the map is written."""
    map_data = document.value(("map",))
    if isinstance(map_data, list):
        loc = ("map", y, x) if isinstance(map_data[y], list) else ("map", y)
        return located_error(document, loc, f"cell ({x},{y}): {reason}")
    lines = str(map_data).splitlines()
    line = [number for number, text in enumerate(lines) if text.strip()][y]
    column = [match.start() for match in re.finditer(r"\S+", lines[line])][x]
    return located_error(document, ("map",), f"cell ({x},{y}): {reason}", at=(line, column))


def _goal_problems(document: Document, world: WorldFile) -> list[ConfigError]:
    problems = []
    width, height = len(world.map[0]), len(world.map)
    rectangles: set[tuple[int, ...]] = set()
    for i, goal in enumerate(world.possible_goals or ()):
        rectangle = _ordered(goal)
        reason = "is listed twice" if rectangle in rectangles else ""
        if rectangle[2] >= width or rectangle[3] >= height:
            reason = f"is outside of the map of {width} x {height} cells"
        if reason:
            problems.append(located_error(document, ("possible_goals", i), f"{goal} {reason}"))
        rectangles.add(rectangle)
    return problems
