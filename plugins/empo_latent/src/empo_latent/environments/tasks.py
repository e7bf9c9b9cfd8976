"""Tasks as the latent agent plays them: what they are made of, and which it can learn in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Float32

from empo_core.components import build
from empo_core.config import ComponentRef, EnvironmentRef
from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import (
    ActionSpec,
    Environment,
    EnvironmentContext,
    EnvSpec,
    ObservationSpec,
    VectorEnv,
    VectorLayout,
)
from empo_environments.components import CallableEnvironment, GymnasiumBacked, of_caller
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec

Task: TypeAlias = EnvironmentRef | Environment
"""An environment to learn in, named by a config or made."""
TASKS = "algorithm.params.tasks"
CALLER = "env=..."
"""Places of tasks: in a config, and in a call of the Python API."""

PICTURE_SIZE = 64
"""Height and width of pictures where a task does not say."""
MOST_WORDS = 2**16
"""Most numbers of an observation; networks of what is longer would not fit anywhere."""
UNBOUNDED = 1e9
"""A bound beyond this stands for none, e.g. MuJoCo's 1e10."""


class ActionBounds:
    """Actions in [-1, 1] as an environment takes them: between bounds of its own."""

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        self._low, self._high = np.array(low), np.array(high)
        self._middle, self._half = (self._low + self._high) / 2, (self._high - self._low) / 2

    def action(
        self, scaled: Float[np.ndarray, "*env action"]
    ) -> Float32[np.ndarray, "*env number"]:
        """The environment's actions, of the first numbers of some in [-1, 1]: those it uses."""
        numbers = scaled[..., : len(self._low)].clip(-1.0, 1.0)
        bounded: np.ndarray = (self._middle + self._half * numbers).clip(self._low, self._high)
        return bounded.astype(np.float32)


def tasks_of(
    params: LatentParams,
    make_env: Callable[[], Any] | None,
    context: EnvironmentContext | None = None,
) -> tuple[Environment, ...]:
    """The tasks of a config, or the one that a caller of the Python API makes.

    Args:
        params: Name the tasks.
        make_env: Makes the environment of a caller.
        context: What the run gives to environments; None where there is no run.

    Raises:
        ConfigError: if there is none, or there are both; or one cannot be built.
    """
    environment = of_caller(
        make_env, is_named=bool(params.tasks), where=TASKS, example="gymnasium/Pendulum-v1"
    )
    if environment is not None:
        return (environment,)
    return tuple(
        environment_of(task, location(number, task), context)
        for number, task in enumerate(params.tasks)
    )


def environment_of(
    task: Task, where: str, context: EnvironmentContext | None = None
) -> Environment:
    """The environment that a config names.

    Raises:
        ConfigError: if the environment cannot be built; the message begins with ``where``.
    """
    if not isinstance(task, ComponentRef):
        return task
    try:
        environment: Environment = build(task, context or EnvironmentContext())
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return environment


def task_names(tasks: Sequence[Environment]) -> tuple[str, ...]:
    """Names of the tasks; those of one name get a number each."""
    names = [task.name for task in tasks]
    counts: Counter[str] = Counter()
    unique = []
    for name in names:
        counts[name] += 1
        unique.append(name if names.count(name) == 1 else f"{name}#{counts[name]}")
    return tuple(unique)


def merge_specs(names: tuple[str, ...], specs: Sequence[EnvSpec]) -> MultiTaskSpec:
    """The spec that fits all tasks.

    Raises:
        ConfigError: if tasks show pictures and numbers, or pictures of different shapes or scales.
    """
    observations = [spec.observations for spec in specs]
    pictures = _is_picture(observations[0])
    if len({_is_picture(spec) for spec in observations}) > 1:
        kinds = ["pictures" if _is_picture(spec) else "numbers" for spec in observations]
        raise _unequal(names, kinds, "which reads one of the two: learn them in runs of their own")
    if pictures and len({spec.scale for spec in observations}) > 1:
        scales = [f"0 to {spec.scale:g}" for spec in observations]
        advice = "which divides pictures by one number: learn them in runs of their own"
        raise _unequal(names, scales, advice)
    if pictures and len({spec.grid for spec in observations}) > 1:
        shapes = [f"{spec.grid} (channels, height, width)" for spec in observations]
        advice = "so these must be equal: set frame_stack and picture_size to make them so"
        raise _unequal(names, shapes, advice)
    words = max(spec.words for spec in observations)
    actions = max(spec.actions.size for spec in specs)
    return MultiTaskSpec(
        words=words,
        pictures=pictures,
        shape=observations[0].grid if pictures and observations[0].grid else (words,),
        actions=actions,
        scale=observations[0].scale,
        active=tuple(tuple(i < spec.actions.size for i in range(actions)) for spec in specs),
        sizes=tuple(spec.words for spec in observations),
        bounds=tuple(
            tuple(zip(spec.actions.low, spec.actions.high, strict=True)) for spec in specs
        ),
        tasks=names,
        action_repeats=tuple(spec.action_repeat for spec in specs),
        episode_lengths=tuple(spec.max_episode_steps or 0 for spec in specs),
    )


