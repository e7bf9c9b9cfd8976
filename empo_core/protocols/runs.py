"""Runs: algorithms and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from rich.console import RenderableType
from torch import Tensor

from empo_core.protocols.context import RunContext
from empo_core.protocols.worlds import WorldModel
from empo_core.trees import JsonData


@runtime_checkable
class Result(Protocol):
    """The result of a run."""

    def summary(self) -> dict[str, JsonData]:
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
class ClosedLoop(Solution, Protocol):
    """A solution that knows which states its policies lead to; optional."""

    def occupancy(
        self,
    ) -> Iterator[tuple[int, Int[Tensor, "state word"], Float[Tensor, " state"]]]:
        """Steps left, non-terminal states, and the expected visits to each in an episode.

        The humans act by the average of their policies over goals. Steps left count down.
        """


@runtime_checkable
class Reopenable(Protocol):
    """An algorithm whose finished runs keep all of their result; optional."""

    def reopen(self, context: RunContext) -> Result:
        """The result of the run in ``context.directory``.

        Raises:
            StorageError: if the run left no result, or the result is damaged or of another world.
        """


IntrinsicReward = Callable[[Tensor, Tensor], Tensor]
"""U_r ``[state]`` of states ``[state word]`` from which an episode goes on, and of the steps left
in each ``[state]``."""


@runtime_checkable
class Algorithm(Protocol):
    """The procedure of a run."""

    def run(self, context: RunContext) -> Result:
        """Run the procedure, reporting to ``context.tracker``; files go to ``context.directory``.

        With ``context.resume`` the directory holds what an interrupted run of the same
        config left behind.

        Raises:
            SolveError: if the problem cannot be solved as posed.
            ConfigError: if the config lacks something this algorithm needs, e.g. a world.
        """

    def check(self, world: WorldModel | None) -> Mapping[str, JsonData]:
        """Estimated needs of a run (sizes, RAM), without running it; for ``empo check``."""


@runtime_checkable
class Empowering(Algorithm, Protocol):
    """An algorithm whose finished runs know the intrinsic reward U_r of states; optional.

    Learners whose reward is another run's estimate of human power ask for it.
    """

    def intrinsic_reward(self, context: RunContext) -> IntrinsicReward:
        """U_r as the run in ``context.directory`` has it, for states of ``context.world``.

        Raises:
            StorageError: if the run left nothing that can be loaded, or belongs to another world.
        """
