"""Environments without a world model, and vectors of copies of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from empo_core.protocols.environment_specs import (
    Action,
    ActionSpec,
    EnvSpec,
    ObservationSpec,
    TimeStep,
)
from empo_core.protocols.worlds import WorldModel
from empo_core.trees import StateDict

__all__ = [
    "Action", "ActionSpec", "EnvSpec", "Environment", "EnvironmentContext", "ObservationSpec",
    "OnCrash", "Order", "TimeStep", "VectorEnv", "VectorLayout",
]  # fmt: skip

Order: TypeAlias = Literal["rotation", "arrival"]
"""Blocks in the order in which they were sent, which is repeatable, or as they get ready."""
OnCrash: TypeAlias = Literal["stop", "restart"]
"""When a worker process dies: fail, or start it anew."""


@runtime_checkable
class VectorEnv(Protocol):
    """Copies of an environment that step together, a block at a time."""

    @property
    def spec(self) -> EnvSpec:
        """Constants of what was built, which may differ from what was asked for."""

    def start(self, seed: int) -> None:
        """Begin an episode in every copy, before anything else.

        Called again while every block waits for ``send``, it begins anew.

        Raises:
            CollectError: if a copy cannot be reset.
        """

    def recv(self) -> TimeStep:
        """Wait for the next block; each comes once after ``start`` and after each ``send``.

        Raises:
            CollectError: if an environment fails or returns invalid data (NaN, wrong shapes); the
                message names the copy.
            ValueError: if every block waits for ``send``.
        """

    def send(self, block: int, action: Action) -> None:
        """Step a block that was received; rows that do not act (``acts``) are ignored.

        Raises:
            ValueError: if the block was not received, or the action has a wrong shape or dtype.
        """

    def state_dict(self) -> StateDict:
        """State from which to go on exactly, at any time after ``start``.

        Time steps that were received and not answered are received again after loading.
        """

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict`` instead of ``start``; False where new episodes were begun."""

    def close(self) -> None:
        """Release everything within seconds; may be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLayout:
    """Placement of the copies of a vectorised environment.

    Attributes:
        workers: Number of worker processes; 0 steps in this process.
        blocks: Number of blocks.
        order: Order in which blocks are received.
        on_crash: What happens when a worker dies.
        answer_limit_s: Seconds after which a worker that has not answered counts as dead; None:
            never. Copies in this process have no limit.
        desync: Cut the first episode of each copy at a random length, so that ends spread out.
        first: Number of the first copy, from which and the run's seed its episodes' seeds follow.
        terminal_observations: Tell last observations of episodes that terminated, too; workers
            need not.
        rendering: Make copies that draw pictures for people, where they can.
        seed: Seeds the process-wide generators (``random``, numpy's and torch's) of each worker
            process, together with the number of the worker and of its restarts, before its copies
            are made. Copies in this process draw from the generators that are there.
    """

    workers: int = 0
    blocks: int = 1
    order: Order = "rotation"
    on_crash: OnCrash = "stop"
    answer_limit_s: float | None = None
    desync: bool = False
    first: int = 0
    terminal_observations: bool = False
    rendering: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """Everything that an environment component is given besides its params.

    Attributes:
        world: The run's world model, if it has one.
        directory: A folder of the run for files of the environment's own.
        seed: The run's seed.
    """

    world: WorldModel | None = None
    directory: Path = Path()
    seed: int = 0


class Environment(ABC):
    """An environment of which vectorised copies can be made.

    Attributes:
        name: Short name, for people and run directories, e.g. ``CartPole-v1``.
        uses_world: Whether it is made from the run's world model.
        uses_workers: Whether copies can step in worker processes.
        steps_together: Whether copies in this process step in one call, which is faster than
            worker processes.
    """

    name: str
    uses_world: bool = False
    uses_workers: bool = False
    steps_together: bool = False

    @abstractmethod
    def spec(self) -> EnvSpec:
        """Constants of one copy; may build that copy, takes no step, and closes it.

        Raises:
            ConfigError: if there is no such environment, or its spaces do not fit.
        """

    @abstractmethod
    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Make copies; they begin no episode before ``start``.

        Raises:
            ConfigError: if the environments cannot be made, or the layout does not fit.
            CollectError: if a copy fails while it is made.
        """
