"""Messages between an executor and its gateway, the process that is connected to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from empo_core.protocols.executors import Needs

Key: TypeAlias = tuple[int, int]
"""A worker's number and incarnation."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a gateway must know.

    Attributes:
        address: ``local``, ``auto`` or HOST:PORT.
        environment: Variables, which are set before Ray is imported.
        folder: Receives Ray's own files of a local cluster.
        spill: Receives objects that do not fit into the store of a local cluster.
        object_store_mb: Size of that store; None: Ray's choice.
        needs: Resources of each worker.
        unavailable_s: Seconds without the cluster after which it is lost.
        imports: Packages that every worker imports first.
    """

    address: str
    environment: Mapping[str, str]
    folder: str
    spill: str
    object_store_mb: int | None
    needs: Needs
    unavailable_s: float
    imports: Sequence[str]


class Factory(NamedTuple):
    """Command: the pickled worker factory, before any worker begins."""

    data: bytes


class Begin(NamedTuple):
    """Command: start an incarnation of a worker, once there is room."""

    key: Key


class Submit(NamedTuple):
    """Command: hand a request over."""

    key: Key
    request: bytes


class Broadcast(NamedTuple):
    """Command: put a blob into the object store, and tell all workers."""

    version: int
    data: bytes


class Kill(NamedTuple):
    """Command: end an incarnation by force."""

    key: Key


class Stop(NamedTuple):
    """Command: end all workers, which have so many seconds, and then the gateway."""

    timeout_s: float


Command: TypeAlias = Factory | Begin | Submit | Broadcast | Kill | Stop


class Opened(NamedTuple):
    """Event: connected to a cluster with so many processors, which the address names."""

    address: str
    cpus: float


class Refused(NamedTuple):
    """Event: there is no connection, or no longer; the gateway ends."""

    reason: str


class Housed(NamedTuple):
    """Event: an incarnation has a place, where its process is started."""

    key: Key


class Placed(NamedTuple):
    """Event: an incarnation has a process."""

    key: Key
    node: str
    pid: int


class Batch(NamedTuple):
    """Event: a sign of life of an incarnation, with all frames that were due."""

    key: Key
    sent: int
    version: int
    lengths: Sequence[int]


class Ended(NamedTuple):
    """Event: an incarnation is gone; ``final`` where its software differs from ours."""

    key: Key
    reason: str
    final: bool = False


class Warned(NamedTuple):
    """Event: something that people should know, as a clause."""

    text: str


Event: TypeAlias = Opened | Refused | Housed | Placed | Batch | Ended | Warned
Tell: TypeAlias = Callable[[Event, memoryview | None], None]
"""Sends an event, and behind a batch its frames."""
