"""Gymnasium's spaces as flat rows: what agents see, and what they do."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import ActionSpec, ObservationSpec
from empo_environments.step_checks import GREATEST, beyond_float32
from empo_environments.types import Space, Value

MAX_OPTIONS = 2**16
"""Most words of a one-hot row, and most options of an action."""
MASK = "action_mask"
"""Part of a Dict observation, or entry of an info, that says which options are available."""

Write: TypeAlias = Callable[[Value], None]
"""Writes an observation to the row it was bound to; raises CollectError where it does not fit."""
Row: TypeAlias = Shaped[np.ndarray, " word"]
Bind: TypeAlias = Callable[[Row], Write]
"""Binds a row of ``Observations.words`` words."""
Decode: TypeAlias = Callable[[Shaped[np.ndarray, "*agent number"]], Value]
"""The action that a row of ``Actions.size`` numbers stands for."""


def observing(space: Space) -> tuple[ObservationSpec, Bind]:
    """Conversion of observations to rows.

    Boxes are flattened, a picture channel first; choices become one-hot words, bits one word
    each. Parts of Dict and Tuple follow each other, the first picture ahead of all. A row of
    pictures of one scale stays bytes; a picture that shares a row with others is scaled to
    [0, 1] by its declared bound. Other integers stay the numbers they are.

    Raises:
        ConfigError: if there is no such row; the message names the space.
    """
    parts = [_observed(path, leaf) for path, leaf in _leaves(space, ())]
    picture = next((part for part in parts if part.grid is not None), None)
    parts.sort(key=lambda part: part is not picture)
    words = sum(part.words for part in parts)
    if words < 1:
        raise ConfigError(f"observation space {space}: there is nothing to see in it")
    scales = {part.scale for part in parts}
    scale = scales.pop() if len(scales) == 1 else None
    grid = None if picture is None else picture.grid
    bounds = _bounds(parts, np.dtype("float32" if scale is None else "uint8"))
    if scale is None:
        observations = ObservationSpec(words, "float32", grid, bounds=bounds)
    else:
        observations = ObservationSpec(words, "uint8", grid, scale, bounds)

    def bind(row: Shaped[np.ndarray, " word"]) -> Write:
        writes, first = [], 0
        for part in parts:
            words = row[first : first + part.words]
            writes.append((part.path, part.bind(words)))
            first += part.words
        if len(writes) == 1 and not parts[0].path:
            return writes[0][1]

        def write(observation: Value) -> None:
            for path, write_part in writes:
                write_part(_part_of(observation, path))

        return write

    return observations, bind


def acting(space: Space) -> tuple[ActionSpec, Decode]:
    """Conversion of rows to actions.

    Numbers beyond the bounds of a box are moved to the bound.

    Raises:
        ConfigError: if there are no such rows; the message names the space.
    """
    done = [_done(path, leaf) for path, leaf in _leaves(space, ())]
    actions = ActionSpec(
        choices=tuple(count for part in done for count in part.actions.choices),
        low=tuple(low for part in done for low in part.actions.low),
        high=tuple(high for part in done for high in part.actions.high),
    )
    if actions.choices and actions.low:
        raise ConfigError(
            f"action space {space}: choices and numbers cannot be mixed; wrap the environment so "
            "that it takes one of them"
        )
    if not actions.size:
        raise ConfigError(f"action space {space}: there is nothing to do in it")
    if sum(actions.choices) > MAX_OPTIONS:
        raise ConfigError(
            f"action space {space}: has {sum(actions.choices):,} options; at most {MAX_OPTIONS:,} "
            "can be told apart"
        )
    if len(done) == 1 and not done[0].path:
        return actions, done[0].decode
    sizes = [part.actions.size for part in done]

    def decode(row: Shaped[np.ndarray, "*agent number"]) -> Value:
        rows = np.split(row.ravel(), np.cumsum(sizes)[:-1])
        values = iter([part.decode(words) for part, words in zip(done, rows, strict=True)])
        return _assembled(space, values)

    return actions, decode


def without_mask(space: Space, actions: ActionSpec) -> tuple[Space, bool]:
    """What of an observation is observed, and whether its part ``action_mask`` masks actions.

    Args:
        space: Of the observations.
        actions: What is masked.

    Raises:
        ConfigError: if there is a part of that name that cannot mask these actions.
    """
    other = "give that part another name, or leave it out by 'keys'"
    for path, _ in _leaves(space, ()):
        if path[1:] and path[-1] == MASK and path[0] != MASK:
            raise ConfigError(
                f"observation space{_at(path)}: an action mask must lie in the observation itself "
                f"or in the info, and not deeper; move it, or {other}"
            )
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return space, False
    mask, options = space.spaces[MASK], sum(actions.choices)
    leaves = [leaf for _, leaf in _leaves(mask, ())]
    flags = sum(math.prod(leaf.shape or (1,)) for leaf in leaves)
    if flags != options:
        problem = f"{options} options" if actions.is_discrete else "numbers, which cannot be masked"
        raise ConfigError(
            f"observation space{_at((MASK,))} {mask}: {flags} flags cannot mask actions, which are "
            f"{problem}; {other}"
        )
    others = {key: part for key, part in space.spaces.items() if key != MASK}
    return spaces.Dict(others), True


@dataclass(frozen=True, slots=True)
class _Observed:
    """A part of an observation: where it is found, and how it is written."""

    path: tuple[str | int, ...]
    space: Space
    words: int
    bind: Bind
    grid: tuple[int, int, int] | None = None
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    """A part of an action."""

    path: tuple[str | int, ...]
    actions: ActionSpec
    decode: Decode


def _leaves(
    space: Space, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Space]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    else:
        yield path, space


def _part_of(value: Value, path: tuple[str | int, ...]) -> Value:
    for depth, key in enumerate(path):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            raise CollectError(
                f"the observation{_at(path[:depth])} is {value!r:.200}; it should have {key!r}"
            ) from error
    return value


def _assembled(space: Space, values: Iterator[Value]) -> Value:
    if isinstance(space, spaces.Dict):
        return {key: _assembled(part, values) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assembled(part, values) for part in space.spaces)
    return next(values)


def _at(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _observed(path: tuple[str | int, ...], space: Space) -> _Observed:
    if isinstance(space, spaces.Box) and space.dtype.kind in "fiub":
        return _observed_box(path, space)
    if isinstance(space, spaces.MultiBinary):
        words = math.prod(space.shape)
        return _Observed(
            path, space, words, lambda row: _numbers(row.reshape(space.shape), path, space)
        )
    if isinstance(space, spaces.Discrete):
        counts, starts = np.array([space.n]), np.array([space.start])
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel(), space.start.ravel()
    else:
        raise ConfigError(_unfit("observation", path, space))
    words = int(counts.sum())
    if words > MAX_OPTIONS:
        raise ConfigError(
            f"observation space{_at(path)} {space}: one word for each of {words:,} values is too "
            f"much ({MAX_OPTIONS:,} at most); wrap the environment so that it shows numbers"
        )
    if isinstance(space, spaces.Discrete):
        return _Observed(path, space, words, lambda row: _one_hot(row, path, space))
    return _Observed(path, space, words, lambda row: _one_hots(row, path, space, counts, starts))


def picture_scale(space: Space) -> float | None:
    """The greatest value of a picture; None for a space of anything else.

    A picture is a Box of bytes with two or three axes from 0 to a bound, of whatever size.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return None
    if len(space.shape) not in (2, 3) or space.low.any() or not space.high.any():
        return None
    return float(space.high.max())


