"""A worker that does as it is told; without torch, which a process would take seconds to import."""

from __future__ import annotations

import os
import time
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_core.protocols import Payload, Send


def die() -> None:
    """End this process without a word."""
    os._exit(9)


class EchoWorker:
    """Does what the first word of a request says, and remembers broadcasts."""

    def __init__(self, number: int, incarnation: int) -> None:
        self._identity = f"{number} {incarnation}".encode()
        self._incarnation, self._blob, self._version = incarnation, b"", 0

    def load(self, blob: memoryview, version: int) -> None:
        """Remember it; only a replacement survives the one that says die."""
        assert version > self._version, "versions only grow"
        if bytes(blob) == b"die" and self._incarnation == 0:
            die()
        self._blob, self._version = bytes(blob), version

    def call(self, request: bytes, send: Send) -> Payload:
        """Answer as told."""
        word, _, rest = request.partition(b" ")
        if word == b"who":
            return [self._identity]
        if word == b"blob":
            return [b"%d " % self._version, self._blob]
        if word == b"parts":
            number, _, size = rest.partition(b" ")
            for part in range(int(number)):
                send([b"part ", b"%d" % part, bytes(int(size or 0))])
            return [b"done"]
        if word == b"until-asked":
            while not send([b"waiting"]):
                time.sleep(0.005)
            return [b"asked"]
        if word == b"large":
            return [bytes(int(rest)), b"end"]
        if word == b"nothing":
            return []
        if word == b"raise":
            raise ValueError("the planted fault")
        if word == b"damage":
            zlib.crc32 = lambda data, value=0, /: 12345  # Of what is sent from now on.
        if word == b"die":
            send([b"last words"])
            die()
        if word == b"sleep":
            send([b"good night"])
            time.sleep(1e6)
        return [word, rest]

    def close(self) -> None:
        """There is nothing to release."""


def unbuildable(number: int, incarnation: int) -> EchoWorker:
    """A factory that fails."""
    raise ValueError(f"worker {number} has no such thing")
