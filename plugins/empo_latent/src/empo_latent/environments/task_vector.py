"""Environments of all tasks, stepped together: vectors of ``empo_environments`` side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from jaxtyping import Float32, Int64, Shaped, UInt8

from empo_core.errors import CollectError, ConfigError, StorageError
from empo_core.protocols.environments import Environment, TimeStep, VectorEnv, VectorLayout
from empo_core.trees import StateDict
from empo_environments.env_group import close_all
from empo_environments.serial import SerialVectorEnv
from empo_latent.environments.tasks import (
    ActionBounds,
    Task,
    environment_of,
    location,
    merge_specs,
    task_names,
    task_spec,
    vector_of,
)
from empo_latent.types import MultiTaskSpec


def multi_task_spec(tasks: Sequence[Task], *, envs: int) -> MultiTaskSpec:
    """The spec of the tasks that so many environments would play; takes no step.

    Raises:
        ConfigError: as ``TaskVector`` says.
    """
    built = _built(tasks, envs)
    specs = [task_spec(task, location(number, task)) for number, task in enumerate(built)]
    return merge_specs(task_names(built), specs)


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

    def __init__(self, tasks: Sequence[Task], *, envs: int, rendering: bool = False) -> None:
        """Make all environments.

        Args:
            tasks: What is played.
            envs: How many environments, at least one for each task.
            rendering: Whether ``render`` will be called.

        Raises:
            ConfigError: if a task cannot be made or learned in, or tasks do not fit together; the
                message says which, why, and what to do.
        """
        built = _built(tasks, envs)
        self.task_of = np.arange(envs) % len(tasks)
        self._vectors: list[VectorEnv] = []
        first = 0
        try:
            for number, environment in enumerate(built):
                layout = VectorLayout(first=first, terminal_observations=True, rendering=rendering)
                copies = int((self.task_of == number).sum())
                where = location(number, environment)
                self._vectors.append(vector_of(environment, copies, layout, where))
                first += copies
            specs = [vector.spec for vector in self._vectors]
            self.spec = merge_specs(task_names(built), specs)
        except BaseException:
            self.close()
            raise
        self._bounds = [ActionBounds(spec.actions.low, spec.actions.high) for spec in specs]
        self.rates = tuple(spec.render_fps for spec in specs)
        self.current = np.zeros((envs, self.spec.words))

    def start(self, seed: int) -> TimeStep:
        """Begin the first episodes of a run; the same again for the same seed.

        Raises:
            CollectError: as ``step`` says.
        """
        for task, vector in enumerate(self._vectors):
            with self._named(task):
                vector.start(seed)
        return self._received()

    def step(self, action: Float32[np.ndarray, "env action"]) -> TimeStep:
        """Act in all environments; all last observations are told.

        Raises:
            CollectError: if an environment failed, or showed or paid no finite number; the message
                says which one, when, and how to get there again.
        """
        for task, vector in enumerate(self._vectors):
            vector.send(0, self._bounds[task].action(action[self._rows(task)]))
        return self._received()

    def render(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of an environment, for people; needs ``rendering``.

        Raises:
            ConfigError: if no picture can be taken; the message says why, and what to do.
        """
        task = int(self.task_of[env])
        vector = self._vectors[task]
        if not isinstance(vector, SerialVectorEnv):
            raise ConfigError(f"environment {self.spec.tasks[task]} draws no pictures")
        return vector.render(env // len(self._vectors))

    def state_dict(self) -> StateDict:
        """Everything needed to return to this point, as a tree for checkpoints."""
        states = [vector.state_dict() for vector in self._vectors]
        return {"tasks": states, "envs": len(self.task_of)}

    def load_state_dict(self, state: StateDict) -> bool:
        """Play the episodes that were going on again, up to where they stood.

        Returns:
            Whether all environments got there; those that did not have begun a new episode.

        Raises:
            StorageError: if the state is one of another number of environments.
        """
        if state["envs"] != len(self.task_of):
            raise StorageError(
                f"the checkpoint has {state['envs']} environments, and there are "
                f"{len(self.task_of)}; go on with as many as the run began with"
            )
        exact = []
        for task, vector in enumerate(self._vectors):
            with self._named(task):
                exact.append(vector.load_state_dict(state["tasks"][task]))
        self._received()
        return all(exact)

    def close(self) -> None:
        """Close all environments; nothing happens the second time."""
        close_all(("closing environments", vector.close) for vector in self._vectors)

    def _rows(self, task: int) -> slice:
        """Environments that play a task."""
        return slice(task, None, len(self._vectors))

    def _received(self) -> TimeStep:
        """The time step of all environments; its observations are ``current`` from now on."""
        envs, kind = len(self.task_of), np.uint8 if self.spec.pictures else np.float32
        observation, last = np.zeros((2, envs, self.spec.words), kind)
        reward, success = np.zeros(envs, np.float32), np.full(envs, -1)
        terminated, truncated, starts = np.zeros((3, envs), bool)
        for task, vector in enumerate(self._vectors):
            rows = self._rows(task)
            with self._named(task):
                arrival = _arrival(vector)
            words = arrival.observation.shape[1]
            observation[rows, :words] = arrival.observation
            last[rows, :words] = arrival.last_observation
            reward[rows], starts[rows] = arrival.reward, arrival.starts
            terminated[rows], truncated[rows] = arrival.terminated, arrival.truncated
            if arrival.success is not None:
                success[rows] = arrival.success
        self.current = observation
        final_row = np.flatnonzero(terminated | truncated)
        return TimeStep(
            0, observation, reward, terminated, truncated, starts, np.ones(envs, bool),
            final_row, last[final_row], success=success,
        )  # fmt: skip

    @contextmanager
    def _named(self, task: int) -> Iterator[None]:
        """Errors say which task it was."""
        try:
            yield
        except CollectError as error:
            raise CollectError(f"task {self.spec.tasks[task]}: {error}") from error


def _arrival(vector: VectorEnv) -> TimeStep:
    """What a vector has come to.

    Raises:
        CollectError: if an environment failed, or does not say how its episodes end.
    """
    arrival = vector.recv()
    if not arrival.acts.all():
        raise CollectError(
            "the environment ends episodes in steps of their own (autoreset); algorithm 'latent' "
            "needs one that begins the next within the step"
        )
    if len(arrival.final_row) < (arrival.terminated | arrival.truncated).sum():
        raise CollectError("the environment does not tell the last observation")
    return arrival


def _built(tasks: Sequence[Task], envs: int) -> list[Environment]:
    """The environments of the tasks.

    Raises:
        ConfigError: if one cannot be built, or there are fewer copies than tasks.
    """
    if envs < len(tasks):
        raise ConfigError(
            f"algorithm.params.num_envs: {envs} cannot play {len(tasks)} tasks; each environment "
            f"plays one, so at least {len(tasks)} are needed"
        )
    return [environment_of(task, location(number, task)) for number, task in enumerate(tasks)]
