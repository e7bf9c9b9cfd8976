"""Environments that step one after the other, and what is done when one of them fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_environments.shared_buffers import SharedBuffers, clear
from empo_environments.single_env import MakeEnv, SingleEnv


class Crash(CollectError):
    """An environment raised an error of its own; it may do better when it is made anew."""


@dataclass(frozen=True, slots=True)
class Description:
    """The specification that environments of one vector must share."""

    observations: ObservationSpec
    actions: ActionSpec
    agents: tuple[str, ...]
    masks: bool
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, env: SingleEnv) -> Description:
        """The description of an environment."""
        return cls(env.observations, env.actions, tuple(env.agents), env.masks, env.reasons)


def common_spec(descriptions: Sequence[Description], blocks: int) -> EnvSpec:
    """The env_spec of environments like these.

    Raises:
        ConfigError: They differ, or cannot be divided into so many blocks.
    """
    envs, first = len(descriptions), descriptions[0]
    for number, other in enumerate(descriptions):
        for name in Description.__slots__:
            one, another = getattr(first, name), getattr(other, name)
            if one != another:
                raise ConfigError(
                    f"environment {number} differs from environment 0 in its {name}: {another}, "
                    f"not {one}; all environments of a run must be alike"
                )
    return EnvSpec(
        first.observations, first.actions, first.agents, envs, blocks, first.masks, first.reasons
    )


class EnvGroup:
    """Some environments of a vector, numbered from ``first``, in this process."""

    def __init__(self, make: Sequence[MakeEnv], first: int) -> None:
        """Make them.

        Raises:
            ConfigError: One does not fit.
            CollectError: One cannot be made.
        """
        self._first = first
        self._steps = 0
        self._environments: list[SingleEnv] = []
        for number, make_one in enumerate(make, first):
            with _located(number, "could not be made"):
                self._environments.append(make_one())

    def descriptions(self) -> list[Description]:
        """Specification of each environment."""
        return [Description.of(one) for one in self._environments]

    def attach(self, board: SharedBuffers) -> None:
        """From now on they read and write there."""
        count = len(self._environments)
        self._board, self._box = board, board.part_of(self._first, count)
        self._sees_numbers = board.spec.observations.dtype != "uint8"
        self._acts: list[tuple[Callable[[Any], None], np.ndarray]] = [
            (one.step, board.action[board.agents_of(number)]) for number, one in self._numbered()
        ]

    def start(self, seeds: Sequence[int], lost: bool = False) -> None:
        """Begin an episode in each.

        Args:
            seeds: A seed for each.
            lost: Whether their agents were in the midst of episodes that nobody can go on with.
        """
        clear(self._box)
        for (number, one), seed in zip(self._numbered(), seeds, strict=True):
            with _located(number, "could not begin its first episode"):
                one.start(self._board.part_of(number), seed, number)
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
        except Exception:
            with _located(number, f"failed in step {self._steps}"):
                raise
        self._check(f"in step {self._steps}")

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of all."""
        return [one.state_dict() for one in self._environments]

    def load_state_dict(
        self, seeds: Sequence[int], states: Sequence[Mapping[str, Any]]
    ) -> list[bool]:
        """Let each go on from its state, and say whether it does, or begins a new episode."""
        self.start(seeds)
        exact = []
        for (number, one), state in zip(self._numbered(), states, strict=True):
            with _located(number, "could not play its episode again"):
                exact.append(one.load_state_dict(state))
        self._check("when it played its episode again")
        return exact

    def close(self) -> None:
        """End them all, even where one of them cannot be ended."""
        while self._environments:
            number = self._first + len(self._environments) - 1
            with _located(number, "could not be closed"):
                self._environments.pop().close()

    def _numbered(self) -> Iterator[tuple[int, SingleEnv]]:
        return enumerate(self._environments, self._first)

    def _check(self, when: str) -> None:
        """Raise CollectError unless all that they wrote is finite."""
        box = self._box
        good = _are_finite(box.reward)
        if self._sees_numbers:
            good = good and _are_finite(box.observation)
            if np.count_nonzero(box.has_final):
                good = good and _are_finite(box.final_observation[box.has_final])
        if not good:
            raise CollectError(self._what_is_not_finite(when))

    def _what_is_not_finite(self, when: str) -> str:
        box, agents = self._box, self._board.spec.agents
        wrong = ~np.isfinite(box.reward) | ~np.isfinite(box.observation).all(1)
        wrong |= box.has_final & ~np.isfinite(box.final_observation).all(1)
        row = int(wrong.argmax())
        seen = np.array2string(box.observation[row], threshold=32)
        final = ""
        if box.has_final[row]:
            final = np.array2string(box.final_observation[row], threshold=32)
            final = f", after a last one of its episode of {final}"
        who = f"environment {self._first + row // len(agents)}"
        if len(agents) > 1:
            who += f", agent {agents[row % len(agents)]!r},"
        return (
            f"{who} returned what is not finite {when}: observation {seen}{final}, reward "
            f"{box.reward[row]}, terminated {bool(box.terminated[row])}, truncated "
            f"{bool(box.truncated[row])}; NaN and infinity cannot be learned from"
        )


def _are_finite(numbers: np.ndarray) -> bool:
    # Counting takes half the time of 'all'.
    return int(np.count_nonzero(np.isfinite(numbers))) == numbers.size


@contextmanager
def _located(number: int, what: str) -> Iterator[None]:
    """Errors say which environment it was, and where."""
    try:
        yield
    except Exception as error:
        kind = type(error) if isinstance(error, ConfigError | CollectError) else Crash
        name = "" if kind is not Crash else f"{type(error).__name__}: "
        # A config is at fault in a line of its own, not in one of ours.
        trace = "" if kind is ConfigError else f"\n\n{traceback.format_exc()}"
        raise kind(f"environment {number} {what}: {name}{error}{trace}") from error


__all__ = ["Crash", "Description", "EnvGroup", "common_spec"]
