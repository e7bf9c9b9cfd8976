"""Runs: algorithms, their results, and trackers that watch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from rich.console import RenderableType
from torch import Tensor

from empo_core.protocols.world import HumanPrior, RobotPolicy, WorldModel
from empo_core.types import (
    Histogram,
)

RunStatus = Literal["finished", "failed", "interrupted"]


@runtime_checkable
class Tracker(Protocol):
    """Watches a run and changes nothing about it."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """A run begins; files go into ``directory``, ``config`` is the resolved config."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers at a step; keys are slash-separated, e.g. ``exact/v_r``."""

    def progress(self, task: str, done: float, total: float) -> None:
        """How far a named task is, in any unit; ``done == total`` finishes it."""

    def finish(self, status: RunStatus) -> None:
        """The run is over; write out what is held back."""


@runtime_checkable
class Rewindable(Protocol):
    """A tracker whose records can be cut off at a step; optional.

    A run that is resumed goes on from a checkpoint, and logs some steps a second time.
    """

    def rewind(self, step: int) -> None:
        """Drop what was logged for later steps than this, in this run directory."""


@runtime_checkable
class Narrator(Protocol):
    """A tracker that can say in words how a task goes; optional."""

    def narrate(self, task: str, text: str) -> None:
        """One short line, e.g. how fast a task is; it replaces the line before."""


@runtime_checkable
class EpisodeTracker(Protocol):
    """A tracker that follows the episodes of many environments step by step; optional.

    What it finds goes to the other trackers of the run whenever something is logged.
    """

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        """So many environments begin now; episodes end for one of these reasons."""

    def step(
        self,
        rewards: Float[Tensor, " env"],
        dones: Bool[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """The environments took a step.

        Args:
            rewards: What each step paid.
            dones: Whether the episode ended with it.
            reasons: Why, where it ended, as positions in what ``follow`` was told; -1: unknown.
            active: Which environments took it; the others' rewards, dones and reasons mean
                nothing, and their episodes do not become longer. None: all.
        """

    def statistics(self) -> dict[str, float | Histogram]:
        """What is known so far, as a tracker logs it; empty before ``follow``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so: a tree as checkpoints take it."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, after ``follow``."""


@runtime_checkable
class Result(Protocol):
    """What a run computed."""

    def summary(self) -> dict[str, Any]:
        """The result as JSON data; what ``empo run --json`` prints."""

    def report(self) -> RenderableType:
        """The result for people, printed at the end of a run."""

    def save(self, directory: Path) -> None:
        """Write tables and pictures into ``directory``."""


@runtime_checkable
class Solution(Protocol):
    """A result that knows the right values of every reachable state; optional.

    Learned values are compared with it.
    """

    def reachable_states(self, steps_left: int) -> Int[Tensor, "state word"]:
        """Non-terminal states that an episode can be in with so many steps left, sorted."""

    def robot_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, " state"]:
        """V_r of each state."""

    def robot_policies(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state robot_action"]:
        """The robots' policy in each state."""

    def goal_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal"]:
        """V_h^e of each state and goal."""


@runtime_checkable
class Playable(Protocol):
    """An algorithm whose finished or interrupted runs can be played; optional.

    ``empo evaluate`` asks for it.
    """

    def restore(self, context: RunContext) -> tuple[RobotPolicy, HumanPrior]:
        """The robots' policy of the run in ``context.directory``, and how its humans act.

        Raises:
            StorageError: The run left nothing that can be loaded.
        """


IntrinsicReward = Callable[[Tensor, Tensor], Tensor]
"""U_r ``[state]`` of states ``[state word]`` from which an episode goes on, and of the steps left
in each ``[state]``."""


@runtime_checkable
class Empowering(Protocol):
    """An algorithm whose finished runs know the intrinsic reward U_r of states; optional.

    Learners that take their reward from elsewhere (algorithm ``rollout``, reward ``power``) ask
    for it.
    """

    def intrinsic_reward(self, context: RunContext) -> IntrinsicReward:
        """U_r as the run in ``context.directory`` has it, for states of ``context.world``.

        Raises:
            StorageError: The run left nothing that can be loaded, or knows another world.
        """


@runtime_checkable
class RunContext(Protocol):
    """What an algorithm is given besides its params.

    ``world_model`` is the config's reference to the world, from which other processes build it
    anew; None where the world did not come from a config. ``environment`` makes an environment,
    where a caller of the Python API passed a function.
    """

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool
    world_model: Any
    environment: Callable[[], object] | None


@runtime_checkable
class Algorithm(Protocol):
    """What a run does."""

    def run(self, context: RunContext) -> Result:
        """Do it, reporting to ``context.tracker``; large files go to ``context.directory``.

        With ``context.resume`` the directory holds what an interrupted run of the same
        config left behind.

        Raises:
            SolveError: The problem cannot be solved as posed.
            ConfigError: The config lacks something this algorithm needs, e.g. a world.
        """

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """What a run would need (sizes, memory), without running it; for ``empo check``."""
