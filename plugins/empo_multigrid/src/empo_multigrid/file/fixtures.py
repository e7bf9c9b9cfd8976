"""The objects of a world file: what stands or lies where, and in which condition."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

from empo_multigrid.file.mapcodes import Code, decode
from empo_multigrid.file.problems import Problems
from empo_multigrid.file.worldfile import ObjectSettings, WorldFile, cell_of_key
from empo_multigrid.layout import (
    ACTION_NAMES,
    BALL,
    BOX,
    BUSH,
    COLOURS,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    KEY,
    KILL_BUTTON,
    MAGIC_WALL,
    NOTHING,
    PAUSE_SWITCH,
    STILL,
    UNSTEADY,
)

T = TypeVar("T")

_SETTINGS: Final[dict[tuple[str, int], tuple[str, ...]]] = {
    ("terrain", UNSTEADY): ("stumble_probability",),
    ("item", BOX): ("contains",),
    ("fixed", BUSH): ("enter_probability",),
    ("fixed", MAGIC_WALL): ("enter_probability", "solidify_probability", "active"),
    ("fixed", KILL_BUTTON): ("trigger_colour", "target_colour", "enabled"),
    ("fixed", PAUSE_SWITCH): ("trigger_colour", "target_colour", "enabled", "is_on"),
    ("fixed", DISABLING_SWITCH): ("trigger_colour",),
    ("fixed", CONTROL_BUTTON): (
        "trigger_colour", "target_colour", "enabled", "programmed_agent", "programmed_action",
    ),
}  # fmt: skip

MAGIC_ENTER: Final = 0.5
"""Chance of entering a magic wall where the file does not say otherwise."""


class Item(NamedTuple):
    """Something that moves. Equal items but for their cell cannot be told apart."""

    kind: int
    colour: int
    content_kind: int
    content_colour: int
    cell: int


class Fixture(NamedTuple):
    """An object that stays in its cell; fields as in ``Layout``."""

    kind: int
    cell: int
    colour: int
    target: int
    side: int
    enter: float
    solidify: float
    word: int


class Settings(NamedTuple):
    """Settings of ``objects`` for one cell, and the key that names the cell."""

    key: str
    values: ObjectSettings


_NONE: Final = Settings("", ObjectSettings())


def settings_by_cell(
    file: WorldFile, codes: list[Code], width: int, problems: Problems
) -> dict[int, Settings]:
    """Settings of ``objects`` for each cell, after checking that the object has such settings."""
    by_cell: dict[int, Settings] = {}
    for key, values in file.objects.items():
        loc = ("objects", key)
        place = cell_of_key(key)
        if place is None:
            problems.add(loc, f"{key!r} is not a cell; write the key as 'x,y'")
            continue
        x, y = place
        if x >= width or y * width >= len(codes):
            problems.add(loc, f"({x},{y}) is outside the {width} x {len(codes) // width} map")
            continue
        cell = y * width + x
        if cell in by_cell:
            problems.add(loc, f"the cell ({x},{y}) is given twice; merge the two")
        by_cell[cell] = Settings(key, values)
        code = codes[cell]
        allowed = _SETTINGS.get((code.layer, code.kind), ())
        for name in sorted(values.model_fields_set.difference(allowed)):
            has = f"which has {', '.join(allowed)}" if allowed else "which has no settings"
            problems.add((*loc, name), f"the map has {_a(code.name)} in ({x},{y}), {has}")
    return by_cell


def items(codes: list[Code], settings: dict[int, Settings], problems: Problems) -> list[Item]:
    """Everything that moves, equal things side by side and by cell."""
    listed = []
    for cell, code in enumerate(codes):
        if code.layer != "item":
            continue
        setting = settings.get(cell, _NONE)
        kind, colour = _content(setting, problems) if code.kind == BOX else (NOTHING, NOTHING)
        listed.append(Item(code.kind, code.colour, kind, colour, cell))
    return sorted(listed)


def fixtures(
    file: WorldFile,
    codes: list[Code],
    settings: dict[int, Settings],
    num_agents: int,
    actions: tuple[int, ...],
    problems: Problems,
) -> list[Fixture]:
    """Everything that stays in its cell, in reading order."""
    listed = []
    for cell, code in enumerate(codes):
        if code.layer != "fixed":
            continue
        setting = settings.get(cell, _NONE)
        enter = {MAGIC_WALL: MAGIC_ENTER, BUSH: file.enter_bush_success_prob}.get(code.kind, 0.0)
        solidify = file.solidify_probability if code.kind == MAGIC_WALL else 0.0
        listed.append(
            Fixture(
                kind=code.kind,
                cell=cell,
                colour=_colour(setting.values.trigger_colour, code.colour),
                target=_colour(setting.values.target_colour, code.target),
                side=code.side,
                enter=_or_default(setting.values.enter_probability, enter),
                solidify=_or_default(setting.values.solidify_probability, solidify),
                word=_word(code, setting, num_agents, actions, problems),
            )
        )
    return listed


def stumble_chances(
    file: WorldFile, codes: list[Code], settings: dict[int, Settings]
) -> list[float]:
    """The chance of stumbling in each cell."""
    return [
        _or_default(settings.get(cell, _NONE).values.stumble_probability, file.stumble_probability)
        if (code.layer, code.kind) == ("terrain", UNSTEADY)
        else 0.0
        for cell, code in enumerate(codes)
    ]


def _content(setting: Settings, problems: Problems) -> tuple[int, int]:
    written = setting.values.contains
    if written is None:
        return NOTHING, NOTHING
    loc = ("objects", setting.key, "contains")
    try:
        code = decode(written)
    except ValueError as error:
        problems.add(loc, str(error))
        return NOTHING, NOTHING
    if code.layer != "item" or code.kind not in (KEY, BALL):
        problems.add(loc, f"{written!r} is {_a(code.name)}; a box holds a key or a ball")
        return NOTHING, NOTHING
    return code.kind, code.colour


def _word(
    code: Code, setting: Settings, num_agents: int, actions: tuple[int, ...], problems: Problems
) -> int:
    """The object's word in the initial row; ``NOTHING`` if it has none."""
    values = setting.values
    if code.kind == MAGIC_WALL:
        return int(_or_default(values.active, True))
    if code.kind == KILL_BUTTON:
        return int(_or_default(values.enabled, True))
    if code.kind == PAUSE_SWITCH:
        is_on, enabled = _or_default(values.is_on, False), _or_default(values.enabled, True)
        if is_on and not enabled:
            loc = ("objects", setting.key, "is_on")
            problems.add(loc, "a disabled pause switch cannot be on; drop one of the two")
        return int(is_on) | int(enabled) << 1
    if code.kind == CONTROL_BUTTON:
        return int(_or_default(values.enabled, True)) | _program(
            setting, num_agents, actions, problems
        )
    return NOTHING if code.kind == DISABLING_SWITCH else code.word


def _program(
    setting: Settings, num_agents: int, actions: tuple[int, ...], problems: Problems
) -> int:
    """The bits of a control button that say whom it makes do what."""
    agent, action = setting.values.programmed_agent, setting.values.programmed_action
    if agent is None and action is None:
        return 0
    loc = ("objects", setting.key)
    if agent is None or action is None:
        problems.add(loc, "give both programmed_agent and programmed_action, or neither")
        return 0
    names = [ACTION_NAMES[code] for code in actions if code != STILL]
    if agent >= num_agents:
        problems.add((*loc, "programmed_agent"), f"there is no agent {agent}")
        return 0
    if action not in names:
        reason = f"{action!r} cannot be recorded in this world; it has {', '.join(names)}"
        problems.add((*loc, "programmed_action"), reason)
        return 0
    return (agent + 1) << 2 | (actions.index(ACTION_NAMES.index(action)) + 1) << 8


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value


def _colour(name: str | None, default: int) -> int:
    return default if name is None else COLOURS.index(name)


def _a(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