def location(number: int, task: Task) -> str:
    """Place of a task in a config, or in a call of the Python API, for messages."""
    return CALLER if isinstance(task, CallableEnvironment) else f"{TASKS}.{number}"


def task_spec(environment: Environment, where: str) -> EnvSpec:
    """Constants of a task; nothing is reset or stepped.

    Raises:
        ConfigError: if the environment cannot be made or learned in; the message says why, and what
            to do.
    """
    try:
        spec = environment.spec()
        sized = _sized(environment, spec.observations)
        spec = spec if sized is environment else sized.spec()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    _check(spec, where)
    return spec


def vector_of(environment: Environment, copies: int, layout: VectorLayout, where: str) -> VectorEnv:
    """Copies of a task, whose picture is a square of the usual size where the task does not say.

    Raises:
        ConfigError: if the environment cannot be made or learned in; the message says why, and what
            to do.
    """
    try:
        vector = environment.vector(copies, layout)
        sized = _sized(environment, vector.spec.observations)
        if sized is not environment:
            vector.close()
            vector = sized.vector(copies, layout)
    except (ConfigError, CollectError) as error:
        raise ConfigError(f"{where}: {error}") from error
    try:
        _check(vector.spec, where)
    except ConfigError:
        vector.close()
        raise
    return vector


def _sized(environment: Environment, observations: ObservationSpec) -> Environment:
    """The environment, showing pictures of the usual size where it does not say another."""
    is_alone = observations.grid is not None and observations.words == math.prod(observations.grid)
    if not (_is_picture(observations) and is_alone and isinstance(environment, GymnasiumBacked)):
        return environment
    return environment.with_picture_size(PICTURE_SIZE)


def _is_picture(observations: ObservationSpec) -> bool:
    return observations.dtype == "uint8"


def _check(spec: EnvSpec, where: str) -> None:
    """Refuse environments that cannot be learned in.

    Raises:
        ConfigError: if the message says why, and what to do.
    """
    observations = spec.observations
    if len(spec.agents) > 1:
        raise ConfigError(
            f"{where}: has {len(spec.agents)} agents, and algorithm 'latent' learns to act as one; "
            "algorithm 'rollout' lets several learn"
        )
    if observations.grid is not None and observations.words > math.prod(observations.grid):
        raise ConfigError(
            f"{where}: the observation has a picture beside other parts; only one picture alone, "
            "or numbers alone, can be seen. Choose one of them by 'keys'"
        )
    if not _is_picture(observations) and observations.words > MOST_WORDS:
        raise ConfigError(
            f"{where}: the observation has {observations.words:,} numbers; there must be at most "
            f"{MOST_WORDS:,}. Choose some of them by 'keys'"
        )
    _check_actions(spec.actions, where)
    if spec.max_episode_steps is None:
        key = "" if where == CALLER else ".params.max_episode_steps"
        raise ConfigError(
            f"{where}{key}: the environment does not say after how many steps "
            "episodes of this task are cut off, and learning depends on it; set it, e.g. to 1000, "
            "or wrap an environment made in Python in gymnasium.wrappers.TimeLimit"
        )


def _check_actions(actions: ActionSpec, where: str) -> None:
    if actions.is_discrete:
        counts = " x ".join(map(str, actions.choices))
        raise ConfigError(
            f"{where}: actions are choices among {counts} options, and algorithm 'latent' needs "
            "numbers; algorithm 'rollout' learns to choose between options"
        )
    if max(np.abs(actions.low).max(), np.abs(actions.high).max()) >= UNBOUNDED:
        raise ConfigError(
            f"{where}: the action space, from {list(actions.low)} to {list(actions.high)}, has no "
            "bounds, and actions are chosen between bounds; choose another environment"
        )


def _unequal(names: Sequence[str], kinds: Sequence[str], advice: str) -> ConfigError:
    listing = ", ".join(f"{name} shows {kind}" for name, kind in zip(names, kinds, strict=True))
    return ConfigError(f"{TASKS}: {listing}; tasks share one encoder, {advice}")
