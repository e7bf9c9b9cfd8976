"""Experience from actor processes, collected while the learner learns."""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from empo_async_actors.actor_handle import ActorAccount
from empo_async_actors.actor_pool import ActorPool, ReceivedExperience
from empo_async_actors.messages import decode_experience
from empo_async_actors.plugin import AsyncParams
from empo_async_actors.policy import encode_policy
from empo_core.errors import CollectError
from empo_core.protocols import ActorFactory, Weights
from empo_core.trees import StateDict
from empo_core.types import Experience

_STATES_S = 2.0
"""Seconds that ``state_dict`` waits for the states of the actors."""
_PATIENCE_S = 1.0
"""Seconds of silence after which the grant of an actor is given to others."""


class AsyncCollector:
    """Actors in processes of their own, which may fail and are replaced."""

    def __init__(self, params: AsyncParams) -> None:
        self._params = params
        self._pool: ActorPool | None = None
        self._received: list[ReceivedExperience] = []
        self._accounts: list[ActorAccount] = []
        self._states: list[Any] = [None] * params.actors
        self._earlier = {"env_steps": 0, "accepted_frames": 0, "restarts": 0}
        self._version = 0
        self._weights: Weights = {}
        self._acknowledged = 0
        self._lags = {"sum": 0, "count": 0, "max": 0}

    def start(self, make_actor: ActorFactory, directory: Path) -> None:
        """Build the actors, each in a process, and wait until they are ready.

        Every process that is started calls the factory with the next number, also one that
        replaces another, so that none repeats the random choices of its predecessor.

        Raises:
            CollectError: An actor cannot be built; its traceback is in the message.
            StorageError: The disk refuses the few files that this needs.
        """
        if self._pool is not None:
            raise CollectError("this collector runs already; stop it before starting it again")
        self._pool = pool = ActorPool(self._params, make_actor, directory)
        # Runs before multiprocessing's own handler, which would wait for actors that hang.
        atexit.register(self.stop)
        try:
            pool.build_actors()
        except BaseException:
            self.stop()
            raise

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let the actors load these weights before they act the next time.

        Raises:
            NonFiniteError: A weight is not finite; the actors keep what they have.
            StorageError: The disk refuses.
        """
        pool = self._running()
        pool.executor.broadcast(encode_policy(weights, self._version + 1), self._version + 1)
        self._version += 1
        self._weights = dict(weights)

    def collect(self, training_step: int) -> Sequence[Experience]:
        """All experience that has arrived; waits for ``min_env_steps`` in the beginning.

        Raises:
            CollectError: No actor works any more, or none can make progress; experience that
                arrived before is returned first.
        """
        pool = self._running()
        waiting = False
        while True:
            self._received += pool.receive(wait=waiting)
            enough = self._received_env_steps() >= self._params.min_env_steps
            try:
                pool.supervise()
            except CollectError:
                if not (enough and self._received):
                    raise
            delivered = self._deliver() if enough else []
            self._grant(pool, training_step)
            if enough:
                return delivered
            waiting = True

    def counters(self) -> dict[str, float]:
        """Counts of what happened so far, in this run and those that it resumes.

        ``env_steps`` and ``accepted_frames`` count what arrived whole, ``queued_env_steps``
        what of it ``collect`` has not returned yet. ``version_lag_mean`` and
        ``version_lag_max`` say how many policies were published between the one that
        experience was acted with and its delivery.
        """
        pool = self._pool
        if pool is not None:
            self._received += pool.receive()
            self._acknowledged = pool.acknowledged()
        accounts = self.accounts()
        return {
            "env_steps": self._earlier["env_steps"] + sum(a.env_steps for a in accounts),
            "accepted_frames": self._earlier["accepted_frames"]
            + sum(account.experiences for account in accounts),
            "queued_env_steps": sum(a.env_steps - a.delivered_env_steps for a in accounts),
            "restarts": self._earlier["restarts"] + (pool.restarts if pool else 0),
            "actors": len(pool.handles) if pool else 0,
            "policy_version": self._version,
            "acknowledged_version": self._acknowledged,
            "version_lag_mean": self._lags["sum"] / max(1, self._lags["count"]),
            "version_lag_max": self._lags["max"],
        }

    def pids(self) -> list[int]:
        """The processes of the actors that run at the moment, also of those being built."""
        return self._pool.pids() if self._pool else []

    def accounts(self) -> list[ActorAccount]:
        """Counts of the messages of every incarnation of every actor."""
        return self._accounts + (self._pool.accounts() if self._pool else [])

    def state_dict(self) -> StateDict:
        """Counters, and of each actor the state that it answers with, or answered with last.

        Going on from it is not exact: experience under way is lost, and actors run freely.
        """
        pool = self._pool
        if pool is not None:
            deadline = time.monotonic() + _STATES_S
            pool.ask_states()
            while pool.owes_states and time.monotonic() < deadline:
                pool.pump()
                self._received += pool.receive(wait=True)
            self._states = pool.states
        counters = self.counters()
        names = ("env_steps", "accepted_frames", "restarts", "policy_version")
        return {name: int(counters[name]) for name in names} | {"actors": list(self._states)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on counting, and let each actor go on from its state where there is one."""
        pool = self._running()
        self._earlier = {name: int(state_dict[name]) for name in self._earlier}
        known, self._version = self._version, max(self._version, int(state_dict["policy_version"]))
        if 0 < known < self._version:
            # Else actors would say that they act with a policy from long ago.
            pool.executor.broadcast(encode_policy(self._weights, self._version), self._version)
        pool.load_states(list(state_dict["actors"]))

    def stop(self) -> None:
        """End all actors within seconds; those that do not react are killed."""
        pool = self._pool
        if pool is None:
            return
        self.counters()  # While there are processes to ask.
        self._received += pool.stop()
        self._states = pool.states
        self._accounts += pool.accounts()
        self._earlier["restarts"] += pool.restarts
        self._pool = None
        atexit.unregister(self.stop)

    def _running(self) -> ActorPool:
        if self._pool is None:
            raise CollectError("this collector does not run; call start first")
        return self._pool

    def _received_env_steps(self) -> int:
        delivered = sum(account.delivered_env_steps for account in self.accounts())
        received = sum(one.env_steps for one in self._received)
        return self._earlier["env_steps"] + delivered + received

    def _grant(self, pool: ActorPool, training_step: int) -> None:
        """Say up to which environment step each actor may go on.

        An actor may finish what it has begun, so it oversteps by less than one round.
        """
        params, handles = self._params, pool.handles
        left = math.inf
        if params.max_env_steps_per_training_step is not None:
            ratio = params.max_env_steps_per_training_step
            total = self._earlier["env_steps"] + sum(a.env_steps for a in self.accounts())
            left = max(params.min_env_steps, training_step * ratio) - total
        fair = max(0.0, left) / max(1, len(handles))
        share = -(-params.queue_size // params.actors)
        for handle in handles:
            account = handle.account
            free = share - (account.env_steps - account.delivered_env_steps)
            # What others were granted before is theirs, unless they have been silent for long.
            others = sum(
                other.reserved
                for other in handles
                if other is not handle and other.silence_s < _PATIENCE_S
            )
            allowed = min(free, fair, left - others)
            until = account.env_steps + math.ceil(max(0, allowed))
            handle.grant(pool.executor, until, training_step)

    def _deliver(self) -> list[Experience]:
        delivered = []
        for one in self._received:
            account = one.account
            account.delivered += 1
            account.delivered_env_steps += one.env_steps
            experience = decode_experience(one.payload, account.actor)
            lag = self._version - experience.version
            self._lags["sum"] += lag
            self._lags["count"] += 1
            self._lags["max"] = max(self._lags["max"], lag)
            delivered.append(experience)
        self._received = []
        return delivered


__all__ = ["AsyncCollector"]
