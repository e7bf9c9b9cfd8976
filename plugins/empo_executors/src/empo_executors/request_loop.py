"""A worker in its process: it answers requests until it is told to stop."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Protocol

from empo_executors.frames import Disconnected, Kind

if TYPE_CHECKING:  # These import torch.
    from empo_core.protocols.executors import Payload, Worker


class Link(Protocol):
    """The worker's side of the connection to its caller."""

    def tell(self, kind: Kind, payload: Payload, *, version: int, call: int) -> None:
        """Count and send a frame.

        Raises:
            Disconnected: The caller is gone.
        """

    def request(self, timeout_s: float) -> bytes | None:
        """The next request; None where there is none in time, empty where there are no more."""

    @property
    def waiting(self) -> bool:
        """True where a request waits."""

    @property
    def stopped(self) -> bool:
        """True where the caller wants no more."""

    def broadcast(self, loaded: int) -> tuple[memoryview, int] | None:
        """The newest broadcast and its version; None where that is loaded already."""


_IDLE_S = 0.01
"""Time between two looks for broadcasts of a worker without requests."""


class _Stopped(BaseException):
    """Leaves a call, for the caller wants no more of it."""


class RequestLoop:
    """Answers one request after the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._call = 0
        self.version = 0
        """The newest broadcast that the worker has loaded."""

    def serve(self, worker: Worker) -> None:
        """Answer requests until the caller stops it.

        Raises:
            Disconnected: The caller is gone.
        """

        def send(payload: Payload) -> bool:
            self._tell(Kind.PART, payload)
            if self._link.stopped:
                raise _Stopped
            self._follow(worker)
            return self._link.waiting

        self._tell(Kind.READY, [])
        while (request := self._await_request(worker)) and not self._link.stopped:
            # Whoever sees a request also sees what was broadcast before it.
            self._follow(worker)
            try:
                kind, payload = Kind.ANSWER, worker.call(request, send)
            except (_Stopped, Disconnected):
                break
            except BaseException as error:
                kind, payload = Kind.RAISED, [error_text(error)]
            self._tell(kind, payload)
            self._call += 1
        worker.close()

    def _tell(self, kind: Kind, payload: Payload) -> None:
        self._link.tell(kind, payload, version=self.version, call=self._call)

    def _await_request(self, worker: Worker) -> bytes:
        while (request := self._link.request(_IDLE_S)) is None:
            self._follow(worker)
        return request

    def _follow(self, worker: Worker) -> None:
        """Load the newest broadcast, if there is a newer one."""
        while (found := self._link.broadcast(self.version)) is not None:
            blob, version = found
            worker.load(blob, version)
            self.version = version


def error_text(error: BaseException) -> bytes:
    """The traceback of an error, as frames carry it."""
    return "".join(traceback.format_exception(error)).encode(errors="backslashreplace")


__all__ = ["Link", "RequestLoop", "error_text"]
