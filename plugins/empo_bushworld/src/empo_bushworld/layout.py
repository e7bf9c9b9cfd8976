"""The file format of BushWorld, and the constants of a world."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue, PlainValidator, model_validator

from empo_core import Config
from empo_core.config.files import joined, located_error, read_yaml, validate_document
from empo_core.config.yaml import MAX_PROBLEMS, Document
from empo_core.errors import ConfigError
from empo_core.printable import printable
from empo_worlds.grid.maps import Rectangle, map_error, rectangle, tokens
from empo_worlds.grid.pictures import MAX_TILE, MIN_TILE

log = logging.getLogger(__name__)

MAX_CELLS = 4096
MAX_AGENTS = 8
"""There are 5^agents joint actions, each with up to 2^humans successors."""
MOVES = ((0, -1), (-1, 0), (0, 1), (1, 0), (0, 0))
"""Changes of (x, y) by the actions N, W, S, E and pass."""


def _cells(value: JsonValue) -> JsonValue:
    """A map, whose cells are texts also where a list has a number as a cell."""
    if not isinstance(value, list):
        return value
    return [[str(cell) for cell in row] if isinstance(row, list) else row for row in value]


def _words(line: str) -> list[tuple[str, int]]:
    return [(match.group(), match.start()) for match in re.finditer(r"\S+", line)]


Goal = Annotated[
    Rectangle,
    PlainValidator(rectangle, json_schema_input_type=str | list[int] | list[list[int]]),
]


class WorldFile(Config):
    """A BushWorld as its file describes it."""

    name: str | None = Field(
        None, min_length=1, description="Title of the world; default: the metadata's name."
    )
    metadata: dict[str, JsonValue] | None = Field(
        None, description="Name (the world's title), author and so on, in public files."
    )
    description: str = Field("", description="Description of the world.")
    map: Annotated[str | list[str] | list[list[str]], BeforeValidator(_cells)] = Field(
        description="One line per row of cells, separated by blanks: Ro a robot, Hu a human, "
        ". or .. no bush, a number the density of a bush."
    )
    B: int = Field(1, ge=1, le=30_000, description="Density at which a bush is impenetrable.")
    max_steps: int = Field(10, ge=1, description="Steps after which an episode ends.")
    fill_density: int = Field(0, ge=0, description="Density under the players at the start.")
    possible_goals: list[Goal] | None = Field(
        None,
        min_length=1,
        description="Cells 'x,y' or rectangles 'x1,y1, x2,y2' that each human may want to "
        "reach; default: every cell. (0,0) is the top left.",
    )
    render_tile_size: int | None = Field(
        None,
        ge=MIN_TILE,
        le=MAX_TILE,
        description="Pixels per side of a cell; null: 96, 48 in animations; fewer if many cells.",
    )

    @property
    def title(self) -> str:
        """Title of the world, fit for printing."""
        name = self.name or (self.metadata or {}).get("name")
        return printable(name, keep="") if name and isinstance(name, str) else "bushworld"

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
        goals: The same for every human.
    """

    name: str
    width: int
    height: int
    robots: tuple[int, ...]
    humans: tuple[int, ...]
    densities: tuple[int, ...]
    impenetrable: int
    goals: tuple[Rectangle, ...]
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
    rows = tokens(world.map, _words)
    width, height = len(rows[0]), len(rows)
    texts = [token.text for row in rows for token in row]
    cells = range(width * height)
    single_cells = [Rectangle(x, y, x, y) for y in range(height) for x in range(width)]
    return Layout(
        name=world.title,
        width=width,
        height=height,
        robots=tuple(cell for cell in cells if texts[cell] == "Ro"),
        humans=tuple(cell for cell in cells if texts[cell] == "Hu"),
        densities=tuple(
            world.fill_density if text in ("Ro", "Hu") else int(text.replace(".", "0"))
            for text in texts
        ),
        impenetrable=impenetrable or world.B,
        goals=tuple(world.possible_goals or single_cells),
        max_steps=max_steps or world.max_steps,
        tile=world.render_tile_size,
    )


def _map_problems(document: Document, world: WorldFile, impenetrable: int) -> Iterator[ConfigError]:
    """Checks that need the whole map."""
    rows = tokens(world.map, _words)
    if not rows:
        yield located_error(document, ("map",), "is empty; write rows of Ro, Hu, . and numbers")
        return
    for y, row in enumerate(rows):
        if len(row) != len(rows[0]):
            reason = f"row {y} has {len(row)} cells, but row 0 has {len(rows[0])}"
            yield map_error(document, row[0], f"cell (0,{y}): {reason}")
        for x, token in enumerate(row):
            if reason := _token_problem(token.text, impenetrable):
                yield map_error(document, token, f"cell ({x},{y}): {reason}")
    if world.fill_density > impenetrable:
        reason = f"{world.fill_density} is more than B = {impenetrable}"
        yield located_error(document, ("fill_density",), reason)
    texts = [token.text for row in rows for token in row]
    humans, robots = texts.count("Hu"), texts.count("Ro")
    for wrong, reason in (
        (not humans, "has no human; write Hu where one starts"),
        (humans + robots > MAX_AGENTS, f"has {humans + robots} agents; at most {MAX_AGENTS} fit"),
        (len(texts) > MAX_CELLS, f"has {len(texts)} cells; at most {MAX_CELLS} fit"),
    ):
        if wrong:
            yield located_error(document, ("map",), reason)
    yield from _goal_problems(document, world, len(rows[0]), len(rows))


def _token_problem(token: str, impenetrable: int) -> str:
    if token in ("Ro", "Hu", ".", ".."):
        return ""
    if not re.fullmatch("[0-9]{1,6}", token):
        return f"{token!r} is not Ro, Hu, ., .. or the density of a bush"
    if int(token) > impenetrable:
        return f"density {token} is more than B = {impenetrable}"
    return ""


def _goal_problems(
    document: Document, world: WorldFile, width: int, height: int
) -> list[ConfigError]:
    problems = []
    before: set[Rectangle] = set()
    for i, goal in enumerate(world.possible_goals or ()):
        reason = "is listed twice" if goal in before else ""
        if goal.right >= width or goal.bottom >= height:
            reason = f"is outside of the map of {width} x {height} cells"
        if reason:
            problems.append(located_error(document, ("possible_goals", i), f"{goal} {reason}"))
        before.add(goal)
    return problems
