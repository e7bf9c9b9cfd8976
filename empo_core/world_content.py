"""One digest of a world's content, by which every part of the framework tells worlds apart."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from pydantic import JsonValue
from torch import Tensor

from empo_core.protocols import WorldModel

ROUNDS = 32
"""Steps away from the start that are looked at."""
ROWS = 32
"""States per step whose successors are looked at."""
ACTIONS = 8
"""Joint actions per state."""
Write: TypeAlias = Callable[[bytes], object]
"""Takes in more bytes, as the method ``update`` of a hash sum does."""
PRECISION = 1e5
"""Probabilities count in steps of the inverse, so that rounding on other machines does not."""


def world_digest(world: WorldModel) -> str:
    """The sha256 of what a world is: its spec and its content, or what it does.

    Two worlds with one digest have the same agents, goals, horizon and rows, and the same
    ``content()``. Worlds without content have the same start, and the same availability, goals,
    successors and chances in up to ``ROUNDS * ROWS`` states, the same ones everywhere. Comments in
    a world's file do not count.
    """
    total = hashlib.sha256()
    add_value(total.update, _declared(world))
    content = world.content()
    if content is not None:
        add_value(total.update, content)
        return total.hexdigest()  # Kernels that a run does not need are not compiled for it.
    try:
        _add_behaviour(total.update, world)
    except Exception:
        # Whoever uses the world says what is wrong with it; other worlds answer.
        total.update(b"no answers")
    return total.hexdigest()


def identity(world: WorldModel) -> dict[str, JsonValue]:
    """Identity of a world as JSON data; the order of the keys says what to name first.

    Two worlds that agree have the same agents, goals, horizon and observations, and the same
    ``world_digest``.
    """
    return {**_declared(world), "content": world_digest(world)}


def _declared(world: WorldModel) -> dict[str, JsonValue]:
    """What a world says of itself in its spec."""
    spec = world.spec
    return {
        "name": spec.name,
        "horizon": spec.horizon,
        "agents": [[agent.name, agent.role, list(agent.actions)] for agent in spec.agents],
        "goals": [
            [g.human, g.name, float(g.weight), [*map(float, g.features)]] for g in spec.goals
        ],
        "features": asdict(spec.featurizer.shape),
        "rows": [spec.state_words, str(spec.state_dtype)],
    }


def difference(recorded: Mapping[str, JsonValue], here: Mapping[str, JsonValue]) -> str | None:
    """The first thing in which two identities differ, in words; None where they agree."""
    for key, value in here.items():
        if recorded.get(key) == value:
            continue
        if key == "content":
            return (
                "it starts in another state, or its first step leads elsewhere, or a later one does"
            )
        return f"its {key} {_was(recorded.get(key))}, not {reprlib.repr(value)}"
    return None


def _was(value: JsonValue) -> str:
    return f"{'were' if isinstance(value, list | dict) else 'was'} {reprlib.repr(value)}"


def add_value(write: Write, value: Any) -> None:
    """Add plain data, arrays and dataclasses to a digest, each with its kind and its length.

    Raises:
        TypeError: if the value holds anything else.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        plain = value.item() if isinstance(value, np.generic) else value
        text = repr(plain)
        write(f"{type(plain).__name__}{len(text)}:{text}".encode())
    elif isinstance(value, np.ndarray):
        write(f"array {value.dtype.str} {value.shape}:".encode())
        write(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        write(f"mapping {len(value)}:".encode())
        for key in sorted(value, key=repr):
            add_value(write, key)
            add_value(write, value[key])
    elif isinstance(value, frozenset | set):
        add_value(write, sorted(map(repr, value)))
    elif is_dataclass(value) and not isinstance(value, type):
        add_value(write, {field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, Sequence):  # Named tuples among them.
        write(f"sequence {len(value)}:".encode())
        for item in value:
            add_value(write, item)
    else:
        raise TypeError(f"a world's content holds {type(value).__name__}; give plain data, arrays")


def _add_behaviour(write: Write, world: WorldModel) -> None:
    """Add what up to ``ROWS`` states of each of the first steps look like and lead to."""
    initial = world.initial_states()
    if len(initial.prob) > 1:
        add_value(write, np.round(initial.prob.double().numpy() * PRECISION).astype(np.int64))
    states = initial.states
    features = world.spec.featurizer(states).flat().to(torch.float64)
    add_value(write, np.round(features.numpy() * PRECISION).astype(np.int64))
    for step in range(ROUNDS):
        available = world.available(states).numpy()
        add_value(write, [states, available, world.achieved(states)])
        goes_on = available.any((1, 2))
        if not goes_on.any():
            break
        pairs = states[torch.from_numpy(goes_on)].repeat_interleave(ACTIONS, 0)
        actions = _some_actions(available[goes_on], step)
        reached = world.transitions(pairs, torch.from_numpy(actions))
        chance = reached.prob.double().numpy()
        duration = np.ones(len(chance))
        if reached.duration is not None:
            duration = reached.duration.double().numpy()
        successors = reached.states.numpy()
        columns = [
            reached.segments.index.numpy(),
            *successors.T,
            np.round(chance * PRECISION),
            np.round(duration * PRECISION),
        ]
        items = np.column_stack([column.astype(np.int64) for column in columns])
        add_value(write, [actions, items[np.lexsort(items.T[::-1])]])
        successors = np.unique(successors, axis=0)
        # Of many, those with the lowest and those with the highest words.
        outer = np.concatenate([successors[: ROWS // 2], successors[ROWS // 2 :][-(ROWS // 2) :]])
        states = torch.from_numpy(outer)


def _some_actions(available: np.ndarray, step: int) -> Int[np.ndarray, "pair agent"]:
    """``ACTIONS`` joint actions of each state [state agent action], spread over the available."""
    states, agents, _ = available.shape
    order = np.argsort(~available, axis=2, kind="stable")  # Available ones first, ascending.
    # A stream that numpy promises to keep as it is.
    draws = np.random.PCG64(step).random_raw(states * ACTIONS * agents)
    count = np.maximum(available.sum(2), 1).astype(np.uint64)
    place = draws.reshape(states, ACTIONS, agents) % count[:, None]
    state, _, agent = np.ogrid[:states, :ACTIONS, :agents]
    chosen: Int[np.ndarray, "state draw agent"] = order[state, agent, place.astype(np.int64)]
    return chosen.reshape(states * ACTIONS, agents).astype(np.int64)
