"""Vectorised environments of all tasks, stepped together."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8

from empo_core.best_effort import best_effort
from empo_core.errors import CollectError, ConfigError, StorageError
from empo_core.trees import StateDict, whole_number
from empo_environments.single_env import episode_seed
from empo_latent.environments.tasks import (
    Task,
    TaskEnv,
    environment_of,
    location,
    merge_specs,
    task_names,
    task_spec,
)
from empo_latent.types import MultiTaskSpec

log = logging.getLogger(__name__)

PROBED = 5
"""Random decisions by which each task is looked at before anything is learned in it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskStep:
    """Outcomes of the actions of all environments.

    Attributes:
        observation: What is seen then; the last of its episode where one ended.
        reward: What they paid.
        terminated: Whether the episode is over, and nothing is worth anything after it.
        truncated: Whether it was cut off.
        current: What to act on next: the first of a new episode where one ended. The same array
            as ``observation`` where none did.
        success: 1 where the task was achieved, 0 where not; NaN where the environment does not say.
    """

    observation: Shaped[np.ndarray, "env word"]
    reward: Float32[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    current: Shaped[np.ndarray, "env word"]
    success: Float64[np.ndarray, " env"]


def multi_task_spec(tasks: Sequence[Task], *, envs: int) -> MultiTaskSpec:
    """The spec of the tasks that so many environments would play; takes no step.

    Raises:
        ConfigError: as ``TaskVector`` says.
    """
    _require_enough(envs, len(tasks))
    built = [environment_of(task, location(number, task)) for number, task in enumerate(tasks)]
    specs = [task_spec(task, location(number, task)) for number, task in enumerate(built)]
    return merge_specs(task_names(built), specs)


def _require_enough(envs: int, tasks: int) -> None:
    if envs < tasks:
        raise ConfigError(
            f"algorithm.params.num_envs: {envs} cannot play {tasks} tasks; each "
            f"environment plays one, so at least {tasks} are needed"
        )


class TaskVector:
    """Environments that act together; environment ``e`` plays task ``e % len(tasks)``.

    An episode that ends is followed by the next one in the same step.

    Attributes:
        spec: What never changes about the tasks.
        task_of: The task of each environment.
        rates: Per task, decisions per second for who watches; None where that is unknown.
        current: The current observations.
    """

    spec: MultiTaskSpec
    task_of: Int64[np.ndarray, " env"]
    rates: tuple[float | None, ...]
    current: Shaped[np.ndarray, "env word"]

    def __init__(
        self, tasks: Sequence[Task], *, envs: int, threads: int = 1, rendering: bool = False
    ) -> None:
        """Make all environments, and look whether each task can be learned in.

        Args:
            tasks: What is played.
            envs: How many environments, at least one for each task.
            threads: How many threads step them; the outcome does not depend on it.
            rendering: Whether ``render`` will be called.

        Raises:
            ConfigError: if a task cannot be made or learned in, or tasks do not fit together; the
                message says which, why, and what to do.
        """
        _require_enough(envs, len(tasks))
        self.task_of = np.arange(envs) % len(tasks)
        built = [environment_of(task, location(number, task)) for number, task in enumerate(tasks)]
        names = task_names(built)
        # An environment stays in one thread for life, which is what OpenGL needs.
        threads = min(threads, envs)
        self._pools = [
            ThreadPoolExecutor(1, "vector") for _ in range(threads if threads > 1 else 0)
        ]
        self._envs: dict[int, TaskEnv] = {}
        self._closed = self._torn = self._takes_turns = False
        self._seed = self._restarts = 0

        def make(env: int) -> None:
            number = int(self.task_of[env])
            self._envs[env] = TaskEnv(
                built[number],
                env,
                name=names[number],
                where=location(number, built[number]),
                rendering=rendering,
            )

        try:
            # One after the other: what is drawn from global generators comes in a fixed order.
            for env in range(envs):
                self._call_all(make, [env])
            specs = [self._envs[number].spec for number in range(len(tasks))]
            for number in range(len(tasks)):
                before = _global_states()
                self._call_all(self._probe, [number])
                self._takes_turns |= _global_states() != before
            if self._takes_turns and self._pools:
                log.info(
                    "the environments draw from global random generators: they step one after the "
                    "other, since threads would make the order of draws a matter of chance"
                )
            self.spec = merge_specs(names, specs)
        except BaseException:
            self.close()
            raise
        self.current = np.zeros((envs, self.spec.words))
        self.rates = tuple(spec.render_fps for spec in specs)

    def start(self, seed: int) -> Shaped[np.ndarray, "env word"]:
        """Begin the first episodes of a run; the same again for the same seed."""
        self._seed, self._restarts = seed, 0
        self._begin(seed)
        return self.current

    def step(self, action: Float32[np.ndarray, "env action"]) -> TaskStep:
        """Act in all environments.

        Raises:
            CollectError: if an environment failed, or showed or paid no finite number; the message
                says which one, when, and how to get there again.
        """
        self._torn = True  # Until all have acted, for one may fail when others have.
        steps = self._call_all(lambda env: self._envs[env].step(action[env]))
        self._torn = False
        terminated = np.array([step.terminated for step in steps])
        truncated = np.array([step.truncated for step in steps])
        self.current = current = self._table([step.current for step in steps])
        ended = terminated.any() or truncated.any()
        return TaskStep(
            observation=self._table([step.last for step in steps]) if ended else current,
            reward=np.array([step.reward for step in steps], np.float32),
            terminated=terminated,
            truncated=truncated,
            current=current,
            success=np.array([step.success for step in steps]),
        )

    def render(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of an environment, for people; needs ``rendering``.

        Raises:
            ConfigError: if no picture can be taken; the message says why, and what to do.
        """
        (picture,) = self._call_all(lambda index: self._envs[index].render(), [env])
        return picture

    def state_dict(self) -> StateDict:
        """Everything needed to return to this point, as a tree for checkpoints."""
        states = None if self._torn else self._call_all(lambda env: self._envs[env].state_dict())
        return {
            "environments": states,
            "count": len(self._envs),
            "seed": self._seed,
            "restarts": self._restarts,
        }

    def load_state_dict(self, state: StateDict) -> bool:
        """Play the episodes that were going on again, up to where they stood.

        Returns:
            Whether all environments got there; those that did not have begun a new episode, see
            ``current``.

        Raises:
            StorageError: if the state is one of another number of environments.
        """
        states = state["environments"]
        if state["count"] != len(self._envs):
            raise StorageError(
                f"the checkpoint has {state['count']} environments, and there are "
                f"{len(self._envs)}; go on with as many as the run began with"
            )
        self._seed, self._restarts = whole_number(state["seed"]), whole_number(state["restarts"])
        if states is None:  # One had failed when others had acted.
            self._restarts += 1
            self._begin(episode_seed(self._seed, len(self._envs), self._restarts))
            return False
        self._torn = True
        exact = self._call_all(lambda env: self._envs[env].load_state_dict(states[env]))
        self._torn = False
        self.current = self._table(self._call_all(lambda env: self._envs[env].current))
        return all(exact)

    def close(self) -> None:
        """Close all environments; nothing happens the second time."""
        if self._closed:
            return
        self._closed = True
        self._call_all(self._close, sorted(self._envs))
        for pool in self._pools:
            pool.shutdown()

    def _begin(self, seed: int) -> None:
        self._torn = True
        self.current = self._table(self._call_all(lambda env: self._envs[env].start(seed)))
        self._torn = False

    def _probe(self, env: int) -> None:
        """Look whether a task can be learned in."""
        generator = np.random.default_rng(0)
        try:
            self._envs[env].start(0)
            for _ in range(PROBED):
                size = self._envs[env].spec.actions.size
                self._envs[env].step(generator.uniform(-1, 1, size).astype(np.float32))
        except CollectError as error:
            raise ConfigError(
                f"{self._envs[env].where}: the task failed when it was looked at with a few random "
                f"actions: {error}"
            ) from error

    def _close(self, env: int) -> None:
        with best_effort(f"closing environment {env}"):  # The others are to be closed, too.
            self._envs[env].close()

    def _call_all(self, call: Callable[[int], T], envs: Sequence[int] | None = None) -> list[T]:
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

        def work(share: Sequence[int]) -> None:
            for env in share:
                try:
                    results[env] = call(env)
                except BaseException as error:
                    errors[env] = error
                    return

        if self._takes_turns:
            for env in envs:
                wait([self._pools[env % threads].submit(work, [env])])
                if errors:
                    break
        else:
            shares = zip(self._pools, mine, strict=True)
            wait([pool.submit(work, share) for pool, share in shares if share])
        if errors:
            raise errors[min(errors)]
        return [results[env] for env in envs]

    def _table(
        self, rows: Sequence[Shaped[np.ndarray, " _word"]]
    ) -> Shaped[np.ndarray, "env word"]:
        """Rows side by side, shorter ones with zeros behind."""
        words = self.spec.words
        if all(row.size == words for row in rows):
            return np.stack(rows)
        table = np.zeros((len(rows), words), rows[0].dtype)
        for line, row in zip(table, rows, strict=True):
            line[: row.size] = row
        return table


def _global_states() -> tuple[object, ...]:
    """The states of the global generators, to be compared."""
    _, keys, position, *gauss = np.random.get_state(legacy=True)
    torch_state = torch.get_rng_state().numpy().tobytes()
    return random.getstate(), np.asarray(keys).tobytes(), position, gauss, torch_state
