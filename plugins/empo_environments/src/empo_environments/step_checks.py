"""Checks of what environments return from a step."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from jaxtyping import Bool, Int

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import ActionSpec
from empo_environments.types import Info, Value

log = logging.getLogger(__name__)

FLAGS = ("terminated", "truncated")
SUCCESS = ("success", "is_success")
"""Keys of a step's info that say whether the task is achieved."""
GREATEST = float(np.finfo(np.float32).max)
"""The greatest number of float32, in which observations and rewards reach learners."""


def number(reward: Value) -> float:
    """A reward as a number.

    Raises:
        CollectError: if the reward is no number, or finite and beyond float32.
    """
    is_number = isinstance(reward, int | float | np.number | np.bool_)
    if isinstance(reward, np.ndarray):
        is_number = reward.shape == () and reward.dtype.kind in "fiub"
    if is_number and not isinstance(reward, complex | np.complexfloating):
        value = float(reward)
        if GREATEST < abs(value) < math.inf:
            raise CollectError(f"the reward is {value!r}{beyond_float32()}")
        return value
    raise CollectError(
        f"the reward is {reward!r:.200} ({type(reward).__name__}); it must be one number"
    )


def flag(value: Value, which: int) -> bool:
    """One of ``FLAGS`` as a flag.

    Raises:
        CollectError: if the value is no flag.
    """
    if isinstance(value, bool | np.bool_) or (
        isinstance(value, np.ndarray) and value.shape == () and value.dtype == bool
    ):
        return bool(value)
    raise CollectError(
        f"'{FLAGS[which]}' is {value!r:.200} ({type(value).__name__}); it must be True or False"
    )


def success_of(info: Info) -> int:
    """1 where an info says that the task is achieved, 0 where not; -1 where it does not say.

    A flag, or the number 0 or 1, says so. Anything else is ignored, which one warning tells.
    """
    for key in SUCCESS:
        value = info.get(key)
        if value is None:
            continue
        if isinstance(value, np.ndarray) and value.size == 1:
            value = value.item()
        if isinstance(value, bool | int | float | np.bool_ | np.number) and value in (0, 1):
            return int(value)
        _warn_of_success(key, type(value).__name__)
    return -1


@cache
def _warn_of_success(key: str, kind: str) -> None:
    log.warning(
        "info[%r] of a step is no flag (%s), so it is ignored; return True or False, or 0 or 1, "
        "there to have successes counted",
        key,
        kind,
    )


def beyond_float32() -> str:
    """What is wrong with a finite number that float32 cannot hold; the end of a sentence."""
    return (
        f", and float32, in which learners get numbers, goes up to {GREATEST:.3g}; divide what the "
        "environment returns by a constant"
    )


class ResetError(CollectError):
    """What ``reset`` of an environment takes or returns is wrong.

    Attributes:
        source: The environment.
    """

    def __init__(self, message: str, source: object = None) -> None:
        super().__init__(message)
        self.source = source


def begun(
    reset: Callable[..., Value], seed: int, environment: Value, observation_type: type = object
) -> tuple[Value, Value]:
    """What ``reset(seed=seed)`` returns: observation and info, or dictionaries of them by agent.

    Args:
        reset: The method.
        seed: Its argument.
        environment: Whose method it is, or what is around it.
        observation_type: Class of the first.

    Raises:
        ResetError: if ``reset`` takes no seed, or returns something else.
    """
    inner: Value = getattr(environment, "unwrapped", environment)
    try:
        result = reset(seed=seed)
    except TypeError as error:
        if _takes_seed(inner.reset):
            raise
        raise ResetError(
            f"reset(seed={seed}) failed: {error}; reset must take seed and return observation and "
            f"info, and this one is of an older interface{_OLD}",
            inner,
        ) from error
    if (
        not isinstance(result, tuple)
        or len(result) != 2
        or not isinstance(result[0], observation_type)
        or not isinstance(result[1], Mapping)
    ):
        raise ResetError(
            f"reset(seed={seed}) returned {result!r:.200} ({type(result).__name__}); it must "
            f"return two things, observation and info, the latter a dictionary{_OLD}",
            inner,
        )
    return result


