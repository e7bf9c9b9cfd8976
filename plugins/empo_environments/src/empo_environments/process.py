"""Environments in worker processes, many per worker."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import Action, OnCrash, Order, TimeStep
from empo_core.trees import StateDict
from empo_environments.block_schedule import BlockScheduler
from empo_environments.env_group import Crash, close_all, common_spec
from empo_environments.env_worker import EnvWorker
from empo_environments.shared_buffers import SharedBuffers, buffer_bytes
from empo_environments.single_env import MakeEnv, episode_seed
from empo_environments.snapshots import Snapshot, shares
from empo_environments.worker import LOOK_S, WaitingTime, Worker, worker_context
from empo_executors.pickles import pickled
from empo_executors.shared_memory import Descriptor, SharedMemory

log = logging.getLogger(__name__)
RESTARTS = 3
"""Restarts of one worker that are allowed ..."""
RESTART_STEPS = 10_000
"""... within this many of its steps."""
_CLOSE_S = 2.0


class ProcessVectorEnv:
    """A vector whose environments step in worker processes while the learner does other things.

    Observations and actions are in shared memory; a request to step and its answer are a byte
    in a pipe, so that whoever waits sleeps.
    """

    def __init__(
        self, make: Sequence[MakeEnv], *, workers: int, blocks: int, order: Order,
        on_crash: OnCrash, first: int = 0, seed: int = 0, answer_limit_s: float | None = None,
    ) -> None:  # fmt: skip
        """Start the workers, and let them make their environments.

        Args:
            make: Makes each environment, in its worker; sent there by cloudpickle.
            workers: Number of processes.
            blocks: Into how many blocks the environments are divided.
            order: Whether blocks arrive in strict turns, or as they get ready.
            on_crash: What happens when a worker dies or an environment raises an error: the
                vector fails, or the worker is started anew and its environments begin episodes.
            first: Number of the first environment.
            seed: Of the workers' process-wide generators, see ``VectorLayout``.
            answer_limit_s: Seconds after which a worker counts as dead, see there.

        Raises:
            ConfigError: if the environments do not fit each other, or the sizes do not.
            CollectError: if an environment cannot be made.
        """
        _check_sizes(len(make), workers, blocks)
        self._envs, self._on_crash, self._first = len(make) // workers, on_crash, first
        self._limit_s, self._waiting_time, self._looked_at = answer_limit_s, WaitingTime(), 0.0
        self._seed, self._restarts = seed, [0] * workers
        self._payloads = [_payload(part) for part in shares(make, workers)]
        self._context = worker_context()
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        # At the exit of a program that forgot to close: multiprocessing itself would wait for
        # workers for ever, for they ignore the signal that it sends.
        self._end = Finalize(self, _end, (self._workers,), exitpriority=1)
        self._memory: SharedMemory | None = SharedMemory(
            "observations and actions of all environments",
            "use fewer environments or smaller observations",
        )
        self._failure: CollectError | None = None
        self._crashes: list[list[int]] = [[] for _ in range(workers)]
        self._steps = [0] * workers
        self._missing = [0] * blocks
        """Number of workers that still step, by block."""
        self._fresh: set[int] = set()
        self._turns = BlockScheduler(blocks, order)
        self._seeds: list[int] = []
        try:
            self._build(workers, blocks)
        except BaseException:
            self.close()
            raise

    def start(self, seed: int) -> None:
        """Begin an episode in every environment."""
        self._seeds = [seed] * self.spec.num_envs
        self._ask("start", [(seeds,) for seeds in shares(self._seeds, len(self._workers))])
        self._turns.begin()

    def recv(self) -> TimeStep:
        """The next block; sleeps until it is there."""
        awaited = self._turns.awaited()
        while self._failure is None:
            for block in awaited:
                if not self._missing[block]:
                    self._turns.arrive(block)
                    return self._board.arrival(block)
            self._listen()
        raise self._failure

    def send(self, block: int, action: Action) -> None:
        """Let the workers of a block go on."""
        self._turns.check(block)
        self._board.answer(block, action)
        self._turns.leave(block)
        size = len(self._workers) // self.spec.num_blocks
        for worker in self._workers[block * size : (block + 1) * size]:
            if worker.number in self._fresh:
                # It was started anew after this block had arrived, so there is nothing that the
                # actions are about; what it shows next is its first observations.
                self._fresh.remove(worker.number)
                continue
            self._steps[worker.number] += 1
            self._missing[block] += 1
            self._watch(worker)
            worker.step()

    def state_dict(self) -> StateDict:
        """State of every environment, after what it was sent."""
        while any(self._missing) and self._failure is None:
            self._listen()
        if self._failure is not None:
            raise self._failure
        for worker in self._workers:
            worker.request("state_dict")
        states = [state for worker in self._workers for state in self._state_of(worker.number)]
        queue = self._turns.queue()
        return Snapshot(queue, self._seeds, states, self._board.state_dict())._asdict()

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Play every episode again, in all workers at once."""
        snapshot = Snapshot.of(state_dict, self._board)
        self._seeds = list(snapshot.seeds)
        workers = len(self._workers)
        arguments = zip(
            shares(snapshot.seeds, workers), shares(snapshot.environments, workers), strict=True
        )
        answers = self._ask("load_state_dict", list(arguments))
        exact = [is_exact for answer in answers for is_exact in answer]
        self._board.load_state_dict(snapshot.outcome, exact)
        self._turns.begin(snapshot.queue)
        return all(exact)

    def close(self) -> None:
        """End the workers, by force after two seconds."""
        self._failure = self._failure or CollectError("these environments are closed")
        self._end()
        self._selector.close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _build(self, workers: int, blocks: int) -> None:
        for number in range(workers):
            self._workers.append(self._worker(number, number // (workers // blocks)))
        specs = [spec for worker in self._workers for spec in worker.reply()]
        self.spec = common_spec(specs, blocks)
        assert self._memory is not None
        self._board = SharedBuffers(self.spec, self._memory.reserve(buffer_bytes(self.spec)))
        for worker in self._workers:
            worker.request("attach_memory", self.spec)
        for worker in self._workers:
            worker.reply()
            self._watch(worker)

    def _worker(self, number: int, block: int) -> Worker:
        assert self._memory is not None
        globals_seed = self._seed, number, self._restarts[number]
        make = partial(
            EnvWorker, self._payloads[number], number * self._envs, self._first, globals_seed
        )
        worker = Worker(
            self._context, number, block, make, Descriptor(self._memory.descriptor),
            self._waiting_time, self._limit_s,
        )  # fmt: skip
        worker.request("specs")
        return worker

    def _watch(self, worker: Worker) -> None:
        if not worker.watched:
            worker.watched = True
            self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
            self._selector.register(worker.sentinel, selectors.EVENT_READ, worker)

    def _unwatch(self, worker: Worker) -> None:
        if worker.watched:
            worker.watched = False
            self._selector.unregister(worker.pipe)
            self._selector.unregister(worker.sentinel)

    def _listen(self) -> None:
        """Sleep until a worker answers or ends, or has owed an answer for too long."""
        begun = time.monotonic()
        limit_s = self._limit_s
        events = self._selector.select(None if limit_s is None else min(limit_s, LOOK_S))
        self._waiting_time.add_since(begun)
        if limit_s is not None and self._waiting_time.seconds - self._looked_at >= limit_s:
            # To look after every answer would cost time.
            self._looked_at = self._waiting_time.seconds
            answering = {key.data for key, _ in events}
            for worker in self._workers:
                if worker not in answering:
                    self._replace_late(worker)
        for key, _ in events:
            worker = key.data
            if not worker.busy:
                # It has died in its sleep, which is found out when it is asked to step. Until
                # then its end must not wake us up again and again.
                self._unwatch(worker)
                continue
            try:
                # Where the process has ended, its last words come first.
                _ = worker.receive() if key.fileobj is worker.pipe else worker.reply()
            except CollectError as error:
                self._replace(worker, error)
            self._missing[worker.block] -= 1

    def _replace_late(self, worker: Worker) -> None:
        try:
            worker.refuse_late()
        except Crash as error:
            self._replace(worker, error)
            self._missing[worker.block] -= 1

    def _ask(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every worker's group, in all of them at once."""
        for worker, mine in zip(self._workers, arguments, strict=True):
            worker.request(name, *mine)
        try:
            return [worker.reply() for worker in self._workers]
        except CollectError as error:
            self._failure = error
            raise

    def _state_of(self, number: int) -> list[dict[str, Any]]:
        """The states that were requested of a worker, or of its successor."""
        while True:
            worker = self._workers[number]
            try:
                states: list[dict[str, Any]] = worker.reply()
                return states
            except CollectError as error:
                self._replace(worker, error)
            if self._turns.holds(worker.block):
                self._fresh.add(number)
            self._workers[number].request("state_dict")

    def _replace(self, worker: Worker, error: CollectError) -> None:
        """Start a worker anew after an error, or fail; its environments begin new episodes."""
        number, crash = worker.number, error
        while True:
            self._unwatch(worker)
            worker.busy = False
            worker.end(time.monotonic() + _CLOSE_S)
            self._judge(number, crash)
            self._restarts[number] += 1
            worker = self._workers[number] = self._worker(number, worker.block)
            try:
                self._begin_anew(worker)
                return
            except Crash as again:
                crash = again
            except (CollectError, ConfigError) as misfit:
                self._failure = CollectError(str(misfit))
                raise self._failure from misfit

    def _judge(self, number: int, error: CollectError) -> None:
        """Raise the error unless the worker may be started anew."""
        now = self._steps[number]
        crashes = [step for step in self._crashes[number] if now - step < RESTART_STEPS]
        self._crashes[number] = [*crashes, now]
        if self._on_crash == "stop" or not isinstance(error, Crash):
            self._failure = error
            raise error
        if len(crashes) >= RESTARTS:
            self._failure = CollectError(
                f"worker {number} failed {len(crashes) + 1} times within {RESTART_STEPS:,} steps, "
                f"and was started anew {RESTARTS} times; the last failure: {error}"
            )
            raise self._failure from error
        log.warning(
            "%s\nworker %d is started anew (time %d of %d within %d steps), and its environments "
            "begin new episodes", str(error), number, len(crashes) + 1, RESTARTS, RESTART_STEPS,
        )  # fmt: skip

    def _begin_anew(self, worker: Worker) -> None:
        specs = worker.reply()
        mine = slice(worker.number * self._envs, (worker.number + 1) * self._envs)
        alike = common_spec(specs * (self.spec.num_envs // len(specs)), self.spec.num_blocks)
        if alike != self.spec:
            raise CollectError(
                f"worker {worker.number} was started anew, and its environments are not what they "
                f"were: {alike}, not {self.spec}"
            )
        worker.request("attach_memory", self.spec)
        worker.reply()
        # With the old seeds they would play the same episodes once more.
        self._seeds[mine] = [
            episode_seed(seed, worker.number, self._steps[worker.number])
            for seed in self._seeds[mine]
        ]
        worker.request("start", self._seeds[mine], True)
        worker.reply()
        self._watch(worker)


def _end(workers: list[Worker]) -> None:
    close_all([(f"hanging up worker {worker.number}", worker.hang_up) for worker in workers])
    deadline = time.monotonic() + _CLOSE_S
    close_all(
        [(f"ending worker {worker.number}", partial(worker.end, deadline)) for worker in workers]
    )
    workers.clear()


def _check_sizes(envs: int, workers: int, blocks: int) -> None:
    if min(envs, workers, blocks) < 1 or envs % workers or workers % blocks:
        raise ConfigError(
            f"{envs} environments, {workers} workers and {blocks} blocks do not fit: every worker "
            "needs equally many environments, and every block equally many workers"
        )


def _payload(make: Sequence[MakeEnv]) -> bytes:
    serial = "step the environments in this process (backend: serial)"
    return pickled(list(make), "what makes the environments", instead=serial, error=ConfigError)
