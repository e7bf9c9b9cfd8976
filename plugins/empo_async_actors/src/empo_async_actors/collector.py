"""The learner's side: experience from actor processes, collected while the learner learns."""

from __future__ import annotations

import atexit
import math
import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from safetensors.torch import save

from empo_async_actors.actor_worker import ActorWorker
from empo_async_actors.plugin import AsyncParams
from empo_core.components import build
from empo_core.errors import CollectError, LostError, WorkerError
from empo_core.protocols import ActorFactory, Executor, Weights
from empo_core.trees import StateDict
from empo_core.types import Experience
from empo_executors.pickles import pickled
from empo_executors.replaced_worker import ReplacedWorker
from empo_executors.silence import Silence
from empo_learning.finite import check_finite

_TICK_S = 0.02
"""The longest wait between two looks at the actors."""
_STATES_S = 2.0
"""Seconds that ``state_dict`` waits for the states of the actors."""
_PATIENCE_S = 1.0
"""Seconds of silence after which the steps that an actor was granted are granted to others."""
_OTHERS_S = 2.0
"""Shortest time that ``start`` waits for further actors once one is built."""
_RENEW_S = 0.1
"""Shortest time between two calls that tell an actor nothing but the training step."""
_SLACK = 4
"""A grant is taken back where more than its ``1 / _SLACK`` is too much."""
_SHOWN = 3
"""Of how many actors an error shows the last failure."""


@dataclass(eq=False, slots=True)
class Incarnation:
    """One process of an actor, as the learner counts it.

    Attributes:
        actor: The actor's number.
        incarnation: How often the actor had been replaced before.
        experiences: Experiences that arrived.
        env_steps: Environment steps in them.
        delivered: Experiences that ``collect`` has returned.
        delivered_env_steps: Environment steps in those.
        pid: The process; None until its actor is built.
        is_over: Whether the process has ended or is about to be replaced.
        calls: Calls without an answer, by method.
        until: Environment step until which it may act; 0 where it waits for a call.
        training_step: The training step that it was told last.
        granted_at: Time of that.
        sent_version: The newest policy that it was sent.
        signs: Signs of life.
        silence_s: Seconds, while the learner looked, that it has owed an answer or experience.
    """

    actor: int
    incarnation: int
    experiences: int = 0
    env_steps: int = 0
    delivered: int = 0
    delivered_env_steps: int = 0
    pid: int | None = None
    is_over: bool = False
    calls: dict[str, int] = field(default_factory=dict)
    until: int = 0
    training_step: int = 0
    granted_at: float = 0.0
    sent_version: int = 0
    signs: int = 0
    silence_s: float = 0.0
    clock: Silence = field(default_factory=Silence)

    @property
    def is_ready(self) -> bool:
        """True where it can act."""
        return self.pid is not None and not self.is_over

    @property
    def reserved(self) -> int:
        """Environment steps that it may take without being asked again."""
        return max(0, self.until - self.env_steps)


