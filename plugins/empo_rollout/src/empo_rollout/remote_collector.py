"""Collection of rollouts by actors of an executor, one segment after the other in step.

A segment depends on the run's seed, the actor, the number of the segment, the policy, what all
actors had seen before, and the state that the actor's environments were in, and on nothing else.
Every answer brings that state along. So a replacement of an actor that failed goes on from there,
and does what its predecessor would have done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from jaxtyping import Float64
from safetensors.torch import save
from torch import Tensor

from empo_core.errors import CollectError, WorkerError
from empo_core.protocols import Executor, Needs, Reply, WorkerState
from empo_core.random_streams import seed_of
from empo_core.trees import StateDict
from empo_environments.normalisation import Normaliser
from empo_learning.episode_returns import EpisodeReturns
from empo_learning.timers import Timers
from empo_rollout.experience.rollout import Rollout
from empo_rollout.params import CollectionParams
from empo_rollout.policies.protocols import ActorCritic
from empo_rollout.segment_worker import Collect, Collected, Restore, Share, segment_workers

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
        policy: ActorCritic,
        episodes: EpisodeReturns,
        timers: Timers,
        directory: Path,
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
            directory: Receives files of the executor.
            device: Of rollouts.
            normaliser: One for the environments of all actors, where there is to be one.
        """
        self.normaliser = normaliser
        self._executor, self._params, self._share = executor, params, share
        self._policy, self._episodes, self._timers = policy, episodes, timers
        self._directory, self._device = directory, device
        self._states: list[StateDict | None] = [None] * params.actors
        self._standing: dict[int, int] = {}
        """Incarnations that stand where their actor should."""
        self._calls: dict[tuple[int, int, int], int | None] = {}
        """Of each call under way: the segment that was asked for; None: to go on from a state."""
        self._inexact: set[int] = set()
        self._seed = self._broadcasts = 0
        self._runs = False

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
            self._broadcasts += 1
            weights = {name: value.cpu() for name, value in self._policy.state_dict().items()}
            self._executor.broadcast(save(weights), self._broadcasts)
            collected = self._answers(version)
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
        self._executor.stop()

    def _begin(self, seed: int, states: list[StateDict | None]) -> None:
        """Have all actors stand somewhere."""
        self._seed, self._states = seed, states
        self._standing, self._inexact = {}, set()
        if not self._runs:
            params = self._params
            try:
                self._executor.start(
                    segment_workers(self._share), params.actors, Needs(), self._directory,
                    params.max_restarts,
                )  # fmt: skip
            except WorkerError as error:
                raise CollectError(f"the actors cannot be started: {error}") from error
            self._runs = True
        while len(self._standing) < self._params.actors:
            self._ask(range(self._params.actors), None)
            self._take(self._executor.next(_TICK_S))

    def _answers(self, version: int) -> dict[int, Collected]:
        """What the actors have collected; without those that are late, if none is waited for."""
        collected: dict[int, Collected] = {}
        others_at = 0.0
        while len(collected) < self._params.actors:
            missing = [a for a in range(self._params.actors) if a not in collected]
            self._ask(missing, version)
            answer = self._take(self._executor.next(_TICK_S))
            if answer is not None and answer[1] == version:
                collected[answer[0]], others_at = answer[2], time.monotonic()
            limit = self._params.late_s
            if collected and limit is not None and time.monotonic() - others_at > limit:
                break
        return collected

    def _ask(self, actors: Sequence[int], version: int | None) -> None:
        """Ask actors that have nothing to do for a segment, or first to go on from their state.

        Raises:
            CollectError: if an actor is not replaced any more.
        """
        states = self._executor.workers()
        for actor in actors:
            state = states[actor]
            if state.state == "given_up":
                raise CollectError(f"actor {actor} does not work any more: {state.last_failure}")
            if state.pid is None or state.state == "dead" or state.in_flight:
                continue
            if self._standing.get(actor) != state.incarnation:
                self._submit(state, Restore(self._seed, self._states[actor]), None)
            elif version is not None:
                seed = seed_of(np.random.SeedSequence(self._seed, spawn_key=(actor, version)))
                moments = [] if self.normaliser is None else self.normaliser.moments
                self._submit(state, Collect(seed, version, moments), version)

    def _submit(self, state: WorkerState, request: Restore | Collect, version: int | None) -> None:
        number = self._executor.submit(state.number, cloudpickle.dumps(request))
        self._calls[state.number, state.incarnation, number] = version

    def _take(self, reply: Reply | None) -> tuple[int, int, Collected] | None:
        """Deal with a reply; the actor, the segment, and what it has collected, if it has."""
        if reply is None:
            return None
        actor = reply.worker
        version = self._calls.pop((actor, reply.incarnation, reply.number))
        if reply.kind == "raised":
            raise CollectError(f"actor {actor} failed: {reply.traceback}")
        if reply.kind == "lost":
            return None
        if version is None:
            self._standing[actor] = reply.incarnation
            if self._states[actor] is not None and reply.payload != b"1":
                self._inexact.add(actor)
            return None
        collected: Collected = cloudpickle.loads(reply.payload)
        self._states[actor] = collected.state
        return actor, version, collected

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
