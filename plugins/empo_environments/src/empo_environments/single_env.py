"""One environment, as the backends step many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, TypeAlias, runtime_checkable

from jaxtyping import Bool, Float, Int, Shaped, UInt8
from numpy import ndarray

from empo_core.protocols.environments import ActionSpec, ObservationSpec
from empo_core.trees import StateDict


@dataclass(slots=True)
class StepBuffers:
    """Step results of an environment: views into memory that others read.

    Before each step the backend sets ``reward`` to 0, ``reason`` and ``success`` to -1 and all
    flags to False but ``acts``, which it sets to True; an environment writes only what differs.

    Attributes:
        observation: As in ``TimeStep``, a row per agent; so are the fields below.
        reward: See there.
        terminated: See there.
        truncated: See there.
        starts: See there.
        acts: See there.
        reason: See there.
        has_final: Whether ``final_observation`` is that of an episode that ended.
        final_observation: See there; a row per agent.
        mask: See there.
        success: See there.
    """

    observation: Shaped[ndarray, "agent word"]
    reward: Float[ndarray, " agent"]
    terminated: Bool[ndarray, " agent"]
    truncated: Bool[ndarray, " agent"]
    starts: Bool[ndarray, " agent"]
    acts: Bool[ndarray, " agent"]
    reason: Int[ndarray, " agent"]
    has_final: Bool[ndarray, " agent"]
    final_observation: Shaped[ndarray, "agent word"]
    mask: Bool[ndarray, "agent option"] | None
    success: Int[ndarray, " agent"]


@runtime_checkable
class SingleEnv(Protocol):
    """One environment with one or several agents, which restarts its episodes by itself.

    An episode that ends is followed by the next one in the same step: the outbox then holds the
    outcome of the last action and the first observation of the new episode. Every episode is
    begun with a seed of its own, derived from the run's seed, the environment's number and the
    episode's: so an episode is determined by that and its actions, and can be repeated.

    Errors are raised as they come; the backend adds which environment it was.
    """

    observations: ObservationSpec
    actions: ActionSpec
    agents: tuple[str, ...]
    masks: bool
    reasons: tuple[str, ...]
    max_episode_steps: int | None
    action_repeat: int
    render_fps: float | None
    source: object
    """The environment in whose code mistakes are located."""

    @property
    def begins_episode(self) -> bool:
        """True if the observation is the first of an episode of the environment.

        Agents that appear in the midst of an episode begin one of their own (``starts``); that is
        no new episode of the environment.
        """

    def keep_actions(self, steps: int) -> None:
        """Record at least so many actions of an episode, to play them again; at most ``MOST``."""

    def start(self, outbox: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode; everything is written to ``outbox`` from now on.

        Args:
            outbox: Where to write.
            seed: The run's seed.
            number: The environment's number.
        """

    def step(self, action: Shaped[ndarray, "agent number"]) -> None:
        """Let the agents act. Rows of agents that do not act mean nothing."""

    def begin(self) -> None:
        """Begin the next episode at once, wherever the current one stands.

        Writes ``observation``, ``starts``, ``acts`` and ``mask`` of every agent, whatever they
        hold; the outcome of the last step stays as it is. Wrappers cut episodes off with it.
        """

    def state_dict(self) -> StateDict:
        """State to return here: the episode's number, and its actions so far."""

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Play the current episode again up to where it stood, after ``start``.

        Returns whether it got there: False, with a new episode begun, where what it sees now
        differs from what it saw then.
        """

    def render(self) -> UInt8[ndarray, "height width 3"]:
        """A picture for people.

        Raises:
            ConfigError: if no picture can be drawn.
        """

    def whereabouts(self) -> str:
        """Episode and step, and how to get there again, for messages."""

    def close(self) -> None:
        """End it."""


def episode_seed(seed: int, number: int, episode: int) -> int:
    """The seed of one episode, from 0 to ``2**31 - 1``.

    Args:
        seed: The run's seed.
        number: The environment's number.
        episode: How many episodes of this environment came before.
    """
    # A hash, ten times as fast as numpy's way, for some episodes are short.
    digest = blake2b(f"{seed}/{number}/{episode}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


MakeEnv: TypeAlias = Callable[[], SingleEnv]
"""Makes one environment, in whichever process; can be pickled by ``cloudpickle``."""