class AsyncCollector:
    """Actors in processes of their own, which may fail and are replaced."""

    def __init__(self, params: AsyncParams) -> None:
        self._params = params
        self._executor: Executor | None = None
        self._slots: list[ReplacedWorker] = []
        self._now: list[Incarnation | None] = [None] * params.actors
        """The present process of each actor."""
        self._all: list[Incarnation] = []
        self._received: list[tuple[Incarnation, Experience]] = []
        self._states: list[Any] = [None] * params.actors
        self._earlier = {"env_steps": 0, "accepted_frames": 0, "restarts": 0}
        self._built = self._restarts = self._arrived = 0
        self._failure: CollectError | None = None
        self._version = self._training_step = 0
        self._weights = b""
        self._loaded = [0] * params.actors
        self._lags = {"sum": 0, "count": 0, "max": 0}
        self._progress = Silence()

    def start(self, make_actor: ActorFactory) -> None:
        """Build the actors, each in a process, and wait until they are ready.

        Every process that is started calls the factory with the next number, also one that
        replaces another, so that none repeats the random choices of its predecessor. An actor
        that hangs is waited for no longer than the others took.

        Raises:
            CollectError: if an actor cannot be built; its traceback is in the message.
        """
        if self._executor is not None:
            raise CollectError("this collector runs already; stop it before starting it again")
        make = partial(ActorWorker, _pickled(make_actor, "the actor factory"), torch.initial_seed())
        executor: Executor = build(self._params.executor)
        self._executor, self._failure, self._progress = executor, None, Silence()
        self._events: queue.SimpleQueue[tuple[Incarnation, str, Any]] = queue.SimpleQueue()
        """Experience and answered calls, put there by threads of the executor."""
        self._slots = [
            ReplacedWorker(executor, make, self._params.max_restarts)
            for _ in range(self._params.actors)
        ]
        # Runs before multiprocessing's own handler, which would wait for actors that hang.
        atexit.register(self.stop)
        begun = time.monotonic()
        first_s = 0.0
        try:
            while not self._is_settled:
                self._supervise()
                self._receive(wait=True)
                elapsed = time.monotonic() - begun
                if self._ready:
                    first_s = first_s or elapsed
                    if elapsed > first_s + max(first_s, _OTHERS_S):
                        break
            self._supervise()
        except BaseException:
            self.stop()
            raise

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let the actors load these weights before they act the next time.

        Raises:
            NonFiniteError: if a weight is not finite; the actors keep what they have.
        """
        self._check_running()
        check_finite(weights, f"policy {self._version + 1}, which was to be published,")
        # Copies, for safetensors refuses tensors that share memory.
        self._publish(save({name: t.detach().cpu().clone() for name, t in weights.items()}))

    def collect(self, training_step: int) -> Sequence[Experience]:
        """All experience that has arrived; waits for ``min_env_steps`` in the beginning.

        Raises:
            CollectError: if no actor works any more, or none can make progress; experience that
                arrived before is returned first.
        """
        self._check_running()
        self._training_step = training_step
        waiting = False
        while True:
            self._receive(wait=waiting)
            enough = self._counted_env_steps() >= self._params.min_env_steps
            try:
                self._supervise()
            except CollectError:
                if not (enough and self._received):
                    raise
            delivered = self._deliver() if enough else []
            self._grant()
            if enough:
                return delivered
            waiting = True

    def counters(self) -> dict[str, float]:
        """Counts of what happened so far, in this run and those that it resumes.

        ``env_steps`` and ``accepted_frames`` count what arrived whole, ``queued_env_steps``
        what of it ``collect`` has not returned yet. ``version_lag_mean`` and
        ``version_lag_max`` say how many policies newer than the one it was collected with had
        been published when experience was returned. ``acknowledged_version`` is the oldest
        policy among those that the actors have loaded.
        """
        if self._executor is not None:
            self._receive()
        return {
            "env_steps": self._earlier["env_steps"] + sum(run.env_steps for run in self._all),
            "accepted_frames": self._earlier["accepted_frames"]
            + sum(run.experiences for run in self._all),
            "queued_env_steps": sum(experience.env_steps for _, experience in self._received),
            "restarts": self._earlier["restarts"] + self._restarts,
            "actors": len(self._ready),
            "policy_version": self._version,
            "acknowledged_version": min(self._loaded),
            "version_lag_mean": self._lags["sum"] / max(1, self._lags["count"]),
            "version_lag_max": self._lags["max"],
        }

    def pids(self) -> list[int]:
        """The processes of the actors that have been built and run at the moment."""
        return [run.pid for run in self._ready if run.pid is not None]

    def incarnations(self) -> list[Incarnation]:
        """Counts of every process of every actor."""
        return list(self._all)

    def state_dict(self) -> StateDict:
        """Counters, and of each actor the state that it answers with, or answered with last.

        Going on from it is not exact: experience under way is lost, and actors run freely.
        """
        if self._executor is not None:
            deadline = time.monotonic() + _STATES_S
            for run in self._ready:
                self._call(run, "state")
            while any("state" in run.calls for run in self._ready):
                if time.monotonic() > deadline:
                    break
                self._receive(wait=True)
        counters = self.counters()
        names = ("env_steps", "accepted_frames", "restarts", "policy_version")
        return {name: int(counters[name]) for name in names} | {"actors": list(self._states)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on counting, and let each actor go on from its state where there is one."""
        self._check_running()
        self._earlier = {name: int(state_dict[name]) for name in self._earlier}
        version = int(state_dict["policy_version"])
        if 0 < self._version < version:
            # Else actors would say that they act with a policy from long ago.
            self._version = version - 1
            self._publish(self._weights)
        self._version = max(self._version, version)
        for actor, state in enumerate(state_dict["actors"][: self._params.actors]):
            self._states[actor] = state
            run = self._now[actor]
            if state is not None and run is not None:
                self._call(run, "load_state", state)

    def stop(self) -> None:
        """End all actors within seconds; those that do not react are killed."""
        executor = self._executor
        if executor is None:
            return
        executor.shutdown()
        self._receive()
        self._executor, self._now = None, [None] * self._params.actors
        self._earlier["restarts"] += self._restarts
        self._restarts = 0
        atexit.unregister(self.stop)

    @property
    def _ready(self) -> list[Incarnation]:
        """The processes whose actors can act."""
        return [run for run in self._now if run is not None and run.is_ready]

    @property
    def _is_settled(self) -> bool:
        """True where every actor is ready or given up, and one of them is ready."""
        given_up = sum(slot.given_up for slot in self._slots)
        return bool(self._ready) and len(self._ready) + given_up == len(self._slots)

    def _check_running(self) -> None:
        if self._executor is None:
            raise CollectError("this collector does not run; call start first")

    def _call(self, run: Incarnation, method: str, *arguments: object) -> None:
        """Call a method of an actor's process, which stops acting for that."""
        if run is not self._now[run.actor]:
            return  # It was replaced.
        if not run.calls:
            run.signs += 1  # So far it was silent for want of work.
        run.calls[method] = run.calls.get(method, 0) + 1
        run.until = 0
        on_report = partial(self._note, run, "report") if method == "act" else None
        future = self._slots[run.actor].call(method, *arguments, on_report=on_report)
        future.add_done_callback(partial(self._note, run, method))

    def _note(self, run: Incarnation, event: str, value: object) -> None:
        """Thread of the executor: pass on what came."""
        self._events.put((run, event, value))

    def _receive(self, *, wait: bool = False) -> None:
        """Take all events that are there; wait a moment for the first if told to."""
        timeout = _TICK_S if wait else 0.0
        try:
            while True:
                self._take(*self._events.get(timeout > 0, timeout))
                timeout = 0.0
        except queue.Empty:
            pass

    def _take(self, run: Incarnation, event: str, value: Any) -> None:
        """Count experience, or deal with an answer."""
        run.signs += 1
        if event == "report":
            run.experiences += 1
            run.env_steps += value.env_steps
            self._arrived += 1
            self._slots[run.actor].has_delivered = True
            self._received.append((run, replace(value, actor=run.actor)))
            return
        run.calls[event] -= 1
        if not run.calls[event]:
            del run.calls[event]
        answer: Future[Any] = value
        error = answer.exception()
        if isinstance(error, LostError):
            run.is_over = True
        elif error is not None:
            self._fail(run, event, error)
        elif event == "build":
            run.pid = answer.result()
        elif event == "load":
            self._loaded[run.actor] = answer.result()
            self._send_policy(run)
        elif event == "state":
            self._states[run.actor] = answer.result()

    def _fail(self, run: Incarnation, method: str, error: BaseException) -> None:
        if run.is_over or run is not self._now[run.actor]:
            return
        run.is_over = True
        if method == "build" and run.incarnation == 0:
            self._failure = CollectError(
                "an actor cannot be built, so collecting does not begin: actor "
                f"{run.actor} raised\n{error}"
            )
        else:
            self._slots[run.actor].replace(f"actor {run.actor} raised\n{error}")

    def _supervise(self) -> None:
        """Build actors in new processes, and replace those that hang.

        Raises:
            CollectError: if no actor is left, none can make progress, or one cannot be built.
        """
        for actor, slot in enumerate(self._slots):
            try:
                is_running = slot.is_running()
            except CollectError:
                raise
            except WorkerError as error:
                raise CollectError(f"the actors cannot be started: {error}") from error
            if is_running:
                self._follow(actor, slot)
        if self._failure is not None:
            raise self._failure
        if all(slot.given_up for slot in self._slots):
            failures = [slot.last_failure for slot in self._slots[:_SHOWN]]
            raise CollectError(
                f"none of the {len(self._slots)} actors works any more; each was replaced up to "
                f"{self._params.max_restarts} times (max_restarts). The last failure of each "
                f"(of the first {len(failures)}):\n" + "\n".join(failures)
            )
        self._check_progress()

    def _follow(self, actor: int, slot: ReplacedWorker) -> None:
        """Build the actor of a new process, or replace one that is silent for too long."""
        run = self._now[actor]
        if run is None or run.incarnation != slot.incarnation:
            run = self._now[actor] = Incarnation(actor, slot.incarnation)
            self._all.append(run)
            self._call(run, "build", self._built)
            self._send_policy(run)
            self._built += 1
            self._restarts += slot.incarnation > 0
        if not run.calls:
            run.signs += 1
        run.silence_s = run.clock.seconds(run.signs)
        acted = run.experiences > 0
        name = "heartbeat_s" if acted else "start_timeout_s"
        limit = self._params.heartbeat_s if acted else self._params.start_timeout_s
        if run.silence_s > limit and not run.is_over:
            doing = "showed no sign of life" if acted else "was not ready"
            if run.pid is not None and not acted:
                doing = "did not end its first round"
            run.is_over = True
            slot.replace(f"actor {actor} {doing} for {limit:g} s ({name}) and was killed")

    def _check_progress(self) -> None:
        """Raise where there was time enough, and work to do, but nothing has come."""
        if any(not run.calls for run in self._ready):
            self._arrived += 1  # They wait for the learner.
        if self._progress.seconds(self._arrived) > self._params.stall_timeout_s:
            lines = [
                f"actor {actor}: {'given up' if slot.given_up else 'silent'}; last failure: "
                f"{slot.last_failure or '-'}"
                for actor, slot in enumerate(self._slots[:_SHOWN])
            ]
            raise CollectError(
                f"no actor has brought anything for {self._params.stall_timeout_s:g} s "
                f"(stall_timeout_s), although all may act. Of the first {len(lines)}:\n"
                + "\n".join(lines)
            )

    def _publish(self, weights: bytes) -> None:
        self._version += 1
        self._weights = weights
        for run in self._now:
            if run is not None:
                self._send_policy(run)

    def _send_policy(self, run: Incarnation) -> None:
        """Send the newest policy to an actor, unless two older ones are on their way there."""
        if not self._version or run.calls.get("load", 0) > 1 or run.is_over:
            return
        if run.sent_version == self._version:
            return
        until, run.sent_version = run.until, self._version
        self._call(run, "load", self._weights, self._version)
        if until > run.env_steps:
            self._act(run, until)

    def _act(self, run: Incarnation, until: int) -> None:
        self._call(run, "act", until, self._training_step)
        run.until, run.training_step, run.granted_at = until, self._training_step, time.monotonic()

    def _counted_env_steps(self) -> int:
        return self._earlier["env_steps"] + sum(run.env_steps for run in self._all)

    def _grant(self) -> None:
        """Say up to which environment step each actor may go on.

        An actor may finish what it has begun, so it oversteps by less than one round.
        """
        params, ready = self._params, self._ready
        left = math.inf
        if params.max_env_steps_per_training_step is not None:
            ratio = params.max_env_steps_per_training_step
            total = self._counted_env_steps()
            left = max(params.min_env_steps, self._training_step * ratio) - total
        fair = max(0.0, left) / max(1, len(ready))
        share = -(-params.queue_size // params.actors)
        for run in ready:
            free = share - (run.env_steps - run.delivered_env_steps)
            # What others were granted before is theirs, unless they have been silent for long.
            others = sum(
                other.reserved
                for other in ready
                if other is not run and other.silence_s < _PATIENCE_S
            )
            allowed = min(free, fair, left - others)
            until = run.env_steps + math.ceil(max(0, allowed))
            if self._is_news(run, until):
                self._act(run, until)

    def _is_news(self, run: Incarnation, until: int) -> bool:
        """True where an actor is to be told that it may act until then.

        A second call interrupts the first, so that a grant can also be taken back.
        """
        if not run.reserved:
            return until > run.env_steps
        if run.calls.get("act", 0) > 1:
            return False
        too_much = run.until - until > run.reserved / _SLACK
        is_stale = run.training_step != self._training_step
        return (
            until > run.until
            or too_much
            or (is_stale and time.monotonic() - run.granted_at > _RENEW_S)
        )

    def _deliver(self) -> list[Experience]:
        for run, experience in self._received:
            run.delivered += 1
            run.delivered_env_steps += experience.env_steps
            lag = self._version - experience.version
            self._lags["sum"] += lag
            self._lags["count"] += 1
            self._lags["max"] = max(self._lags["max"], lag)
        delivered = [experience for _, experience in self._received]
        self._received = []
        return delivered


def _pickled(value: object, subject: str) -> bytes:
    return pickled(value, subject, instead="use the collector 'sync'", error=CollectError)


__all__ = ["AsyncCollector", "Incarnation"]
