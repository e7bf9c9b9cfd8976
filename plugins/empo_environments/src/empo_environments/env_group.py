"""Environments that step one after the other, and what is done when one of them fails."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
from jaxtyping import UInt8

from empo_core.best_effort import best_effort
from empo_core.errors import (
    EXITS,
    CollectError,
    ConfigError,
    EmpoError,
    event,
    is_exit,
)
from empo_core.protocols.environments import EnvSpec
from empo_core.trees import StateDict
from empo_environments.code_places import Method, place_of_error, place_of_method
from empo_environments.shared_buffers import SharedBuffers, clear
from empo_environments.single_env import MakeEnv, SingleEnv
from empo_learning.randomness import capture, restore

log = logging.getLogger(__name__)
RANDOMNESS = "randomness"
"""Key of the states of global generators in the state of a process's first environment."""


class Crash(CollectError):
    """Error raised by an environment's own code; a restart may help."""


def spec_of(env: SingleEnv) -> EnvSpec:
    """The specification of one environment, which those of one vector must share."""
    return EnvSpec(
        env.observations, env.actions, tuple(env.agents), 1, 1, env.masks, env.reasons,
        env.max_episode_steps, env.action_repeat, env.render_fps,
    )  # fmt: skip


def common_spec(specs: Sequence[EnvSpec], blocks: int) -> EnvSpec:
    """The specification of a vector of environments like these.

    Raises:
        ConfigError: if the specs differ.
    """
    first = specs[0]
    for number, other in enumerate(specs):
        for field in fields(EnvSpec):
            value, another = getattr(first, field.name), getattr(other, field.name)
            if value != another:
                raise ConfigError(
                    f"environment {number} differs from environment 0 in its {field.name}: "
                    f"{another}, not {value}; all environments of a run must be alike"
                )
    return replace(first, num_envs=len(specs), num_blocks=blocks)


