"""Collection of rollouts by actors of an executor, one segment after the other in step.

A segment depends on the run's seed, the actor, the number of the segment, the policy, what all
actors had seen before, and the state that the actor's environments were in, and on nothing else.
Every answer brings that state along. So a replacement of an actor that failed goes on from there,
and does what its predecessor would have done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from safetensors.torch import save
from torch import Tensor

from empo_core.errors import CollectError, LostError, WorkerError
from empo_core.protocols import Executor
from empo_core.random_streams import seed_of
from empo_core.trees import StateDict
from empo_environments.normalisation import Normaliser
from empo_executors.replaced_worker import ReplacedWorker
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.timers import Timers
from empo_rollout.buffer import Rollout
from empo_rollout.params import CollectionParams
from empo_rollout.policy import Networks
from empo_rollout.segment_worker import Collected, SegmentWorker, Share

_TICK_S = 0.1


class RemoteCollector:
    """Collects rollouts as ``RolloutCollector`` does, on the workers of an executor.

    Attributes:
        normaliser: Knows what all actors have seen; each normalises by what they all had seen
            before the segment, and what it has since. None: nothing is normalised.
    """

    def __init__(
        self,
        executor: Executor,
        params: CollectionParams,
        share: Share,
        policy: Networks,
        episodes: EpisodeReturns,
        timers: Timers,
        device: torch.device,
        normaliser: Normaliser | None = None,
    ) -> None:
        """Begin without an actor.

        Args:
            executor: One that does not run.
            params: What the config says.
            share: What each actor is made from.
            policy: Acts; its weights are sent before every segment.
            episodes: Takes in every step of all actors.
            timers: Measure the collection.
            device: Of rollouts.
            normaliser: One for the environments of all actors, where there is to be one.
        """
        self.normaliser = normaliser
        self._executor, self._params, self._share = executor, params, share
        self._policy, self._episodes, self._timers = policy, episodes, timers
        self._device = device
        self._slots = [
            ReplacedWorker(executor, partial(SegmentWorker, share, actor), params.max_restarts)
            for actor in range(params.actors)
        ]
        self._states: list[StateDict | None] = [None] * params.actors
        self._standing: dict[int, int] = {}
        """Incarnations that stand where their actor should."""
        self._calls: dict[int, tuple[int | None, Future[Any]]] = {}
        """Of each actor the segment that it collects (None: it goes on from a state)."""
        self._inexact: set[int] = set()
        self._seed = 0

    def start(self, seed: int) -> None:
        """Begin the first episodes.

        Raises:
            CollectError: if no actor can be started.
        """
        self._begin(seed, [None] * self._params.actors)

    def collect(self, version: int) -> Rollout:
        """The next rollout; ``version`` is how often the policy was trained.

        Raises:
            CollectError: if an actor raised, or has failed too often.
        """
        with self._timers("env"):
            weights = {name: value.cpu() for name, value in self._policy.state_dict().items()}
            collected = self._answers(version, save(weights))
        for actor in sorted(collected):
            self._observe(actor, collected[actor])
        self._take_in([collected[actor].fresh for actor in sorted(collected)])
        example = next(iter(collected.values())).rollout
        actors = range(self._params.actors)
        return self._joined(
            [collected[a].rollout if a in collected else _absent(example) for a in actors]
        )

    def state_dict(self) -> StateDict:
        """Seed, and the state of each actor behind its last segment."""
        return {"seed": self._seed, "actors": list(self._states)}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Go on from what ``state_dict`` returned, instead of ``start``.

        Returns whether the environments stand exactly where they stood.
        """
        self._begin(state_dict["seed"], list(state_dict["actors"]))
        return not self._inexact

    def close(self) -> None:
        """End all actors."""
        self._executor.shutdown()

    def _begin(self, seed: int, states: list[StateDict | None]) -> None:
        """Have all actors stand somewhere."""
        self._seed, self._states = seed, states
        self._standing, self._inexact = {}, set()
        while len(self._standing) < self._params.actors:
            self._ask(range(self._params.actors), None, b"")
            self._take()

    def _answers(self, version: int, weights: bytes) -> dict[int, Collected]:
        """What the actors have collected; without those that are late, if none is waited for."""
        collected: dict[int, Collected] = {}
        others_at = 0.0
        while len(collected) < self._params.actors:
            missing = [a for a in range(self._params.actors) if a not in collected]
            self._ask(missing, version, weights)
            for actor, segment, answer in self._take():
                if segment == version:
                    collected[actor], others_at = answer, time.monotonic()
            limit = self._params.late_s
            if collected and limit is not None and time.monotonic() - others_at > limit:
                break
        return collected

    def _ask(self, actors: Sequence[int], version: int | None, weights: bytes) -> None:
        """Ask actors that have nothing to do for a segment, or first to go on from their state.

        Raises:
            CollectError: if an actor cannot be started, or is not replaced any more.
        """
        for actor in actors:
            slot = self._slots[actor]
            try:
                is_running = slot.is_running()
            except WorkerError as error:
                raise CollectError(f"the actors cannot be started: {error}") from error
            if slot.given_up:
                raise CollectError(f"actor {actor} does not work any more: {slot.last_failure}")
            if not is_running or actor in self._calls:
                continue
            if self._standing.get(actor) != slot.incarnation:
                self._calls[actor] = None, slot.call("restore", self._seed, self._states[actor])
            elif version is not None:
                seed = seed_of(np.random.SeedSequence(self._seed, spawn_key=(actor, version)))
                moments = [] if self.normaliser is None else self.normaliser.moments
                call = slot.call("collect", weights, seed, version, moments)
                self._calls[actor] = version, call

    def _take(self) -> list[tuple[int, int, Collected]]:
        """Deal with answers, after a moment at most: actor, segment, and what was collected.

        Raises:
            CollectError: if an actor raised an error.
        """
        if not self._calls:
            time.sleep(_TICK_S)
        wait([call for _, call in self._calls.values()], _TICK_S, FIRST_COMPLETED)
        segments = []
        for actor in [actor for actor, (_, call) in self._calls.items() if call.done()]:
            version, call = self._calls.pop(actor)
            error = call.exception()
            if isinstance(error, LostError):
                continue
            if error is not None:
                raise CollectError(f"actor {actor} failed: {error}") from error
            if version is None:
                self._standing[actor] = self._slots[actor].incarnation
                if self._states[actor] is not None and not call.result():
                    self._inexact.add(actor)
                continue
            collected: Collected = call.result()
            self._slots[actor].has_delivered = True
            self._states[actor] = collected.state
            segments.append((actor, version, collected))
        return segments

    def _observe(self, actor: int, collected: Collected) -> None:
        for step in collected.observed:
            size = len(step.reward)
            self._episodes.observe(
                step.reward, step.done, step.reason, success=step.success, starts=step.starts,
                acted=step.acted, agents=slice(actor * size, (actor + 1) * size),
            )  # fmt: skip

    def _take_in(self, fresh: Sequence[Float64[np.ndarray, " number"] | None]) -> None:
        """Count what the actors have seen, always in their order."""
        moments = [row for row in fresh if row is not None]
        if self.normaliser is not None:
            self.normaliser.take_in(np.stack(moments))

    def _joined(self, parts: Sequence[Mapping[str, np.ndarray]]) -> Rollout:
        """The segments of all actors, in the order of these."""
        agents = self._share.plan.num_agents
        arrays: dict[str, Tensor] = {}
        for name in parts[0]:
            pieces = [part[name] for part in parts]
            if name == "agent":
                pieces = [piece + agents * actor for actor, piece in enumerate(pieces)]
            joined = np.concatenate(pieces, axis=0 if name in ("memory", "agent") else 1)
            arrays[name] = torch.from_numpy(joined).to(self._device)
        mask = arrays.pop("mask", None)
        return Rollout(mask=mask, **arrays)


def _absent(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The segments of an actor that is late: no agent acts in them."""
    absent = {name: np.zeros_like(array) for name, array in example.items()}
    if "mask" in absent:
        absent["mask"][:] = True  # Of no options at all there is no distribution.
    return absent | {"agent": example["agent"]}


__all__ = ["RemoteCollector"]
