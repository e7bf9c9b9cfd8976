"""Environments of all tasks, stepped together."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8

from empo_core.config import EnvironmentRef
from empo_core.errors import CollectError, ConfigError, StorageError
from empo_core.trees import StateDict
from empo_environments.components import GymnasiumBacked
from empo_latent.environments.contract import Look
from empo_latent.environments.member import Decision, Member
from empo_latent.environments.tasks import made, task_of
from empo_latent.types import Interface

log = logging.getLogger(__name__)

PROBED = 5
"""Random decisions by which each task is looked at before anything is learned in it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """Outcomes of the actions of all environments.

    Attributes:
        observation: What is seen then; the last of its episode where one ended.
        reward: What they paid.
        terminated: Whether the episode is over, and nothing is worth anything after it.
        truncated: Whether it was cut off.
        current: What to act on next: the first of a new episode where one ended. The same array
            as ``observation`` where none did.
        success: 1 where the task was achieved, 0 where not; NaN where nobody says.
    """

    observation: Shaped[np.ndarray, "env word"]
    reward: Float32[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    current: Shaped[np.ndarray, "env word"]
    success: Float64[np.ndarray, " env"]


class Fleet:
    """Environments that act together; environment ``e`` plays task ``e % len(tasks)``.

    An episode that ends is followed by the next one in the same step.

    Attributes:
        interface: What never changes about the tasks.
        task_of: The task of each environment.
        rates: Per task, decisions per second for who watches; None where that is unknown.
    """

    interface: Interface
    task_of: Int64[np.ndarray, " env"]
    rates: tuple[float | None, ...]

    def __init__(
        self,
        tasks: Sequence[EnvironmentRef | GymnasiumBacked],
        *,
        envs: int,
        threads: int = 1,
        rendering: bool = False,
    ) -> None:
        """Make all environments, and look whether each task can be learned in.

        Args:
            tasks: What is played.
            envs: How many environments, at least one for each task.
            threads: How many threads step them; the outcome does not depend on it.
            rendering: Whether ``render`` will be called.

        Raises:
            ConfigError: A task cannot be made or learned in, or tasks do not fit together; the
                message says which, why, and what to do.
        """
        if envs < len(tasks):
            raise ConfigError(
                f"algorithm.params.num_envs: {envs} cannot play {len(tasks)} tasks; each "
                f"environment plays one, so at least {len(tasks)} are needed"
            )
        self.task_of = np.arange(envs) % len(tasks)
        built = _built(tasks)
        names = _names(built)
        # An environment stays in one thread for life, which is what OpenGL needs.
        threads = min(threads, envs)
        self._pools = [ThreadPoolExecutor(1, "fleet") for _ in range(threads if threads > 1 else 0)]
        self._members: dict[int, Member] = {}
        self._closed = self._torn = False

        def make(env: int) -> None:
            number = int(self.task_of[env])
            self._members[env] = _member(built[number], number, names[number], env, rendering)

        try:
            self._each(make)
            first = [self._members[number] for number in range(len(tasks))]
            self._each(lambda env: _probe(self._members[env], env, built[env]), range(len(tasks)))
            self.interface = _interface(built, names, first)
        except BaseException:
            self.close()
            raise
        self.rates = tuple(member.rate for member in first)

    @property
    def current(self) -> Shaped[np.ndarray, "env word"]:
        """The current observations."""
        rows = self._each(lambda env: self._members[env].current)
        return self._table(rows)

    def start(self, seed: int) -> Shaped[np.ndarray, "env word"]:
        """Begin the first episodes of a run; the same again for the same seed."""
        self._torn = True
        self._each(lambda env: self._members[env].start(seed))
        self._torn = False
        return self.current

    def step(self, action: Float32[np.ndarray, "env action"]) -> Step:
        """Act in all environments.

        Raises:
            CollectError: One failed, or showed or paid no finite number; the message says which
                one, when, and how to get there again.
        """
        self._torn = True  # Until all have acted, for one may fail when others have.
        found = self._each(lambda env: self._members[env].step(action[env]))
        self._torn = False
        return self._gathered(found)

    def render(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of an environment, for people; needs ``rendering``.

        Raises:
            ConfigError: None can be taken; the message says why, and what to do.
        """
        (picture,) = self._each(lambda each: self._members[each].render(), [env])
        return picture

    def state_dict(self) -> StateDict:
        """Everything needed to return to this point, as a tree for checkpoints."""
        return {
            "whole": not self._torn,
            "environments": self._each(lambda env: self._members[env].state_dict()),
        }

    def load_state_dict(self, state: StateDict) -> bool:
        """Play the episodes that were going on again, up to where they stood.

        Returns:
            Whether all environments got there; those that did not have begun a new episode, see
            ``current``.

        Raises:
            StorageError: The state is one of another number of environments.
        """
        states, whole = state["environments"], state["whole"]
        if len(states) != len(self._members):
            raise StorageError(
                f"the checkpoint has {len(states)} environments, and there are "
                f"{len(self._members)}; go on with as many as the run began with"
            )
        self._torn = True
        exact = self._each(lambda env: self._members[env].load_state_dict(states[env], again=whole))
        self._torn = False
        return all(exact)

    def close(self) -> None:
        """Close all environments; nothing happens the second time."""
        if self._closed:
            return
        self._closed = True
        self._each(self._close, sorted(self._members))
        for pool in self._pools:
            pool.shutdown()

    def _close(self, env: int) -> None:
        try:
            self._members[env].close()
        except Exception:  # The others are to be closed too, and the run is over anyway.
            log.warning("environment %d cannot be closed", env, exc_info=True)

    def _each(self, call: Callable[[int], T], envs: Sequence[int] | None = None) -> list[T]:
        """Results of a function for each environment, called in its own thread.

        Where some fail, the error of the first is raised when all are through.
        """
        envs = range(len(self.task_of)) if envs is None else envs
        if not self._pools:
            return [call(env) for env in envs]
        threads = len(self._pools)
        mine = [[env for env in envs if env % threads == thread] for thread in range(threads)]
        results: dict[int, T] = {}
        errors: dict[int, BaseException] = {}

        def work(own: Sequence[int]) -> None:
            for env in own:
                try:
                    results[env] = call(env)
                except BaseException as error:
                    errors[env] = error
                    return

        wait([pool.submit(work, own) for pool, own in zip(self._pools, mine, strict=True) if own])
        if errors:
            raise errors[min(errors)]
        return [results[env] for env in envs]

    def _gathered(self, found: Sequence[Decision]) -> Step:
        terminated = np.array([each.terminated for each in found])
        truncated = np.array([each.truncated for each in found])
        observation = current = self._table([each.observation for each in found])
        if terminated.any() or truncated.any():
            current = self._table([each.current for each in found])
        return Step(
            observation=observation,
            reward=np.array([each.reward for each in found], np.float32),
            terminated=terminated,
            truncated=truncated,
            current=current,
            success=np.array([each.success for each in found]),
        )

    def _table(
        self, rows: Sequence[Shaped[np.ndarray, " _word"]]
    ) -> Shaped[np.ndarray, "env word"]:
        """Rows side by side, shorter ones with zeros behind."""
        words = self.interface.words
        if all(row.size == words for row in rows):
            return np.stack(rows)
        table = np.zeros((len(rows), words), rows[0].dtype)
        for line, row in zip(table, rows, strict=True):
            line[: row.size] = row
        return table


def _built(tasks: Sequence[EnvironmentRef | GymnasiumBacked]) -> list[GymnasiumBacked]:
    """The environments of the tasks."""
    built = []
    for number, task in enumerate(tasks):
        try:
            built.append(task_of(task))
        except ConfigError as error:
            raise ConfigError(f"{_where(number)}: {error}") from error
    return built


def _names(tasks: Sequence[GymnasiumBacked]) -> tuple[str, ...]:
    """Names of the tasks; those of one name get a number each."""
    names = [task.name for task in tasks]
    seen: Counter[str] = Counter()
    told = []
    for name in names:
        seen[name] += 1
        told.append(name if names.count(name) == 1 else f"{name}#{seen[name]}")
    return tuple(told)


def _member(task: GymnasiumBacked, number: int, name: str, env: int, rendering: bool) -> Member:
    try:
        environment = made(task, rendering=rendering)
    except ConfigError as error:
        raise ConfigError(f"{_where(number)}: {error}") from error
    return Member(environment, task.params, f"environment {env} ({name})", env)


def _probe(member: Member, number: int, task: GymnasiumBacked) -> None:
    """Look whether a task can be learned in."""
    if not member.look.pictures and task.params.picture_size is not None:
        raise ConfigError(
            f"{_where(number)}.params.picture_size: belongs to tasks that show pictures, "
            "and this one shows numbers; drop it"
        )
    if member.length is None:
        raise ConfigError(
            f"{_where(number)}.params.max_episode_steps: the environment does not say after how "
            "many steps episodes of this task are cut off, and learning depends on it; set it, "
            "e.g. to 1000"
        )
    random = np.random.default_rng(0)
    try:
        member.start(0)
        for _ in range(PROBED):
            member.step(random.uniform(-1, 1, member.actions).astype(np.float32))
    except CollectError as error:
        raise ConfigError(
            f"{_where(number)}: the task failed when it was looked at with a few random actions: "
            f"{error}"
        ) from error


def _interface(
    tasks: Sequence[GymnasiumBacked], names: tuple[str, ...], members: Sequence[Member]
) -> Interface:
    """The specification that fits all tasks."""
    looks = [member.look for member in members]
    if len({look.pictures for look in looks}) > 1:
        kinds = (f"{n} shows {_kind(look)}" for n, look in zip(names, looks, strict=True))
        raise ConfigError(
            f"algorithm.params.tasks: {', '.join(kinds)}; tasks share one encoder, which reads one "
            "of the two: learn them in runs of their own"
        )
    pictures = looks[0].pictures
    if pictures and len({look.scale for look in looks}) > 1:
        scales = (f"{n} shows 0 to {look.scale:g}" for n, look in zip(names, looks, strict=True))
        raise ConfigError(
            f"algorithm.params.tasks: {', '.join(scales)}; tasks share one encoder, which divides "
            "pictures by one number: learn them in runs of their own"
        )
    if pictures and len({look.shape for look in looks}) > 1:
        shapes = (f"{n} shows {look.shape}" for n, look in zip(names, looks, strict=True))
        raise ConfigError(
            f"algorithm.params.tasks: {', '.join(shapes)} (channels, height, width); tasks share "
            "one encoder, so these must be equal: set frame_stack and picture_size to make them so"
        )
    words = max(math.prod(look.shape) for look in looks)
    actions = max(member.actions for member in members)
    return Interface(
        words=words,
        pictures=pictures,
        shape=looks[0].shape if pictures else (words,),
        actions=actions,
        scale=looks[0].scale,
        active=tuple(tuple(i < member.actions for i in range(actions)) for member in members),
        tasks=names,
        action_repeats=tuple(task.params.action_repeat for task in tasks),
        episode_lengths=tuple(member.length or 0 for member in members),
    )


def _kind(look: Look) -> str:
    return "pictures" if look.pictures else "numbers"


def _where(number: int) -> str:
    return f"algorithm.params.tasks.{number}"


__all__ = ["Fleet", "Step"]