def is_channel_first(shape: tuple[int, ...]) -> bool:
    """True if the first of three axes is that of the channels.

    There are fewer channels than pixels; where that does not tell, they come last, as usual.
    """
    return shape[0] < shape[2]


def _observed_box(path: tuple[str | int, ...], space: spaces.Box) -> _Observed:
    shape, words, scale = space.shape, math.prod(space.shape), picture_scale(space)

    def bind(row: Shaped[np.ndarray, " word"]) -> Write:
        view = row.reshape(shape)
        if len(shape) == 3 and not is_channel_first(shape):
            view = row.reshape(shape[2], shape[0], shape[1]).transpose(1, 2, 0)
        return _numbers(view, path, space, scale)

    grid: tuple[int, int, int] | None = None
    if len(shape) == 2 and scale is not None:
        grid = (1, shape[0], shape[1])
    elif len(shape) == 3:
        first, second, third = shape
        grid = (first, second, third) if is_channel_first(shape) else (third, first, second)
    return _Observed(path, space, words, bind, grid, scale)


def _bounds(
    parts: Sequence[_Observed], dtype: np.dtype[np.generic]
) -> tuple[tuple[int, float, float], ...]:
    """Least and greatest value of the words of a row; see ``ObservationSpec.bounds``."""
    rows = []
    for part in parts:
        row = np.zeros((2, part.words), dtype)
        if isinstance(part.space, spaces.Box):
            for bound, words in zip((part.space.low, part.space.high), row, strict=True):
                # What is beyond float32 bounds nothing, as an observation cannot be.
                narrow = np.clip(bound, -GREATEST, GREATEST) if bound.dtype == np.float64 else bound
                part.bind(words)(narrow)
        else:  # One-hot words, and bits.
            row[1] = 1
        rows.append(row)
    low, high = np.concatenate(rows, 1)
    if dtype == np.float32:
        low, high = (
            np.where(low <= -GREATEST, -np.inf, low),
            np.where(high >= GREATEST, np.inf, high),
        )
        if np.isinf(low).all() and np.isinf(high).all():
            return ()
    changes = np.flatnonzero((low[1:] != low[:-1]) | (high[1:] != high[:-1])) + 1
    runs = pairwise([0, *changes.tolist(), len(low)])
    return tuple((last - first, float(low[first]), float(high[first])) for first, last in runs)


