"""Queries of a world model, checked against its contract.

The contract is that of ``empo_core.protocols.WorldModel``. A world that breaks it would be solved
all the same, and every number would be wrong; so whoever walks transitions asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import BrokenWorldError, ConfigError, WorldError
from empo_core.protocols.worlds import WorldModel
from empo_core.types import Expansion, InitialStates, Successors, WorldSpec
from empo_worlds.rows import state_rows

SUM_TOLERANCE = 1e-9
"""Tolerance of the sum of one pair's probabilities around 1."""

AnySuccessors = TypeVar("AnySuccessors", Successors, Expansion)


def successors_of(
    world: WorldModel,
    states: Int[Tensor, "state word"],
    actions: Int[Tensor, "state agent"] | None = None,
) -> Successors:
    """The successors by ``world.transitions``, checked.

    Raises:
        BrokenWorldError: if the successors break the contract.
    """
    successors = world.transitions(states, actions)
    if not isinstance(successors, Successors):
        raise broken(world, f"transitions() returned {type(successors).__name__}, not Successors")
    return _checked(world, states, actions, successors, None)


IsSound = Callable[[np.ndarray, np.ndarray, np.ndarray], bool]
"""True if offsets ascend, each index names an outcome, and probabilities (by offsets, index, prob)
are positive and sum to 1 in each pair: what is looked at one by one where it is False."""


def expansion_of(
    world: WorldModel, states: Int[Tensor, "state word"], is_sound: IsSound | None = None
) -> Expansion:
    """All successors of every joint action; compared with what ``world.available`` says, too.

    Args:
        world: The world.
        states: Its states.
        is_sound: Looks at the transitions sooner than this module does; compiled.

    Raises:
        BrokenWorldError: if successors or available actions break the contract.
    """
    available = available_in(world, states)
    expansion = world.expand(states)
    if expansion is None:
        successors = world.transitions(states)
        if not isinstance(successors, Successors):
            raise broken(
                world, f"transitions() returned {type(successors).__name__}, not Successors"
            )
        if not isinstance(successors.prob, Tensor):
            raise broken(world, f"transitions gave {type(successors.prob).__name__} as prob")
        return _checked(world, states, None, Expansion.of(successors), available, is_sound)
    if not isinstance(expansion, Expansion):
        raise broken(world, f"expand() returned {type(expansion).__name__}, not Expansion")
    return _checked(world, states, None, expansion, available, is_sound)


def require_world(world: object) -> None:
    """Refuse what only looks like a world: optional members come from the base class.

    Raises:
        WorldError: if ``world`` does not derive from ``WorldModel``.
    """
    if not isinstance(world, WorldModel):
        raise WorldError(
            f"a {type(world).__name__} is no world: it does not derive from "
            "empo_core.protocols.WorldModel; make that its base class"
        )


def require_one_start(world: WorldModel, key: str) -> None:
    """Refuse a world that starts in several states by chance, where a key does not support that.

    Raises:
        ConfigError: if there are several initial states.
        BrokenWorldError: if they break the contract.
    """
    number = len(initial_states_of(world).prob)
    if number > 1:
        raise ConfigError(
            f"{key}: {world.spec.name!r} starts in one of {number} states by chance, and this "
            "takes worlds with one initial state only; leave it out, or give the world one"
        )


def available_in(
    world: WorldModel, states: Int[Tensor, "state word"]
) -> Bool[Tensor, "state agent action"]:
    """The availability flags by ``world.available``, checked.

    Raises:
        BrokenWorldError: if the flags break the contract.
    """
    spec = world.spec
    shape = (len(states), len(spec.agents), max(spec.num_actions))
    available = world.available(states)
    _require_flags(world, "available", available, shape, "[state, agent, action]")
    flags: Bool[np.ndarray, "state agent action"] = available.numpy()
    padding = np.arange(shape[2]) >= np.array(spec.num_actions)[:, None]
    if padding.any() and (flags & padding).any():
        state, agent, action = np.argwhere(flags & padding)[0].tolist()
        raise broken(
            world,
            f"available() says that {spec.agents[agent].name} has action {action}, and it has "
            f"{spec.num_actions[agent]} actions, numbered from 0",
            states[state],
        )
    acts = available.any(2)
    is_mixed = acts.any(1) & ~acts.all(1)
    if is_mixed.any():
        state = int(is_mixed.int().argmax())
        agent = int(acts[state].int().argmin())
        raise broken(
            world,
            f"available() gives {spec.agents[agent].name} no action where others have some; give "
            "it one that does nothing, or give nobody any where the state is terminal",
            states[state],
        )
    return available


