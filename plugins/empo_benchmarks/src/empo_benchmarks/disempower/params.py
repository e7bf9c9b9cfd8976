"""Layouts and params of the world; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from empo_core import Config, ConfigFile
from empo_core.config import HumanPriorRef
from empo_core.config.files import read_yaml, validate_document

LAYOUTS = Path(__file__).parent / "layouts"
"""Positions and parameters of the published layouts, with their licence."""
EMBODIED = ("push_only", "push_pull")
"""Those with keys, and so with variations."""
MAX_SIZE = 32
Cell = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Layout(Config):
    """A board with whatever is on it. Cells are ``[row, column]``, row 0 at the top."""

    title: str = Field("a layout", description="Title of the world.")
    height: int = Field(ge=1, le=MAX_SIZE, description="Rows of the board.")
    width: int = Field(ge=1, le=MAX_SIZE, description="Columns of the board.")
    agent_pos: list[Cell] = Field(
        min_length=2, max_length=2, description="Cells of the user and of the bystander."
    )
    box_pos: list[Cell] = Field(description="Cells of the boxes.")
    wall_pos: list[Cell] = Field(default_factory=list, description="Cells of the walls.")
    trap_pos: list[Cell] = Field(
        default_factory=list, description="Cells that humans never leave again."
    )
    goal_pos: list[Cell] = Field(
        min_length=1,
        max_length=2,
        description="The true goal of both humans, on which both may stand; or that of the user "
        "and that of the bystander. The world has no reward: they matter to boxes and to sharing.",
    )
    key_pos: list[Cell] = Field(
        default_factory=list,
        max_length=2,
        description="The key of both humans, or that of each; needs an embodied assistant.",
    )
    assistant: Literal["embodied", "non-embodied"] = Field(
        description="embodied: on a cell, pushes boxes; non-embodied: nowhere, moves any box."
    )
    helper_pos: list[Cell] = Field(
        default_factory=list, max_length=1, description="Cell of an embodied assistant."
    )
    pull: bool = Field(False, description="An embodied assistant can pull boxes, too.")
    freeze: bool = Field(False, description="The assistant can freeze the bystander.")
    boxes_can_cover_goal: bool = Field(False, description="Boxes may enter goal cells.")
    max_steps: int = Field(50, ge=1, description="Steps after which an episode ends.")

    @model_validator(mode="after")
    def _is_a_board(self) -> Layout:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        is_embodied = self.assistant == "embodied"
        if len(self.helper_pos) != is_embodied:
            count = "one cell" if is_embodied else "no cell"
            yield f"helper_pos: an assistant that is {self.assistant} has {count}"
        for key, value in (("pull", self.pull), ("key_pos", self.key_pos)):
            if value and not is_embodied:
                yield f"{key} needs an embodied assistant; leave it out"
        solid = ("wall_pos", "agent_pos", "box_pos", "helper_pos")
        places: dict[tuple[int, ...], str] = {}
        for key in (*solid, "trap_pos", "goal_pos", "key_pos"):
            for cell in getattr(self, key):
                place = tuple(cell)
                if place[0] >= self.height or place[1] >= self.width:
                    yield (
                        f"{key}: {cell} is outside of the board of {self.height} rows and "
                        f"{self.width} columns"
                    )
                if key in solid and place in places:
                    yield f"{key}: {cell} is in {places[place]}, too"
                if key in ("goal_pos", "key_pos") and places.get(place) == "wall_pos":
                    yield f"{key}: {cell} is a wall"
                if key in solid:
                    places[place] = key

    def variations(self) -> list[Layout]:
        """The layouts with the key and the goal on any two cells that are free at the start.

        The key comes first in the order, and cells row by row. There are none where there are two
        keys or goals, or no key.
        """
        if len(self.key_pos) != 1 or len(self.goal_pos) != 1:
            return []
        solid = [*self.agent_pos, *self.box_pos, *self.wall_pos, *self.helper_pos]
        cells = map(list, product(range(self.height), range(self.width)))
        free = [cell for cell in cells if cell not in solid]
        return [
            self.model_copy(update={"key_pos": [key], "goal_pos": [goal]})
            for key, goal in permutations(free, 2)
        ]


class DisempowerParams(Config):
    """The layout, and what counts as a goal of a human."""

    library: ClassVar = LAYOUTS

    file: ConfigFile | None = Field(
        None, description="YAML or JSON file of a layout; null: as layout says."
    )
    layout: Literal["push_pull", "push_only", "move_any", "move_any_freeze"] | Layout | None = (
        Field(
            None,
            description="A published layout, or the keys of a file of one. null means "
            "move_any_freeze, or that of the file.",
        )
    )
    variation: int | None = Field(
        None,
        ge=0,
        description="Number of the variation of a layout with one key and one goal: these on any "
        "two free cells, 110 in the published layouts with keys. null leaves the layout as it is, "
        "which is number 89 of these.",
    )
    key_goal: bool = Field(
        False, description="To have the key is a goal of each human, of the weight of a cell."
    )
    max_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode ends; null means the layout's, 50."
    )

    @field_validator("layout")
    @classmethod
    def _is_one(cls, layout: str | Layout | None, info: ValidationInfo) -> str | Layout | None:
        if layout is not None and info.data.get("file") is not None:
            raise ValueError("has no effect beside file, which says it; leave one of them out")
        return layout

    @field_validator("variation")
    @classmethod
    def _varies(cls, variation: int | None, info: ValidationInfo) -> int | None:
        if variation is not None and {"file", "layout"} <= info.data.keys():
            count = len(board(info.data["file"], info.data["layout"]).variations())
            if not count:
                raise ValueError(
                    "the layout has no variations, for they need one key and one goal; leave "
                    "variation out"
                )
            if variation >= count:
                raise ValueError(f"the layout has variations 0 to {count - 1}")
        return variation

    @field_validator("key_goal")
    @classmethod
    def _has_a_key(cls, key_goal: bool, info: ValidationInfo) -> bool:
        if (
            key_goal
            and {"file", "layout"} <= info.data.keys()
            and not board(info.data["file"], info.data["layout"]).key_pos
        ):
            raise ValueError("the layout has no key_pos; leave key_goal out")
        return key_goal

    @property
    def board(self) -> Layout:
        """The layout that is meant.

        Raises:
            ConfigError: if the file cannot be used; one located line per problem.
        """
        layout = board(self.file, self.layout)
        return layout if self.variation is None else layout.variations()[self.variation]


def board(file: Path | None, layout: str | Layout | None) -> Layout:
    """The layout of a file, a published one by name, or the one that is given."""
    if isinstance(layout, Layout):
        return layout
    if file is not None:
        return validate_document(Layout, read_yaml(file))
    return published(layout or "move_any_freeze")


@cache
def published(name: str) -> Layout:
    """A published layout."""
    return validate_document(Layout, read_yaml(LAYOUTS / f"{name}.yaml"))


class BoardsParams(Config):
    """Who learns in copies of the run's board, and what is paid."""

    reward: Literal["ave", "mc_emp", "discrete", "entropic", "joint"] | None = Field(
        None,
        description="What the assistant learns for, of the state after each step, if both humans "
        "went on at random and it did nothing: ave, the variance of the user's cell after three "
        "steps; mc_emp, the information in bits between its first action and that cell; discrete, "
        "the expected number of different cells in 20 trials; entropic, the entropy of the cell; "
        "joint, mc_emp of both humans. null: the humans learn for their true goals, beside a "
        "random assistant.",
    )
    human_prior: HumanPriorRef | None = Field(
        None,
        description="Humans while the assistant learns, who pursue their true goals, e.g. "
        "self-play; null: they act at random.",
    )

    @field_validator("human_prior")
    @classmethod
    def _are_not_learners(
        cls, prior: HumanPriorRef | None, info: ValidationInfo
    ) -> HumanPriorRef | None:
        if prior is not None and info.data.get("reward") is None:
            raise ValueError("belongs to an assistant that learns: give reward, too, or neither")
        return prior
