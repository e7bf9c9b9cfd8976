"""Runs: algorithms, what they are given, their results, and players of what they learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Shaped
from rich.console import RenderableType
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols.callbacks import Callback
from empo_core.protocols.learning import Schedule
from empo_core.protocols.trackers import Tracker
from empo_core.protocols.worlds import HumanPrior, RobotPolicy, WorldModel
from empo_core.trees import JsonData

CheckpointChoice: TypeAlias = Literal["newest", "best"]
"""The newest weights, saved at the end or in a checkpoint, or those with the best evaluation."""

IntrinsicReward = Callable[[Tensor, Tensor], Tensor]
"""U_r ``[state]`` of states ``[state word]`` from which an episode goes on, and of the steps left
in each ``[state]``."""


@dataclass(slots=True, kw_only=True)
class RunContext:
    """Everything an algorithm is given besides its params.

    Attributes:
        world: The config's world, or None where it names none.
        seed: Seeds every random generator of the run.
        directory: Where the run's files go.
        tracker: Takes numbers, progress and words.
        resume: Whether ``directory`` holds what an interrupted run of this config left.
        is_extended: Whether it holds what a run with other params left, which is to be trained on.
        world_model: The config's reference to the world, from which other processes build it
            anew; None where the world did not come from a config.
        environment: Makes an environment, where a caller from Python passed one.
        callbacks: The callbacks of a learner, in the order in which they are called.
        lr_schedule: The learning-rate schedule that a caller from Python passed.
    """

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool
    world_model: Any = None
    environment: Callable[[], object] | None = None
    is_extended: bool = False
    callbacks: Sequence[Callback] = ()
    lr_schedule: Schedule | None = None


@runtime_checkable
class Result(Protocol):
    """The result of a run."""

    def summary(self) -> dict[str, JsonData]:
        """The result as JSON data; what ``empo run --json`` prints."""

    def report(self) -> RenderableType:
        """The result for people, printed at the end of a run."""

    def save(self, directory: Path) -> None:
        """Write the result as files into ``directory``; hooks may add pictures to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisodes:
    """Outcomes of whole episodes of one group, such as those of an agent or of a task.

    Attributes:
        group: The group by heading, e.g. ``{"task": "Pendulum-v1", "actor": "policy"}``.
        returns: Sum of the rewards of each episode.
        lengths: Steps of each episode.
        ends: How many of them ended for each reason.
        successes: 1 or 0 for each episode of which the environment says whether it succeeded at any
            step; None: it says so of none.
    """

    group: Mapping[str, str]
    returns: Float[np.ndarray, " episode"]
    lengths: Int[np.ndarray, " episode"]
    ends: Mapping[str, int]
    successes: Int[np.ndarray, " reported"] | None = None