def achieved_in(world: WorldModel, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
    """The achieved goals by ``world.achieved``, checked.

    Raises:
        BrokenWorldError: if the flags have another shape or dtype.
    """
    achieved = world.achieved(states)
    shape = (len(states), len(world.spec.goals))
    _require_flags(world, "achieved", achieved, shape, "[state, goal]")
    return achieved


def initial_states_of(world: WorldModel) -> InitialStates:
    """The states that episodes start from by ``world.initial_states``, checked.

    Raises:
        BrokenWorldError: if they are no distinct state rows with probabilities that sum to 1, or
            an episode would be over in one of several.
    """
    if type(world).initial_states is WorldModel.initial_states:
        row = world.initial_state()
        if not isinstance(row, Tensor):
            raise broken(world, f"initial_state() returned {type(row).__name__}, no tensor")
    initial = world.initial_states()
    if not isinstance(initial, InitialStates):
        raise broken(world, f"initial_states() returned {type(initial).__name__}")
    try:
        rows = torch.from_numpy(state_rows(world.spec, initial.states))
    except WorldError as error:
        raise broken(world, f"initial_states() returned no state rows: {error}") from None
    if not isinstance(initial.prob, Tensor):
        raise broken(world, f"initial_states() gave {type(initial.prob).__name__} as prob")
    prob = initial.prob.double()
    if (
        not len(rows)
        or tuple(prob.shape) != (len(rows),)
        or len(np.unique(rows.numpy(), axis=0)) < len(rows)
    ):
        raise broken(world, "initial_states() must return distinct states, one probability each")
    if not bool((prob > 0).all()) or abs(float(prob.sum()) - 1) > SUM_TOLERANCE:
        raise broken(world, "initial_states() returned probabilities that do not sum to 1")
    over = ~available_in(world, rows).any(2).all(1) if len(rows) > 1 else torch.zeros(1).bool()
    if bool(over.any()):
        raise broken(world, "an initial state is terminal; start in others", rows[over][0])
    return InitialStates(rows, prob)


def possible_pairs(
    spec: WorldSpec, available: Bool[Tensor, "state agent action"]
) -> Bool[Tensor, "state joint"]:
    """True where each agent's part of each joint action is available."""
    flags = available.numpy()
    possible = np.ones((len(flags), 1), np.bool_)
    for agent, number in enumerate(spec.num_actions):  # Agent 0 counts fastest.
        agent_flags = flags[:, agent, :number, None]
        possible = (agent_flags & possible[:, None]).reshape(len(flags), -1)
    return torch.from_numpy(possible)


def broken(world: WorldModel, reason: str, state: Tensor | None = None) -> BrokenWorldError:
    """The error about a world that breaks its contract, with the plugin that it comes from."""
    location = "" if state is None else f" {state_text(world, state)}"
    return BrokenWorldError(
        f"{world.spec.name!r} ({origin(world)}) breaks the contract of world models: {reason}. "
        f"Correct the world model.{location}"
    )


def state_text(world: WorldModel, state: Tensor) -> str:
    """A state for the end of a message: its row, and what the world says about it."""
    row = state.tolist()
    try:
        return f"The state is {row}:\n{world.describe(state.clone())}"
    except Exception:  # A world that is broken may well be so here, too.
        return f"The state is {row}."


def origin(thing: object) -> str:
    """The class of an object, and the plugin that it comes from, for people."""
    kind = type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    package = kind.__module__.partition(".")[0]
    try:
        plugins = [
            plugin.name if plugin.dist is None else plugin.dist.name
            for plugin in entry_points(group="empo")
            if plugin.module.partition(".")[0] == package
        ]
    except Exception:  # Another distribution's metadata may be damaged.
        plugins = []
    return f"{name} of plugin {plugins[0]}" if plugins else name


def _require_flags(
    world: WorldModel, method: str, answer: object, shape: tuple[int, ...], axes: str
) -> None:
    if not isinstance(answer, Tensor):
        raise broken(world, f"{method}() returned {type(answer).__name__}, not a tensor")
    if answer.dtype != torch.bool or tuple(answer.shape) != shape:
        raise broken(
            world,
            f"{method}() returned {answer.dtype} of shape {list(answer.shape)}, not torch.bool of "
            f"shape {list(shape)} {axes}",
        )


def _checked(
    world: WorldModel,
    states: Tensor,
    actions: Tensor | None,
    successors: AnySuccessors,
    available: Tensor | None,
    is_sound: IsSound | None = None,
) -> AnySuccessors:
    """The successors, checked, with rows of the dtype ``spec.state_dtype``.

    Without ``available``, the world is asked about it where joint actions have no successors.
    """
    spec = world.spec
    pairs_per_state = spec.num_joint_actions if actions is None else 1
    if problem := _form_problem(spec, successors, len(states) * pairs_per_state):
        raise broken(world, f"transitions gave {problem}")
    if is_sound is not None and isinstance(successors, Expansion) and successors.duration is None:
        arrays = successors.offsets.numpy(), successors.index.numpy(), successors.prob.numpy()
        looks_right = is_sound(*arrays)
    else:
        looks_right = False
    if not looks_right and (problem := _disorder(successors)):
        raise broken(world, f"transitions gave {problem}")
    if not looks_right and (wrong := _first_wrong(successors)):
        pair, description = wrong
        joint = _joint_of(spec, actions, pair, pairs_per_state)
        raise broken(
            world,
            f"the successors of one state under ({_names(spec, joint)}) have {description}",
            states[pair // pairs_per_state],
        )
    _require_availability(world, states, actions, successors, available)
    if successors.states.dtype != spec.state_dtype:
        try:
            return replace(successors, states=torch.from_numpy(state_rows(spec, successors.states)))
        except WorldError as error:
            raise broken(world, f"transitions gave a successor that is no state: {error}") from None
    return successors


def _form_problem(spec: WorldSpec, successors: Successors | Expansion, pairs: int) -> str:
    """A fault in shapes or dtypes of successors, in words; "" where there is none."""
    offsets, states, prob, duration = (
        successors.offsets,
        successors.states,
        successors.prob,
        successors.duration,
    )
    index = successors.index if isinstance(successors, Expansion) else None
    tensors = {"offsets": offsets, "states": states, "prob": prob}
    tensors |= {} if duration is None else {"duration": duration}
    tensors |= {} if index is None else {"index": index}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            return f"{type(tensor).__name__} as {name}, which must be a tensor"
        is_real = name in ("prob", "duration")
        if tensor.dtype.is_floating_point != is_real or tensor.dtype in (torch.bool, torch.cfloat):
            return f"{name} of {tensor.dtype}, which must be {'floats' if is_real else 'integers'}"
    if tuple(offsets.shape) != (pairs + 1,):
        return f"offsets of shape {list(offsets.shape)} for {pairs} pairs of state and joint action"
    outcomes = len(prob) if prob.ndim == 1 else -1
    if outcomes < 0 or tuple(states.shape) != (outcomes, spec.state_words):
        return (
            f"states of shape {list(states.shape)} and prob of shape {list(prob.shape)}, which "
            f"must be [item, {spec.state_words}] and [item]"
        )
    if duration is not None and duration.shape != prob.shape:
        return f"duration of shape {list(duration.shape)} and prob of shape {list(prob.shape)}"
    if index is not None and index.ndim != 1:
        return f"index of shape {list(index.shape)}, which must be [item]"
    items = outcomes if index is None else len(index)
    if int(offsets[0]) != 0 or int(offsets[-1]) != items:
        return f"offsets that do not go from 0 to the number of items, {items}"
    return ""


def _disorder(successors: Successors | Expansion) -> str:
    """A fault in offsets or indices of successors, in words; "" where there is none."""
    bounds = successors.offsets.numpy()
    index = successors.index if isinstance(successors, Expansion) else None
    items, outcomes = int(bounds[-1]), len(successors.prob)
    if (bounds[1:] < bounds[:-1]).any():
        return f"offsets that do not ascend from 0 to the number of items, {items}"
    if index is not None and items and not 0 <= int(index.min()) <= int(index.max()) < outcomes:
        return f"an index beyond the {outcomes} outcomes"
    return ""


def _first_wrong(successors: Successors | Expansion) -> tuple[int, str] | None:
    """The first pair with invalid probabilities or durations, and a description of the fault."""
    offsets, prob = successors.offsets.numpy(), successors.prob.numpy()
    index = successors.index.numpy() if isinstance(successors, Expansion) else None
    duration = None if successors.duration is None else successors.duration.numpy()
    checks = [(prob, "a probability of {!r}, and probabilities lie in (0, 1]")]
    wrong = [~((prob > 0) & (prob <= 1 + SUM_TOLERANCE))]
    if duration is not None:
        checks.append((duration, "a duration of {!r}, and durations are positive"))
        wrong.append(~((duration > 0) & (duration < np.inf)))
    for (numbers, message), outcomes in zip(checks, wrong, strict=True):
        if outcomes.any():
            items = np.flatnonzero(outcomes if index is None else outcomes[index])
            if len(items):
                item = int(items[0])
                pair = int(np.searchsorted(offsets, item, side="right")) - 1
                number = float(numbers[item if index is None else index[item]])
                return pair, message.format(number)
    filled = np.flatnonzero(offsets[1:] > offsets[:-1])
    if not len(filled):
        return None
    items = prob if index is None else prob[index]
    total = np.add.reduceat(items, offsets[filled], dtype=np.float64)
    off = ~(np.abs(total - 1) <= SUM_TOLERANCE)
    if off.any():
        at = int(off.argmax())
        return int(filled[at]), f"probabilities that sum to {float(total[at])!r}, not 1"
    return None


def _require_availability(
    world: WorldModel,
    states: Tensor,
    actions: Tensor | None,
    successors: Successors | Expansion,
    available: Tensor | None,
) -> None:
    """Refuse joint actions without successors although ``available()`` allows them, or reverse."""
    spec, offsets = world.spec, successors.offsets.numpy()
    pairs_per_state = spec.num_joint_actions if actions is None else 1
    filled = (offsets[1:] > offsets[:-1]).reshape(-1, pairs_per_state)
    is_full = filled.all()
    if available is None:
        if is_full:
            return
        rows = np.flatnonzero(~filled.all(1))
        available = available_in(world, states[torch.from_numpy(rows)])
        filled = filled[rows]
    else:
        rows = np.arange(len(states))
        if is_full and np.count_nonzero(available.numpy()) == len(states) * sum(spec.num_actions):
            return
    if actions is None:
        possible = possible_pairs(spec, available).numpy()
    else:
        chosen = actions[torch.from_numpy(rows)].long()[..., None]
        possible = available.gather(2, chosen)[..., 0].all(1)[:, None].numpy()
    wrong = possible != filled
    if wrong.any():
        place, joint = np.argwhere(wrong)[0].tolist()
        row, allowed = int(rows[place]), bool(possible[place, joint])
        names = _names(
            spec, _joint_of(spec, actions, row * pairs_per_state + joint, pairs_per_state)
        )
        raise broken(
            world,
            f"available() {'allows' if allowed else 'does not allow'} ({names}), and transitions "
            f"have {'no' if allowed else 'some'} successors of one state under that joint action",
            states[row],
        )


def _joint_of(
    spec: WorldSpec, actions: Tensor | None, pair: int, pairs_per_state: int
) -> list[int]:
    """The action of each agent in a pair."""
    if actions is not None:
        chosen: list[int] = actions[pair].tolist()
        return chosen
    joint = pair % pairs_per_state
    return [joint // s % n for s, n in zip(spec.strides, spec.num_actions, strict=True)]


def _names(spec: WorldSpec, actions: list[int]) -> str:
    """A joint action for people, e.g. ``human: left, robot: still``."""
    return ", ".join(
        f"{agent.name}: {agent.actions[action]}"
        for agent, action in zip(spec.agents, actions, strict=True)
    )