class EnvGroup:
    """Some environments of a vector, numbered from ``first``, in this process."""

    def __init__(
        self, make: Sequence[MakeEnv], first: int, offset: int = 0, *, owns_process: bool = False
    ) -> None:
        """Make them.

        Args:
            make: Makes each.
            first: Place of the first one in the vector.
            offset: Number of the vector's first environment.
            owns_process: Whether nothing else draws from this process's global generators, so that
                their states are part of the environments'.

        Raises:
            ConfigError: if an environment does not fit.
            CollectError: if an environment cannot be made.
        """
        self._first, self._offset, self._owns_process = first, offset, owns_process
        self._steps = 0
        self._environments: list[SingleEnv] = []
        try:
            for number, make_one in enumerate(make, first):
                with self._located(number, "could not be made"):
                    self._environments.append(make_one())
        except BaseException:
            self.close()
            raise

    def specs(self) -> list[EnvSpec]:
        """Specification of each environment."""
        return [spec_of(environment) for environment in self._environments]

    def attach(self, board: SharedBuffers) -> None:
        """Bind all environments to these shared buffers."""
        count = len(self._environments)
        self._board, self._box = board, board.part_of(self._first, count)
        self._sees_numbers = board.spec.observations.dtype != "uint8"
        self._acts: list[tuple[Callable[[Any], None], np.ndarray]] = [
            (environment.step, board.action[board.agents_of(number)])
            for number, environment in self._numbered()
        ]

    def start(self, seeds: Sequence[int], lost: bool = False) -> None:
        """Begin an episode in each.

        Args:
            seeds: A seed for each.
            lost: Whether their agents were in the midst of episodes that cannot go on.
        """
        clear(self._box)
        for (number, environment), seed in zip(self._numbered(), seeds, strict=True):
            with self._located(number, "could not begin its first episode"):
                environment.start(self._board.part_of(number), seed, number + self._offset)
        self._check("when it began its first episode")
        self._box.truncated.fill(lost)

    def step(self) -> None:
        """Let all act."""
        self._steps += 1
        clear(self._box)
        number = self._first
        try:
            for step, action in self._acts:
                step(action)
                number += 1
        except (Exception, *EXITS):
            with self._located(number, f"failed in step {self._steps}"):
                raise
        self._check(f"in step {self._steps}")

    def state_dict(self) -> list[StateDict]:
        """The states of all; that of the first holds those of this process's generators."""
        states = [environment.state_dict() for environment in self._environments]
        if self._owns_process:
            states[0] = {**states[0], RANDOMNESS: capture(devices=False)}
        return states

    def load_state_dict(self, seeds: Sequence[int], states: Sequence[StateDict]) -> list[bool]:
        """Let each go on from its state, and say whether it does, or begins a new episode.

        An environment that fails while it plays its episode again begins the next one.
        """
        self.start(seeds)
        exact = []
        for (number, environment), state in zip(self._numbered(), states, strict=True):
            try:
                exact.append(environment.load_state_dict(state))
            except (Exception, *EXITS):
                log.warning(
                    "environment %d cannot play its episode again",
                    number + self._offset,
                    exc_info=True,
                )
                exact.append(False)
                with self._located(number, "could not begin its next episode"):
                    environment.begin()
        if self._owns_process and RANDOMNESS in states[0]:
            restore(states[0][RANDOMNESS], devices=False)
        self._check("when it played its episode again")
        return exact

    def close(self) -> None:
        """Close them all, the last one first; one that fails is a warning."""
        close_all(
            (f"closing environment {number + self._offset}", env.close)
            for number, env in self._numbered()
        )
        self._environments.clear()

    def _numbered(self) -> Iterator[tuple[int, SingleEnv]]:
        return enumerate(self._environments, self._first)

    def _check(self, when: str) -> None:
        """Raise CollectError unless all that they wrote is finite."""
        box = self._box
        good = _are_finite(box.reward)
        if self._sees_numbers:
            good = good and _are_finite(box.observation)
            if np.count_nonzero(box.has_final):
                good = good and _are_finite(box.final_observation[self._board.finals(box)])
        if not good:
            raise CollectError(self._what_is_not_finite(when))

    def _what_is_not_finite(self, when: str) -> str:
        box, agents = self._box, self._board.spec.agents
        wrong = ~np.isfinite(box.reward) | ~np.isfinite(box.observation).all(1)
        finals = self._board.finals(box)
        wrong |= finals & ~np.isfinite(box.final_observation).all(1)
        row = int(wrong.argmax())
        observation = np.array2string(box.observation[row], threshold=32)
        final = ""
        if finals[row]:
            final = np.array2string(box.final_observation[row], threshold=32)
            final = f", after a last one of its episode of {final}"
        place = row // len(agents)
        method: Method = "step" if when.startswith("in step") else "reset"
        where = place_of_method(self._environments[place].source, method)
        subject = f"environment {self._offset + self._first + place}"
        if len(agents) > 1:
            subject += f", agent {agents[row % len(agents)]!r},"
        return (
            f"{subject} returned what is not finite {when}: observation {observation}{final}, "
            f"reward {box.reward[row]}, terminated {bool(box.terminated[row])}, truncated "
            f"{bool(box.truncated[row])}; NaN and infinity cannot be learned from "
            f"({_joined(where, self._environments[place].whereabouts())})"
        )

    def render(self, number: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of one of them, for people."""
        return self._environments[number - self._first].render()

    @contextmanager
    def _located(self, number: int, action: str) -> Iterator[None]:
        """Errors say which environment it was, and where."""

        def where(error: BaseException) -> str:
            if number - self._first >= len(self._environments):  # It could not be made.
                return place_of_error(error)
            environment = self._environments[number - self._first]
            is_known = action.startswith("failed")
            return _joined(
                place_of_error(error, environment.source),
                environment.whereabouts() if is_known else "",
            )

        with located(f"environment {number + self._offset}", action, where):
            yield


@contextmanager
def located(
    subject: str, action: str, where: Callable[[BaseException], str] = place_of_error
) -> Iterator[None]:
    """Errors say which environment it was, what it did, and ``where`` it stood."""
    try:
        yield
    except (Exception, *EXITS) as error:
        kind = type(error) if isinstance(error, ConfigError | CollectError) else Crash
        text = str(error) if isinstance(error, EmpoError) else f"{type(error).__name__}: {error}"
        if is_exit(error):  # It wants the end: a restart does not help.
            kind, text = CollectError, event(error)
        # A config is at fault in a line of its own, not in one of ours.
        trace = "" if kind is ConfigError else f"\n\n{traceback.format_exc()}"
        place = where(error)
        raise kind(f"{subject} {action}: {text}{f' ({place})' if place else ''}{trace}") from error


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def close_all(parts: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Close parts, the last one first, whatever one of them does.

    Args:
        parts: What is done, for the warning where it fails, and the function that does it.
    """
    with ExitStack() as stack:  # After Ctrl-C within one of them the others are closed, too.
        for name, close in parts:
            stack.callback(_close, name, close)


def _close(name: str, close: Callable[[], object]) -> None:
    with best_effort(name):
        close()


def _are_finite(numbers: np.ndarray) -> bool:
    # Counting takes half the time of 'all'.
    return int(np.count_nonzero(np.isfinite(numbers))) == numbers.size