class Agent(ABC):
    """The learned policy of a run, acting in one environment that the caller steps."""

    @abstractmethod
    def reset(self) -> None:
        """Begin an episode: the next observation is its first."""

    @abstractmethod
    def act(self, observation: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*number"]:
        """The action for an observation, as the environment's ``step`` takes it.

        Raises:
            CollectError: if the observation does not fit the environment of the run.
        """


class EpisodePlayer(ABC):
    """A run's policy together with the environments that it acts in.

    Attributes:
        films: Whether ``film`` can draw; ``empo evaluate --film`` needs it.
        unasked_films: How many episodes of each group are filmed where nobody asks.
        members: Names of the agents or tasks that ``agent`` can be asked for; empty where the
            player only plays episodes of its own.
    """

    films: bool = False
    unasked_films: int = 0
    members: Sequence[str] = ()

    @abstractmethod
    def play(
        self, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[PlayedEpisodes]:
        """Play whole episodes; nothing is learned, and statistics of observations stay as they are.

        Args:
            episodes: So many of each group, at least 1; a few more where copies share them evenly.
            seed: Decides everything that is random.
            max_steps: Episodes longer than this need not be waited for; None: as the run has it.

        Raises:
            ConfigError: if episodes cannot be cut at the time limit.
            CollectError: if an environment failed.
        """

    def film(
        self, directory: Path, *, episodes: int, seed: int, max_steps: int | None = None
    ) -> Sequence[Path]:
        """Play so many episodes of each group once more, and write an animation of each.

        Args:
            directory: Where they go; animations that are there may be replaced.
            episodes: Of each group, at least 1.
            seed: Decides everything that is random.
            max_steps: As for ``play``.

        Returns:
            The files.

        Raises:
            ConfigError: if no picture can be drawn.
            CollectError: if an environment failed.
            StorageError: if a file cannot be written.
        """
        return ()

    def agent(self, member: str | None = None) -> Agent:
        """The policy for one environment that the caller steps.

        Args:
            member: One of ``members``; None: the first.

        Raises:
            ConfigError: if there is no such agent or task, or no single agent at all.
        """
        return self._agent(self._number(member))

    def export_onnx(self, path: Path, member: str | None = None) -> None:
        """Write the policy of a member as an ONNX file; ``empo export`` does.

        Args:
            path: The file.
            member: One of ``members``; None: the first.

        Raises:
            ConfigError: if there is no such agent or task, the policy has no ONNX form, or a
                package is missing.
            StorageError: if the file cannot be written.
        """
        self._export_onnx(path, self._number(member))

    def _number(self, member: str | None) -> int:
        """The number of a member.

        Raises:
            ConfigError: if there is none of that name, or no members.
        """
        if not self.members:
            raise ConfigError(f"{type(self).__name__} plays episodes of its own only")
        if member is not None and member not in self.members:
            raise ConfigError(f"there is no {member!r}; there is: {', '.join(self.members)}")
        return 0 if member is None else self.members.index(member)

    def _export_onnx(self, path: Path, number: int) -> None:
        """Write the policy of the member with a number; needed where there is an ONNX form."""
        raise ConfigError(f"{type(self).__name__} has no ONNX form")

    def _agent(self, number: int) -> Agent:
        """The policy as a member of this number; needed where there are ``members``."""
        raise NotImplementedError


class Algorithm(ABC):
    """The procedure of a run.

    Abstract methods make an algorithm. The other methods read what a run of the algorithm left;
    None says that the algorithm cannot do that.

    Attributes:
        has_intrinsic_reward: Whether ``intrinsic_reward`` gives U_r.
        takes_environment: Whether runs act in an environment that a caller from Python passes.
        is_learner: Whether runs heed ``callbacks`` and ``lr_schedule`` of ``RunContext``.
    """

    has_intrinsic_reward: ClassVar[bool] = False
    takes_environment: ClassVar[bool] = False
    is_learner: ClassVar[bool] = False

    @abstractmethod
    def run(self, context: RunContext) -> Result:
        """Run the procedure, reporting to ``context.tracker``; files go to ``context.directory``.

        With ``context.resume`` the directory holds what an interrupted run of the same
        config left behind.

        Raises:
            SolveError: if the problem cannot be solved as posed.
            ConfigError: if the config lacks something this algorithm needs, e.g. a world.
        """

    @abstractmethod
    def check(self, world: WorldModel | None) -> Mapping[str, JsonData]:
        """Estimated needs of a run (sizes, RAM), without running it; for ``empo check``."""

    def alternatives(self, world: WorldModel | None) -> Mapping[str, JsonData]:
        """What a run would need by other choices; for ``empo check --all``, after ``check``."""
        return {}

    def require_extendable(self, changes: Mapping[str, tuple[JsonData, JsonData]]) -> None:
        """Refuse changes with which a run cannot go on; asked of the algorithm with all of them.

        ``empo resume RUN total_steps=2000000`` goes on with a run that may have finished. By
        default everything is refused.

        Args:
            changes: The value before and the value now by dotted key of the params.

        Raises:
            ConfigError: if the run cannot go on with one of the changes.
        """
        key = next(iter(changes))
        raise ConfigError(
            f"algorithm.params.{key}: {type(self).__name__} goes on with the params that a run "
            "began with; leave them out, or start a new run"
        )

    def require_evaluations(self, watcher: str) -> None:
        """Refuse params by which a run is not evaluated while it learns.

        Args:
            watcher: What needs evaluations, e.g. ``"callback EarlyStopping"``.

        Raises:
            ConfigError: if there are no evaluations; by default there are none.
        """
        raise ConfigError(
            f"callbacks: {watcher} watches evaluations while the run learns, and "
            f"{type(self).__name__} makes none; drop the callback"
        )

    def reopen(self, context: RunContext) -> Result | None:
        """The whole result of the finished run in ``context.directory``.

        Raises:
            StorageError: if the run left no result, or the result is damaged or of another world.
        """
        return None

    def restore(
        self, context: RunContext, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[RobotPolicy, HumanPrior] | EpisodePlayer | None:
        """The policies of the finished or interrupted run in ``context.directory``.

        ``empo evaluate`` plays them.

        Args:
            context: The run.
            checkpoint: Which of its weights.

        Returns:
            The robots' policy and how humans act, which are evaluated by goals in the run's world;
            or a player of the run's environments, which is evaluated by returns.

        Raises:
            StorageError: if the run left nothing that can be loaded.
            ConfigError: if algorithms of this kind write no such checkpoint.
        """
        return None

    def intrinsic_reward(self, context: RunContext) -> IntrinsicReward:
        """U_r as the run in ``context.directory`` has it, for states of ``context.world``.

        Learners whose reward is another run's estimate of human power use it.

        Raises:
            StorageError: if the run left nothing that can be loaded, or belongs to another world.
        """
        raise NotImplementedError(f"{type(self).__name__} has no intrinsic reward")
