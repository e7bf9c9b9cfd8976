"""Actors on a cluster. Only the gateway, which is connected to Ray, imports this."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import ray
from ray import ObjectRef
from ray._private.state import state as cluster_state
from ray.actor import ActorHandle
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayError,
)
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from empo_core.errors import WorkerError
from empo_core.protocols.executors import Needs
from empo_ray.addresses import LOCAL
from empo_ray.host import Fetched, Hello, Host
from empo_ray.messages import Batch, Ended, Housed, Key, Placed, Settings, Tell, Warned
from empo_ray.object_stores import ObjectStores
from empo_ray.software import differences, software

_ORPHAN_S = 5.0
"""How much longer than ``unavailable_s`` an actor waits for its gateway."""
_RETRY_S = 0.2
_GET_S = 5.0
_STOP_SHARE = 0.25
"""Part of the time to stop in which workers may end by themselves."""


class Cluster:
    """The actors of one executor.

    One thread calls ``collect``, another ``look``, a third everything else.

    Attributes:
        stopped: Whether all actors were ended.
    """

    def __init__(self, settings: Settings, tell: Tell) -> None:
        self._settings = settings
        self._tell = tell
        self.stopped = False
        self._lock = threading.RLock()
        self._members: dict[Key, _Member] = {}
        self._blobs: list[tuple[int, ObjectRef]] = []
        self._software = software()
        self._stores = ObjectStores(settings.address == LOCAL)
        self._refused: set[str] = set()
        self._node = ray.get_runtime_context().get_node_id()
        # Never restarted by Ray, which would lose the state of a worker without a word.
        self._host = ray.remote(
            max_restarts=0, max_task_retries=0, concurrency_groups={"in": 1, "out": 1}
        )(Host)

    def set_factory(self, data: bytes) -> None:
        """Put the factory into the object store."""
        self._factory = self._put(data)

    def begin(self, key: Key) -> None:
        """Ask for a place, and for an actor once there is one; Ray keeps trying."""
        needs = self._settings.needs
        group = placement_group(
            [_bundle(needs)], strategy="SPREAD",
            bundle_label_selector=[dict(needs.labels)] if needs.labels else None,
        )  # fmt: skip
        actor = self._host.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=_bytes(needs),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
        ).remote(*key, self._settings.unavailable_s + _ORPHAN_S)  # fmt: skip
        with self._lock:
            self._members[key] = _Member(key, actor, group)

    def submit(self, key: Key, request: bytes) -> None:
        """Hand a request to an actor, behind the newest broadcast."""
        with self._lock:
            if (member := self._members.get(key)) is not None:
                self._announce(member, always=True)
                member.command("submit", request)

    def broadcast(self, version: int, data: bytes) -> None:
        """Put a blob into the object store once, and tell its reference to all actors."""
        reference = self._put(np.frombuffer(data, np.uint8))
        with self._lock:
            self._blobs = [*self._blobs[-1:], (version, reference)]
            for member in self._members.values():
                self._announce(member)

    def kill(self, key: Key) -> None:
        """End an actor by force."""
        self._end(key, "was killed")

    def stop(self, timeout_s: float) -> None:
        """End all actors, by force where they do not by themselves."""
        with self._lock:
            members = list(self._members.values())
            share = timeout_s * _STOP_SHARE
            ends = [member.actor.end.remote(share) for member in members if member.node]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=share)
        for member in members:
            self._end(member.key, "was stopped")
        self.stopped = True

    def abandon(self, timeout_s: float) -> None:
        """Let all actors end by themselves, without asking the head for anything."""
        with self._lock:
            ends = [m.actor.end.remote(timeout_s, True) for m in self._members.values() if m.node]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=timeout_s)

    def collect(self, timeout_s: float) -> None:
        """Pass on what has come from actors, and ask them for more."""
        with self._lock:
            pending = {m.pending: m for m in self._members.values() if m.ask()}
        if not pending:
            time.sleep(timeout_s)
            return
        ready, waiting = ray.wait(list(pending), timeout=timeout_s)
        if waiting:
            ready += ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        for reference in ready:
            self._take(pending[reference], reference)

    def look(self) -> None:
        """See who has a place, which nodes are about to go or full; waits for the head."""
        leaving = cluster_state.get_draining_nodes()
        with self._lock:
            members = list(self._members.values())
        for member in members:
            if member.node in leaving:
                self._end(member.key, "was on a node that drains")
            elif not (member.node or member.housed) and member.group.wait(0):
                member.housed = True
                self._tell(Housed(member.key), None)
        nodes = {self._node} | {member.node for member in members if member.node}
        for warning in self._stores.warnings(nodes):
            self._tell(Warned(warning), None)

    def _put(self, value: object) -> ObjectRef:
        """A reference to a value that is put into the object store.

        Raises:
            WorkerError: There is no room for it.
        """
        try:
            return ray.put(value)
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise WorkerError(self._stores.failure(self._node)) from error

    def _take(self, member: _Member, reference: ObjectRef) -> None:
        """Deal with the result of a call."""
        try:
            result = ray.get(reference, timeout=_GET_S)
        except (ActorUnavailableError, ObjectLostError, GetTimeoutError):
            # Perhaps for a moment only: the same frames are asked for again. The executor counts
            # the silence.
            member.pause()
            return
        except (ObjectStoreFullError, OutOfDiskError):
            # The actor keeps its frames, which is not a sign of life either.
            if member.node not in self._refused:
                self._refused.add(member.node)
                self._tell(Warned(self._stores.failure(member.node)), None)
            member.pause()
            return
        except RayError as error:
            missing = "" if member.node else _missing(error)
            self._end(member.key, missing or _death(error), final=bool(missing))
            return
        if member.node:
            self._pass_on(member, result)
        else:
            self._welcome(member, result)
        with self._lock:
            if member.key in self._members:
                member.fetch()
                self._announce(member)

    def _welcome(self, member: _Member, hello: Hello) -> None:
        """Compare the software of a new actor's node with ours, and have the worker built."""
        node, name, pid, theirs = hello
        if different := differences(self._software, theirs):
            reason = f"runs on node {name} with other software: {'; '.join(different)}"
            self._end(member.key, reason, final=True)
            return
        with self._lock:
            member.node = node
            member.command("build", [self._factory], self._settings.imports)
        self._tell(Placed(member.key, name, pid), None)

    def _pass_on(self, member: _Member, fetched: Fetched) -> None:
        sent, version, lengths, data = fetched
        member.taken += len(lengths)
        self._tell(Batch(member.key, sent, version, lengths), data.data if lengths else None)

    def _announce(self, member: _Member, *, always: bool = False) -> None:
        """Tell an actor the newest broadcast, where it does not know it.

        A stopped actor keeps what it was told, so the next word waits for the answer to the last.
        """
        if not (member.node and self._blobs) or member.announced == self._blobs[-1][0]:
            return
        if always or member.heeds:
            member.announce(*self._blobs[-1])

    def _end(self, key: Key, reason: str, *, final: bool = False) -> None:
        """Remove an actor and its place, and say so once."""
        with self._lock:
            member = self._members.pop(key, None)
        if member is not None:
            self._tell(Ended(key, reason, final), None)
            ray.kill(member.actor)
            remove_placement_group(member.group)