def _numbers(
    target: np.ndarray, path: tuple[str | int, ...], space: Space, scale: float | None = None
) -> Write:
    """Write arrays of numbers to a view of the same shape, a picture's divided by its scale."""
    shape, dtype = target.shape, space.dtype
    assert dtype is not None

    def write(value: Value) -> None:
        # Almost always all is well, and this is done for every step of every environment.
        if value.__class__ is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = _fitting(value, shape, dtype, path)
        target[...] = value

    if dtype == np.float64 and target.dtype == np.float32:

        def write_narrowed(value: Value) -> None:
            fits = value.__class__ is np.ndarray and value.dtype is dtype and value.shape == shape
            # A sum of squares takes a tenth of the time in which overflows can be watched for.
            if fits and np.vdot(value, value) < GREATEST:
                target[...] = value
                return
            try:
                with np.errstate(over="raise"):
                    write(value)
            except FloatingPointError as error:
                raise CollectError(
                    f"the observation{_at(path)} is {value!r:.200}{beyond_float32()}"
                ) from error

        return write_narrowed
    if scale is None or target.dtype == np.uint8:
        return write
    factor = np.float32(1 / scale)

    def write_scaled(value: Value) -> None:
        np.multiply(_fitting(value, shape, dtype, path), factor, out=target)

    return write_scaled


def _fitting(
    value: Value, shape: tuple[int, ...], dtype: np.dtype[np.generic], path: tuple[str | int, ...]
) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise CollectError(
            f"the observation{_at(path)} is {value!r:.200}, {array.dtype} of shape {array.shape}; "
            f"its space says {dtype} of shape {shape}"
        )
    return array


def _one_hot(row: np.ndarray, path: tuple[str | int, ...], space: spaces.Discrete) -> Write:
    count, start = int(space.n), int(space.start)

    def write(value: Value) -> None:
        try:
            place = operator.index(value) - start
        except TypeError:
            place = -1
        if not 0 <= place < count:
            raise CollectError(
                f"the observation{_at(path)} is {value!r:.200}; its space says an integer from "
                f"{start} to {start + count - 1}"
            )
        row[...] = 0
        row[place] = 1

    return write


def _one_hots(
    row: np.ndarray, path: tuple[str | int, ...], space: Space, counts: np.ndarray,
    starts: np.ndarray,
) -> Write:  # fmt: skip
    firsts = np.cumsum(counts) - counts
    shape, dtype = space.shape, space.dtype
    assert shape is not None
    assert dtype is not None

    def write(value: Value) -> None:
        places = _fitting(value, shape, dtype, path).ravel() - starts
        if (places < 0).any() or (places >= counts).any():
            raise CollectError(
                f"the observation{_at(path)} is {value!r:.200}, which is not in its space {space}"
            )
        row[...] = 0
        row[firsts + places] = 1

    return write


def _done(path: tuple[str | int, ...], space: Space) -> _Done:
    if isinstance(space, spaces.Discrete):
        count, start = int(space.n), int(space.start)
        # Numbers of numpy, as sampled from the space: it checks them faster than Python's.
        options = [space.dtype.type(start + option) for option in range(min(count, MAX_OPTIONS))]
        return _Done(path, ActionSpec(choices=(count,)), lambda row: options[row.item()])
    if isinstance(space, spaces.MultiDiscrete):
        return _done_choices(path, space, space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _done_choices(path, space, np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu":
        # As Python's numbers, for there may be as many options as 64 bits can count.
        counts = space.high.astype(object) - space.low.astype(object) + 1
        return _done_choices(path, space, counts, space.low)
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise ConfigError(_unfit("action", path, space))
    shape, dtype, low, high = space.shape, space.dtype, space.low, space.high
    # As float32, for the bounds of a wider dtype may be no float32 numbers.
    bounds = [
        tuple(float(number) for number in np.asarray(bound, np.float32).ravel())
        for bound in (low, high)
    ]
    return _Done(
        path,
        ActionSpec(low=bounds[0], high=bounds[1]),
        lambda row: np.clip(row.reshape(shape).astype(dtype), low, high),
    )


def _done_choices(
    path: tuple[str | int, ...], space: Space, counts: np.ndarray, starts: np.ndarray
) -> _Done:
    shape, dtype = counts.shape, space.dtype
    starts = starts.astype(dtype)
    return _Done(
        path,
        ActionSpec(choices=tuple(int(count) for count in counts.ravel())),
        lambda row: row.reshape(shape).astype(dtype) + starts,
    )


def _unfit(kind: str, path: tuple[str | int, ...], space: Space) -> str:
    supported = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
    return (
        f"{kind} space{_at(path)} {space}: cannot be written as a row of numbers; what can: "
        f"{supported}. Observe other parts (keys), or wrap the environment and give that to "
        "empo_core.run(config, env=...)"
    )
