"""Calls and numbers of one incarnation of a worker."""

from __future__ import annotations

from collections import deque

from empo_core.protocols.executors import Account, Reply
from empo_executors.frames import Frame, Kind


class CallLedger:
    """Every call ends here, in one way.

    Attributes:
        account: The numbers.
        calls: Numbers of the calls that have not ended, in their order.
        fruitful: Whether any payload has come.
    """

    def __init__(self, number: int, incarnation: int) -> None:
        self.account = Account(number, incarnation)
        self.calls: deque[int] = deque()
        self.fruitful = False

    def submit(self) -> int:
        """Note a call and return its number."""
        number = self.account.submitted
        self.account.submitted += 1
        self.calls.append(number)
        return number

    def accept(self, frame: Frame) -> None:
        """Count a frame that arrived whole and in order."""
        self.account.accepted += 1
        self.account.received_bytes += len(frame.payload)

    def reply(self, frame: Frame) -> Reply:
        """The reply that a frame stands for."""
        worker, incarnation = self.account.worker, self.account.incarnation
        if frame.kind is Kind.PART:
            self.fruitful = True
            return Reply(worker, incarnation, frame.call, "part", frame.version, frame.payload)
        self.calls.popleft()
        self.account.answered += 1
        if frame.kind is Kind.RAISED:
            text = frame.payload.decode()
            return Reply(worker, incarnation, frame.call, "raised", frame.version, traceback=text)
        self.fruitful = self.fruitful or bool(frame.payload)
        return Reply(worker, incarnation, frame.call, "answer", frame.version, frame.payload)

    def lost(self, why: str, version: int) -> list[Reply]:
        """The replies to the calls that ended with the worker.

        Args:
            why: How it ended.
            version: The newest broadcast that it had loaded.
        """
        worker, incarnation = self.account.worker, self.account.incarnation
        replies = [
            Reply(worker, incarnation, call, "lost", version, traceback=why) for call in self.calls
        ]
        self.account.lost += len(replies)
        self.calls.clear()
        return replies
