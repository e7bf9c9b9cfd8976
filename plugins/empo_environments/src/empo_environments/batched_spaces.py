"""Observations and actions of many copies at once, as vector environments have them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from jaxtyping import Bool, Int, Shaped

from empo_core.errors import CollectError
from empo_core.protocols.environments import Action, ActionSpec
from empo_environments.spaces import acting, observing
from empo_environments.step_checks import ActionMasks, beyond_float32
from empo_environments.types import Info, Space, Value

Rows: TypeAlias = Shaped[np.ndarray, "agent word"]
Flags: TypeAlias = Bool[np.ndarray, " agent"]
Mask: TypeAlias = Bool[np.ndarray, "agent option"] | None


class BatchedObservations:
    """Batches of observations as rows, laid out as ``spaces.observing`` does."""

    def __init__(self, space: Space) -> None:
        """Look at the space of a single copy.

        Raises:
            ConfigError: if its observations cannot become rows.
        """
        self._space = space
        self.format, self._bind = observing(space)

    def rows(self, batch: Value, count: int) -> Rows:
        """The rows of ``count`` observations; perhaps a view.

        Raises:
            CollectError: if the observations are not of the space's shape or dtype.
        """
        if isinstance(self._space, spaces.Box):
            return self._boxes(self._space, batch, count)
        rows = np.empty((count, self.format.words), self.format.dtype)
        one_by_one = iterate(batch_space(self._space, count), batch)
        for number in range(count):
            try:
                observation = next(one_by_one)
            except (StopIteration, KeyError, IndexError, TypeError, ValueError) as error:
                raise CollectError(
                    f"environment {number} has no observation: {batch!r:.200}"
                ) from error
            try:
                self._bind(rows[number])(observation)
            except CollectError as error:
                raise CollectError(f"environment {number}: {error}") from error
        return rows

    def stacked(self, observations: Iterable[Value]) -> Value:
        """Observations of single copies as a batch.

        Raises:
            CollectError: if the parts do not fit together.
        """
        try:
            return _batch(self._space, list(observations))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CollectError(
                f"the observations {observations!r:.200} are not of the space {self._space}"
            ) from error

    def _boxes(self, space: spaces.Box, batch: Value, count: int) -> Rows:
        """All at once: the row of a box is its numbers."""
        array, dtype = np.asarray(batch), space.dtype
        shape = (count, *space.shape)
        if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise CollectError(
                f"the observations are {array.dtype} of shape {array.shape}; the space of a single "
                f"environment says {dtype} of shape {shape[1:]}, and there are {count}"
            )
        grid = self.format.grid
        if grid is not None and len(shape) == 4 and shape[1:] != grid:
            array = array.transpose(0, 3, 1, 2)
        if array.dtype == np.float64:
            array = narrowed("observation", array)
        rows: Rows = array.astype(self.format.dtype, copy=False).reshape(count, -1)
        return rows


class BatchedActions:
    """Rows of numbers as batches of actions."""

    def __init__(self, space: Space) -> None:
        """Look at the space of a single copy.

        Raises:
            ConfigError: if there are no rows for its actions.
        """
        self._space = space
        self.format, self._decode = acting(space)

    def batch(self, action: Action) -> Value:
        """The batch that the rows stand for."""
        space, count = self._space, len(action)
        if isinstance(space, spaces.Discrete):
            return action[:, 0] + space.start
        if isinstance(space, spaces.MultiDiscrete):
            return (action.reshape(count, *space.shape) + space.start).astype(space.dtype)
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            array = action.reshape(count, *space.shape).astype(space.dtype)
            return array.clip(space.low, space.high)
        return _batch(space, [self._decode(row) for row in action])


def _batch(space: Space, values: list[Value]) -> Value:
    empty: Value = create_empty_array(space, n=len(values), fn=np.zeros)
    return concatenate(space, values, empty)


def legal(actions: ActionSpec, action: Action) -> Action:
    """Actions that an environment can look at, though some may mean nothing."""
    if actions.is_discrete:
        # Half the time of a clip, which has to find out first what it is given.
        options: Action = np.minimum(np.maximum(action, 0), _last_options(actions.choices))
        return options
    values: Action = np.nan_to_num(action)  # Decoding keeps to the bounds.
    return values


@lru_cache(maxsize=16)
def _last_options(choices: tuple[int, ...]) -> Int[np.ndarray, " choice"]:
    """Shared by all who ask, so not to be written to."""
    return np.array(choices) - 1


def masks(
    info: Info, actions: ActionSpec, is_needed: Flags, where: str = "info"
) -> Bool[np.ndarray, "agent option"]:
    """Options that ``action_mask`` allows, of infos or observations; all where it is not needed.

    Raises:
        CollectError: if the mask is missing where one is needed, is no mask, or leaves nothing to
            do.
    """
    mask = np.ones((len(is_needed), sum(actions.choices)), bool)
    values = info.get("action_mask", [None] * len(is_needed))
    is_set = info.get("_action_mask", np.ones_like(is_needed))
    reader, read = ActionMasks(actions, where), is_needed
    if isinstance(values, np.ndarray) and values.shape == mask.shape and values.dtype.kind in "biu":
        # All at once; what is wrong is read again below, which raises.
        fine = reader.leaves_options(values != 0) & is_set
        mask[is_needed & fine] = values[is_needed & fine] != 0
        read = is_needed & ~fine
    for number in np.flatnonzero(read):
        try:
            mask[number] = reader.of({"action_mask": values[number]} if is_set[number] else {})
        except CollectError as error:
            raise CollectError(f"environment {number}: {error}") from error
    return mask


def check_available(
    actions: ActionSpec, action: Action, mask: Bool[np.ndarray, "agent option"], acts: Flags
) -> None:
    """Raise ValueError where an agent acts by an option that is not available."""
    places = np.cumsum((0, *actions.choices))[:-1] + action
    wrong = acts.copy()
    wrong[acts] = ~np.take_along_axis(mask[acts], places[acts], axis=1).all(1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"the action of row {row} is {action[row].tolist()}, which its mask excludes; "
            f"available options, counted through all choices: {np.flatnonzero(mask[row]).tolist()}"
        )


def numbers(name: str, values: Value, count: int, kinds: str) -> Shaped[np.ndarray, " env"]:
    """An array of one value per environment.

    Raises:
        CollectError: if the value is no such array, or not of one of these kinds of dtypes.
    """
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in kinds:
        raise CollectError(
            f"the {name} are {array.dtype} of shape {array.shape}: {values!r:.200}; they must be "
            f"{'flags' if kinds == 'b' else 'numbers'} of shape ({count},), one per environment"
        )
    return array


def narrowed(name: str, values: Shaped[np.ndarray, "env ..."]) -> Shaped[np.ndarray, "env ..."]:
    """Values of any dtype as float32.

    Raises:
        CollectError: if a finite one is beyond float32.
    """
    with np.errstate(over="ignore"):
        narrow: np.ndarray = values.astype(np.float32)
    if values.dtype == np.float64 and (lost := np.isinf(narrow) & np.isfinite(values)).any():
        row = int(lost.reshape(len(values), -1).any(1).argmax())
        raise CollectError(
            f"the {name} of environment {row} is {values[row].tolist()!r:.500}{beyond_float32()}"
        )
    return narrow


def check_finite(
    name: str,
    values: Shaped[np.ndarray, "env ..."],
    action: Action | None = None,
    envs: Int[np.ndarray, " env"] | None = None,
) -> None:
    """Raise CollectError where something is not finite.

    Args:
        name: What it is.
        values: A value or a row per environment.
        action: What they did before; None: nothing, an episode begins or is over.
        envs: Which environments; None: all.
    """
    if values.dtype == np.uint8 or (finite := np.isfinite(values)).all():
        return
    row = int(finite.reshape(len(values), -1).all(1).argmin())
    after = "" if action is None else f" after action {action[row].tolist()}"
    raise CollectError(
        f"the {name} of environment {row if envs is None else int(envs[row])} is "
        f"{values[row].tolist()!r:.500}{after}; NaN and infinity cannot be learned from"
    )
