"""The state that is asked about: by number, by what stands where, or by a path from the start."""

from __future__ import annotations

import re

import numpy as np
import torch
from jaxtyping import Bool, Integer

from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.suggestions import nearest
from empo_core.types import WorldSpec
from empo_inspector.decision import OneStep
from empo_theory.inspection import Inspection

HEADINGS = "ESWN"
_PLACE = re.compile(
    r"(?P<agent>[^@]+)@\s*\((?P<x>\d{1,6}),\s*(?P<y>\d{1,6})\)\s*"
    r"(?:(?:→|->|>)\s*(?P<heading>\w+))?"
)
MOST_LISTED = 10


def by_number(inspection: Inspection, number: int) -> int:
    """Position of the state that the run calls by a number.

    Raises:
        ConfigError: if there is none.
    """
    position = int(np.searchsorted(inspection.number, number))
    if position == inspection.num_states or inspection.number[position] != number:
        num_states = inspection.total or inspection.num_states
        raise ConfigError(
            f"--state {number}: there is no such state; {inspection.spec.name!r} has {num_states} "
            "states that are known, numbered from 0"
        )
    return position


def by_places(inspection: Inspection, world: WorldModel, places: str, time: int) -> int:
    """Position of the one state at a time in which agents stand, and look, as described.

    Args:
        inspection: The states.
        world: Their world.
        places: Such as ``human 1@(2,1)→E; robot 0@(1,1)``; names may be shortened. Or the name of
            a state, as ``WorldModel.describe`` has it.
        time: The time.

    Raises:
        ConfigError: if the description cannot be read, or fits no state or several.
    """
    fits = ~np.isnan(inspection.v_r[check_time(inspection, time)])
    if inspection.first_failed is not None:  # Robots work, unless a number says otherwise.
        fits &= inspection.number < inspection.first_failed
    if world.positions(torch.from_numpy(inspection.rows[:1])) is None:
        fits &= _named(inspection, world, places.strip())
    else:
        for place in filter(None, map(str.strip, places.split(";"))):
            fits &= _fits(inspection, world, place)
    matches = np.flatnonzero(fits)
    if len(matches) == 1:
        return int(matches[0])
    if not len(matches):
        raise ConfigError(
            f"--at {places!r}: {world.spec.name!r} has no such state at time {time}; see "
            "--time, or leave conditions out"
        )
    listed = ", ".join(str(number) for number in inspection.number[matches[:MOST_LISTED]])
    more = f" and {len(matches) - MOST_LISTED} others" if len(matches) > MOST_LISTED else ""
    raise ConfigError(
        f"--at {places!r}: {len(matches)} states at time {time} are like this: {listed}{more}. Say "
        "where more agents are, or choose one by --state"
    )


def by_path(inspection: Inspection, path: str) -> tuple[int, int]:
    """Position and time reached by joint robot actions while everything else goes the usual way.

    Humans take their most probable actions, and of several successors the most probable follows.

    Raises:
        ConfigError: if an action does not exist or is not available, or the episode ends before.
    """
    step, spec = OneStep(inspection), inspection.spec
    state, time = int(np.flatnonzero(inspection.number == 0)[0]), inspection.first_time
    for name in map(str.strip, path.split(",")):
        here = torch.tensor([state])
        if not bool(step.alive(here, time)[0]):
            raise ConfigError(f"--path {path!r}: the episode is over before {name!r}")
        names = spec.robot_action_names
        if name not in names:
            raise ConfigError(f"--path {path!r}: there is no action {name!r}; there are {names}")
        profile = int(step.policies(here, time).chance[0].argmax())
        moves = step.transitions(here)
        chosen = moves.slot == profile * len(names) + names.index(name)
        if not bool(chosen.any()):
            raise ConfigError(f"--path {path!r}: {name!r} is not available after {time} steps")
        state = int(moves.successor[chosen][moves.prob[chosen].argmax()])
        time += spec.horizon is not None
    return state, time


def check_time(inspection: Inspection, time: int) -> int:
    """Position of a time at which somebody acts.

    Raises:
        ConfigError: if nobody acts at that time.
    """
    if not inspection.first_time <= time <= inspection.last_time:
        raise ConfigError(
            f"--time {time}: in {inspection.spec.name!r} times go from {inspection.first_time} to "
            f"{inspection.last_time}"
        )
    return time - inspection.first_time


def state_name(world: WorldModel, row: Integer[np.ndarray, " word"]) -> str:
    """The name of a state, where its description has one line; else an empty text."""
    description = world.describe(torch.from_numpy(row.copy())).strip()
    return "" if "\n" in description else description


def _named(inspection: Inspection, world: WorldModel, name: str) -> Bool[np.ndarray, " state"]:
    """The states of a name, in a world that does not say where agents are.

    Raises:
        ConfigError: if there is none.
    """
    names = [state_name(world, row) for row in inspection.rows]
    if name not in names:
        close = nearest(name, names)
        hint = f" Did you mean {close!r}?" if close else ""
        listed = ", ".join(filter(None, names[:MOST_LISTED])) or "without names; use --state"
        raise ConfigError(
            f"--at {name!r}: {world.spec.name!r} has no state of this name.{hint} States are "
            f"{listed}{' and others' if len(names) > MOST_LISTED else ''}"
        )
    return np.array([other == name for other in names])


def _fits(inspection: Inspection, world: WorldModel, place: str) -> Bool[np.ndarray, " state"]:
    """The states in which one agent stands, and perhaps looks, as described."""
    read = _PLACE.fullmatch(place)
    if read is None:
        raise ConfigError(
            f"--at: cannot read {place!r}; write for example 'human 1@(2,1)' or 'robot 0@(1,1)→E', "
            "with ';' between agents"
        )
    agent = _agent(world.spec, read["agent"].strip())
    rows = torch.from_numpy(inspection.rows)
    positions = world.positions(rows)
    assert positions is not None  # Worlds without positions have names.
    cell = torch.tensor([int(read["x"]), int(read["y"])])
    fits: Bool[np.ndarray, " state"]
    fits = (positions[:, agent] == cell).all(1).numpy()
    if read["heading"]:
        letter = read["heading"][0].upper()
        headings = world.headings(rows)
        if letter not in HEADINGS or headings is None:
            raise ConfigError(f"--at: {place!r}: agents look to E, S, W or N, in multigrid worlds")
        fits &= (headings[:, agent] == HEADINGS.index(letter)).numpy()
    return fits


def _agent(spec: WorldSpec, name: str) -> int:
    """The one agent whose name begins like this."""
    matches = [i for i, agent in enumerate(spec.agents) if agent.name.startswith(name)]
    if len(matches) != 1:
        names = ", ".join(repr(agent.name) for agent in spec.agents)
        raise ConfigError(f"--at: {name!r} is not the name of one agent; agents are {names}")
    return matches[0]
