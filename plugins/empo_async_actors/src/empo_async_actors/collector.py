"""Experience from actor processes, collected while the learner learns."""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from empo_async_actors.cells import Cell
from empo_async_actors.fleet import Fleet, pickled
from empo_async_actors.frames import Frame, decode_arrays
from empo_async_actors.plugin import AsyncParams
from empo_async_actors.policy import Publisher
from empo_async_actors.process import Account, ActorProcess
from empo_core.errors import CollectError
from empo_core.protocols import ActorFactory, Weights
from empo_core.types import Experience

_STATES_S = 2.0
"""How long ``state_dict`` waits for the states of the actors."""


class AsyncCollector:
    """Actors in processes of their own, which may fail and are replaced."""

    def __init__(self, params: AsyncParams) -> None:
        self._params = params
        self._fleet: Fleet | None = None
        self._publisher: Publisher | None = None
        self._arrived: list[tuple[ActorProcess, Frame]] = []
        self._accounts: list[Account] = []
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
        if self._fleet is not None:
            raise CollectError("this collector runs already; stop it before starting it again")
        self._fleet = fleet = Fleet(self._params, make_actor, directory)
        self._publisher = Publisher(fleet.directory)
        # Runs before multiprocessing's own handler, which would wait for actors that hang.
        atexit.register(self.stop)
        try:
            fleet.launch()
        except BaseException:
            self.stop()
            raise

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let the actors load these weights before they act the next time.

        Raises:
            NonFiniteError: A weight is not finite; the actors keep what they have.
            StorageError: The disk refuses.
        """
        fleet, publisher = self._running()
        publisher.publish(weights, self._version + 1)
        self._version += 1
        self._weights = dict(weights)
        fleet.tell(Cell.TRAINING_STEP, training_step)
        fleet.tell(Cell.VERSION, self._version)

    def collect(self, training_step: int) -> Sequence[Experience]:
        """All experience that has arrived; waits for ``min_env_steps`` in the beginning.

        Raises:
            CollectError: No actor works any more; experience that arrived before is returned
                first.
        """
        fleet, _ = self._running()
        fleet.tell(Cell.TRAINING_STEP, training_step)
        waiting = False
        while True:
            self._arrived += fleet.receive(wait=waiting)
            enough = self._received_env_steps() >= self._params.min_env_steps
            try:
                fleet.supervise()
            except CollectError:
                if not (enough and self._arrived):
                    raise
            delivered = self._deliver() if enough else []
            self._grant(fleet, training_step)
            if enough:
                return delivered
            waiting = True

    def counters(self) -> dict[str, float]:
        """What happened so far, in this run and those that it resumes.

        ``env_steps`` and ``accepted_frames`` count what arrived whole, ``queued_env_steps``
        what of it ``collect`` has not returned yet. ``version_lag_mean`` and
        ``version_lag_max`` say how many policies were published between the one that
        experience was acted with and its delivery.
        """
        accounts, fleet = self.accounts(), self._fleet
        if fleet is not None:
            self._acknowledged = fleet.acknowledged()
        return {
            "env_steps": self._earlier["env_steps"] + sum(a.env_steps for a in accounts),
            "accepted_frames": self._earlier["accepted_frames"]
            + sum(account.experiences for account in accounts),
            "queued_env_steps": sum(a.env_steps - a.delivered_env_steps for a in accounts),
            "restarts": self._earlier["restarts"] + (fleet.restarts if fleet else 0),
            "actors": len(fleet.processes) if fleet else 0,
            "policy_version": self._version,
            "acknowledged_version": self._acknowledged,
            "version_lag_mean": self._lags["sum"] / max(1, self._lags["count"]),
            "version_lag_max": self._lags["max"],
        }

    def pids(self) -> list[int]:
        """The processes of the actors that run at the moment, also of those being built."""
        slots = self._fleet.slots if self._fleet else []
        return [slot.process.pid for slot in slots if slot.process is not None]

    def accounts(self) -> list[Account]:
        """What became of the frames of every incarnation of every actor."""
        return self._accounts + (self._fleet.accounts() if self._fleet else [])

    def state_dict(self) -> dict[str, Any]:
        """Counters, and of each actor the state that it answers with, or answered with last.

        Going on from it is not exact: experience under way is lost, and actors run freely.
        """
        fleet = self._fleet
        if fleet is not None:
            deadline = time.monotonic() + _STATES_S
            fleet.ask_states()
            while fleet.owes_states and time.monotonic() < deadline:
                self._arrived += fleet.receive(wait=True)
            self._states = fleet.states
        counters = self.counters()
        names = ("env_steps", "accepted_frames", "restarts", "policy_version")
        return {name: int(counters[name]) for name in names} | {"actors": list(self._states)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on counting, and let each actor go on from its state where there is one."""
        fleet, publisher = self._running()
        self._earlier = {name: int(state_dict[name]) for name in self._earlier}
        known, self._version = self._version, max(self._version, int(state_dict["policy_version"]))
        if 0 < known < self._version:
            # Else actors would say that they act with a policy from long ago.
            publisher.publish(self._weights, self._version)
            fleet.tell(Cell.VERSION, self._version)
        for slot, state in zip(fleet.slots, state_dict["actors"], strict=False):
            fleet.states[slot.actor] = state
            if state is not None and slot.process is not None:
                slot.process.send_state(pickled(state, f"the state of actor {slot.actor}"))

    def stop(self) -> None:
        """End all actors within seconds; those that do not react are killed."""
        fleet = self._fleet
        if fleet is None:
            return
        self.counters()  # While there are processes to ask.
        self._arrived += fleet.stop()
        self._states = fleet.states
        self._accounts += fleet.accounts()
        self._earlier["restarts"] += fleet.restarts
        self._fleet = self._publisher = None
        atexit.unregister(self.stop)

    def _running(self) -> tuple[Fleet, Publisher]:
        if self._fleet is None or self._publisher is None:
            raise CollectError("this collector does not run; call start first")
        return self._fleet, self._publisher

    def _received_env_steps(self) -> int:
        delivered = sum(account.delivered_env_steps for account in self.accounts())
        arrived = sum(frame.env_steps for _, frame in self._arrived)
        return self._earlier["env_steps"] + delivered + arrived

    def _grant(self, fleet: Fleet, training_step: int) -> None:
        """Say up to which environment step each actor may go on.

        An actor may finish what it has begun, so it oversteps by less than one round.
        """
        params, processes = self._params, fleet.processes
        allowed = math.inf
        if params.max_env_steps_per_training_step is not None:
            ratio = params.max_env_steps_per_training_step
            total = self._earlier["env_steps"] + sum(a.env_steps for a in self.accounts())
            left = max(params.min_env_steps, training_step * ratio) - total
            allowed = max(0.0, left) / max(1, len(processes))
        share = -(-params.queue_size // params.actors)
        for process in processes:
            account = process.account
            free = share - (account.env_steps - account.delivered_env_steps)
            process.cells[Cell.GRANTED] = account.env_steps + math.ceil(max(0, min(free, allowed)))

    def _deliver(self) -> list[Experience]:
        delivered = []
        for process, frame in self._arrived:
            process.account.delivered += 1
            process.account.delivered_env_steps += frame.env_steps
            lag = self._version - frame.version
            self._lags["sum"] += lag
            self._lags["count"] += 1
            self._lags["max"] = max(self._lags["max"], lag)
            arrays = decode_arrays(frame.payload)
            delivered.append(Experience(arrays, frame.env_steps, process.actor, frame.version))
        self._arrived = []
        return delivered


__all__ = ["AsyncCollector"]