def five(outcome: Value) -> tuple[Value, Value, Value, Value, Value]:
    """What ``step`` returns.

    Raises:
        CollectError: if the outcome is something else.
    """
    try:
        observation, reward, terminated, truncated, info = outcome
    except (TypeError, ValueError) as error:
        count = f" of {len(outcome)}" if isinstance(outcome, tuple | list) else ""
        raise CollectError(
            f"step returned a {type(outcome).__name__}{count}: {outcome!r:.200}; it must return "
            f"five things: observation, reward, terminated, truncated, info{_OLD}"
        ) from error
    if not isinstance(info, dict | Mapping):
        raise CollectError(
            f"the info is {info!r:.200} ({type(info).__name__}); it must be a dictionary, which "
            "may be empty"
        )
    return observation, reward, terminated, truncated, info


_OLD = (
    ". An environment of Gym's older interfaces can be adapted by shimmy's GymV21Environment-v0 or "
    "GymV26Environment-v0, in a function given to empo_core.run(config, env=...)"
)


def _takes_seed(reset: Callable[..., Value]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters
    except (TypeError, ValueError):
        return True  # It does not say.
    kinds = {parameter.kind for parameter in parameters.values()}
    return "seed" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def frames_per_second(metadata: Info | None) -> float | None:
    """The entry ``render_fps`` of an environment's metadata, where it has one."""
    rate = (metadata or {}).get("render_fps")
    return None if rate is None else float(rate)


class EndReasons:
    """Why episodes end: for reasons with names, or those that the flags give."""

    def __init__(self, names: Sequence[str] | None) -> None:
        """Take names, or None where only the flags are known."""
        self.names: tuple[str, ...] = FLAGS if names is None else tuple(names)
        self._named = names is not None

    def of(self, terminated: bool, info: Info) -> int:
        """The position of the reason of an end; -1 where the info does not say.

        Raises:
            CollectError: if the reason is none of these.
        """
        if not self._named:
            return 0 if terminated else 1
        reason = info.get("termination_reason", -1)
        if isinstance(reason, str) and reason in self.names:
            return self.names.index(reason)
        if isinstance(reason, int | np.integer) and -1 <= reason < len(self.names):
            return int(reason)
        raise CollectError(
            f"info['termination_reason'] is {reason!r}; it must be one of "
            f"{', '.join(self.names)}, or its position"
        )


class ActionMasks:
    """Which options an agent has, as ``action_mask`` in an info or observation says."""

    def __init__(self, actions: ActionSpec, where: str = "info") -> None:
        """Masks for these actions, which are found in ``info`` or ``observation``.

        Raises:
            ConfigError: if the actions are numbers, which cannot be masked.
        """
        if not actions.is_discrete:
            raise ConfigError(
                f"action space: the environment masks actions ('action_mask' in its {where}), "
                f"which are numbers; only options can be masked"
            )
        self._name = f"{where}['action_mask']"
        self._options = sum(actions.choices)
        self._firsts = np.cumsum((0, *actions.choices))[:-1]

    def of(self, info: Info) -> Bool[np.ndarray, " option"]:
        """The mask in an info or observation, choice by choice.

        Raises:
            CollectError: if there is none, or it leaves a choice without options.
        """
        flags: Value = info.get("action_mask")
        parts = flags if isinstance(flags, tuple | list) else [flags]
        array = np.concatenate([np.ravel(part) for part in parts]) if parts else np.empty(0)
        if array.size != self._options or array.dtype.kind not in "biu":
            raise CollectError(
                f"{self._name} is {flags!r:.200}; it must be {self._options} flags, one per "
                "option, in every step and reset"
            )
        mask: np.ndarray = array != 0
        if not self.leaves_options(mask):
            raise CollectError(
                f"{self._name} is {flags!r:.200}, which leaves a choice without any option"
            )
        return mask

    def allow(
        self, options: Int[np.ndarray, "agent number"], mask: Bool[np.ndarray, "agent option"]
    ) -> bool:
        """True if every option that was chosen is available."""
        return bool(np.take_along_axis(mask, self._firsts + options, axis=1).all())

    def leaves_options(self, mask: Bool[np.ndarray, "*batch option"]) -> Bool[np.ndarray, "*batch"]:
        """True if masks leave every choice at least one option."""
        left: np.ndarray = np.logical_or.reduceat(mask, self._firsts, axis=-1)
        return np.asarray(left.all(-1))

    def check(self, options: Int[np.ndarray, " number"], mask: Bool[np.ndarray, " option"]) -> None:
        """Raise CollectError where an option was chosen that is not available."""
        if not mask[self._firsts + options].all():
            available = np.flatnonzero(mask).tolist()
            raise CollectError(
                f"the policy chose {options.tolist()}, which {self._name} excludes; "
                f"available options, counted through all choices: {available}"
            )