class _Member:
    """An actor, and the one call at a time that brings something from it.

    Attributes:
        key: The worker's number and incarnation.
        actor: The actor.
        group: Its place.
        pending: The call.
        housed: Whether it has a place.
        node: Id of its node; empty until it has a process.
        taken: Frames that have arrived.
        announced: The newest broadcast that it was told.
    """

    def __init__(self, key: Key, actor: ActorHandle, group: PlacementGroup) -> None:
        self.key = key
        self.actor = actor
        self.group = group
        self.housed = False
        self.node = ""
        self.taken = self.announced = 0
        self._announcement: ObjectRef | None = None
        self._order = 0
        self._asks_at: float | None = None
        self.pending: ObjectRef = actor.hello.remote()

    @property
    def heeds(self) -> bool:
        """True where it has heard the last announcement."""
        last = self._announcement
        return last is None or bool(ray.wait([last], timeout=0, fetch_local=False)[0])

    def command(self, method: str, *arguments: object) -> ObjectRef:
        """Call a method behind those that were called before."""
        self._order += 1
        call = self.actor.tell.options(concurrency_group="in")
        return call.remote(self._order - 1, method, *arguments)

    def announce(self, version: int, reference: ObjectRef) -> None:
        """Tell it a broadcast; the list keeps Ray from fetching the blob for it."""
        self.announced = version
        self._announcement = self.command("announce", [reference], version)

    def fetch(self) -> None:
        """Ask for the next frames."""
        self.pending = self.actor.fetch.options(concurrency_group="out").remote(self.taken)

    def pause(self) -> None:
        """Ask again in a moment."""
        self._asks_at = time.monotonic() + _RETRY_S

    def ask(self) -> bool:
        """Ask again where it is time to; False where it is not yet."""
        if self._asks_at is not None:
            if time.monotonic() < self._asks_at:
                return False
            self._asks_at = None
            if self.node:
                self.fetch()
            else:
                self.pending = self.actor.hello.remote()
        return True


def _missing(error: RayError) -> str:
    """The package that a node lacks, as a clause; empty where the error is another one."""
    found = re.search(
        r"\bip=([^,)]+)(?s:.*)ModuleNotFoundError: (No module named '\S+')", str(error)
    )
    if not found:
        return ""
    return f"ended: node {found[1]} has other software ({found[2]}); install the same there as here"


def _death(error: RayError) -> str:
    """One clause of the several sentences in which Ray says why an actor is gone."""
    text = " ".join(str(error).split()).partition(" Some common causes")[0]
    return f"ended: {text.partition('The actor is dead because ')[2] or text}"


def _bundle(needs: Needs) -> dict[str, float]:
    """Resources as a placement group wants them, without those that are not needed."""
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": _bytes(needs)}
    # A group without any resource is refused, and one of next to nothing is placed anywhere.
    return {name: amount for name, amount in wanted.items() if amount} or {"CPU": 0.001}


def _bytes(needs: Needs) -> float:
    return float((needs.memory_mb or 0) * 2**20)


__all__ = ["Cluster"]
