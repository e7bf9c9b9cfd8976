"""One environment, as the fleet steps many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray


class Outcome(NamedTuple):
    """Outcome of a step of an environment.

    Attributes:
        reward: What the step paid.
        terminated: Whether the episode is over, and nothing is worth anything after it.
        truncated: Whether it was cut off.
        success: 1 where the task is achieved, 0 where not; NaN where nobody says.
    """

    reward: float
    terminated: bool
    truncated: bool
    success: float


@dataclass(frozen=True, slots=True)
class Look:
    """Specification of an environment's observations.

    Attributes:
        shape: ``(words,)``, or of a channel-first picture ``(channels, height, width)``.
        pictures: Whether they are pictures, of bytes; else numbers, float32.
        scale: Greatest value of pictures.
    """

    shape: tuple[int, ...]
    pictures: bool
    scale: float = 255.0


@runtime_checkable
class Environment(Protocol):
    """One environment; errors are raised as they come, the fleet adds which one it was.

    Attributes:
        look: What is seen in it.
        actions: Numbers of an action, each in [-1, 1].
        length: After how many steps its episodes are cut off; None where that is unknown.
        rate: Steps per second for who watches; None where that is unknown.
    """

    look: Look
    actions: int
    length: int | None
    rate: float | None

    def reset(self, seed: int) -> None:
        """Begin an episode, which the seed and its actions determine."""

    def step(self, action: Float[ndarray, " action"]) -> Outcome:
        """Act; numbers beyond [-1, 1] are moved to the bound."""

    def observe(self) -> Shaped[ndarray, "*shape"]:
        """The current observation; apart from ``step``, for pictures take their time."""

    def render(self) -> UInt8[ndarray, "height width 3"]:
        """A picture of how things stand, for people.

        Raises:
            ConfigError: None can be taken; the message says why, and what to do.
        """

    def close(self) -> None:
        """End it."""


__all__ = ["Environment", "Look", "Outcome"]
