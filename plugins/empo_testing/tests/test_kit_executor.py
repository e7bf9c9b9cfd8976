"""The executor kit passes a right executor and fails each one broken on purpose."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from empo_core.errors import WorkerError
from empo_core.protocols import (
    Account,
    Executor,
    Needs,
    Payload,
    Reply,
    Worker,
    WorkerFactory,
    WorkerState,
)
from empo_testing import echo_worker
from empo_testing import executor as kit
from empo_testing.executor import ExecutorTests

Runner = Callable[..., set[str]]


class Died(BaseException):
    """Stands for the end of a process."""


class Seat:
    """A worker in this process; calls are computed when their replies are asked for."""

    def __init__(self, number: int) -> None:
        self.number, self.incarnation, self.version = number, -1, 0
        self.worker: Worker | None = None
        self.calls: deque[tuple[int, bytes]] = deque()
        self.failure = ""
        self.failures = 0

    def flying(self) -> int:
        return len(self.calls)


class Right:
    """Workers in this process, one call after the other."""

    limit = 2

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.replies: deque[Reply] = deque()
        self.accounts: dict[tuple[int, int], Account] = {}
        self.blob: tuple[bytes, int] | None = None
        self.folder: Path | None = None

    def start(
        self, make: WorkerFactory, workers: int, needs: Needs, directory: Path, max_restarts: int
    ) -> None:
        self.make, self.max_restarts = make, max_restarts
        self.folder = directory / "files"
        self.folder.mkdir()
        self.seats = [Seat(number) for number in range(workers)]
        try:
            for seat in self.seats:
                self.begin(seat)
        except ValueError as error:
            self.stop()
            raise WorkerError(traceback.format_exc()) from error

    def begin(self, seat: Seat) -> None:
        seat.incarnation += 1
        seat.version = 0
        seat.worker = self.make(seat.number, seat.incarnation)
        self.accounts[seat.number, seat.incarnation] = Account(seat.number, seat.incarnation)

    def submit(self, worker: int, request: bytes) -> int:
        if worker >= len(self.seats) or self.seats[worker].worker is None:
            raise WorkerError("there is no such worker")
        seat = self.seats[worker]
        if seat.flying() >= self.limit:
            raise WorkerError("it has no room")
        account = self.account_of(seat)
        account.submitted += 1
        seat.calls.append((account.submitted - 1, request))
        return account.submitted - 1

    def next(self, timeout_s: float | None) -> Reply | None:
        for seat in self.seats:
            if not self.replies and seat.calls and seat.worker is not None:
                self.compute(seat)
        return self.replies.popleft() if self.replies else None

    def compute(self, seat: Seat) -> None:
        number, request = seat.calls[0]
        if request == b"sleep" and seat.flying() < 3:
            self.reply(seat, number, "part", [b"good night"])
            seat.calls[0] = (number, b"slept")
            return
        if request == b"slept":
            return
        if request == b"until-asked" and seat.flying() == 1:
            self.reply(seat, number, "part", [b"waiting"])
            return
        assert seat.worker is not None

        def send(payload: Payload) -> bool:
            self.reply(seat, number, "part", payload)
            return seat.flying() > 1

        try:
            self.follow(seat)
            answer = seat.worker.call(request, send)
        except Died:
            self.lose(seat, "it died")
            return
        except BaseException:
            text = traceback.format_exc()
            self.end_call(seat)
            self.replies.append(
                Reply(seat.number, seat.incarnation, number, "raised", traceback=text)
            )
            return
        self.end_call(seat)
        self.reply(seat, number, "answer", answer)

    def end_call(self, seat: Seat) -> None:
        seat.calls.popleft()
        self.account_of(seat).answered += 1

    def follow(self, seat: Seat) -> None:
        if self.blob is not None and self.blob[1] != seat.version and seat.worker is not None:
            seat.version = self.blob[1]
            seat.worker.load(memoryview(self.blob[0]), seat.version)

    def reply(self, seat: Seat, number: int, kind: Any, payload: Payload) -> None:
        data = bytearray(b"".join(payload))
        self.replies.append(Reply(seat.number, seat.incarnation, number, kind, seat.version, data))

    def lose(self, seat: Seat, why: str) -> None:
        for number, _ in seat.calls:
            self.account_of(seat).lost += 1
            self.replies.append(Reply(seat.number, seat.incarnation, number, "lost", traceback=why))
        seat.calls.clear()
        seat.failure, seat.failures, seat.worker = why, seat.failures + 1, None
        if seat.failures <= self.max_restarts:
            self.begin(seat)

    def account_of(self, seat: Seat) -> Account:
        return self.accounts[seat.number, seat.incarnation]

    def broadcast(self, blob: bytes, version: int) -> None:
        self.blob = blob, version

    def replace(self, worker: int, reason: str) -> None:
        self.lose(self.seats[worker], reason)

    def workers(self) -> Sequence[WorkerState]:
        return [
            WorkerState(
                seat.number, seat.incarnation, "here", None,
                "given_up" if seat.worker is None else "ready",
                seat.version, seat.flying(), seat.failure,
            )
            for seat in self.seats
        ]  # fmt: skip

    def account(self) -> Sequence[Account]:
        return list(self.accounts.values())

    def stop(self, timeout_s: float = 5.0) -> None:
        self.max_restarts = -1
        for seat in self.seats:
            if seat.worker is not None:
                self.lose(seat, "it was stopped")
        if self.folder is not None and self.folder.exists():
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


class CannotReplace:
    start, submit, next, stop = Right.start, Right.submit, Right.next, Right.stop
    broadcast, workers, account = Right.broadcast, Right.workers, Right.account

    def __init__(self) -> None:
        Right.__init__(self)  # type: ignore[arg-type]


class StartsOne(Right):
    def start(self, make: WorkerFactory, workers: int, *others: Any) -> None:
        super().start(make, min(workers, 2), *others)


class AnswersTwice(Right):
    def end_call(self, seat: Seat) -> None:
        if seat.calls[0][0] == 5:
            self.reply(seat, 5, "answer", [b"echo5"])
        super().end_call(seat)


class ForgetsACall(Right):
    def reply(self, seat: Seat, number: int, kind: Any, payload: Payload) -> None:
        if number != 3:
            super().reply(seat, number, kind, payload)


class CountsFromOne(Right):
    def submit(self, worker: int, request: bytes) -> int:
        return super().submit(worker, request) + 1


class TakesAnything(Right):
    limit = 100


class CutsPayloads(Right):
    def reply(self, seat: Seat, number: int, kind: Any, payload: Payload) -> None:
        super().reply(seat, number, kind, [b"".join(payload)[:1_000_000]])


class HandsOutBytes(Right):
    def next(self, timeout_s: float | None) -> Reply | None:
        reply = super().next(timeout_s)
        fixed: Any = bytes(reply.payload) if reply else b""
        return dataclasses.replace(reply, payload=fixed) if reply else None


class DropsParts(Right):
    def reply(self, seat: Seat, number: int, kind: Any, payload: Payload) -> None:
        if kind == "answer":
            super().reply(seat, number, kind, payload)


class LoadsLate(Right):
    def submit(self, worker: int, request: bytes) -> int:
        for seat in self.seats:
            self.follow(seat)
        return super().submit(worker, request)

    def broadcast(self, blob: bytes, version: int) -> None:
        self.late, self.blob = (blob, version), getattr(self, "late", None)


class ForgetsBroadcasts(Right):
    def lose(self, seat: Seat, why: str) -> None:
        self.blob = None
        super().lose(seat, why)


class NamesNoVersion(Right):
    def next(self, timeout_s: float | None) -> Reply | None:
        reply = super().next(timeout_s)
        return dataclasses.replace(reply, version=0) if reply else None


class HidesTracebacks(Right):
    def next(self, timeout_s: float | None) -> Reply | None:
        reply = super().next(timeout_s)
        if reply is not None and reply.kind == "raised":
            return dataclasses.replace(reply, traceback="ValueError: the planted fault")
        return reply


class PassesErrorsThrough(Right):
    def start(self, *arguments: Any) -> None:
        try:
            super().start(*arguments)
        except WorkerError as error:
            raise WorkerError("a worker has no such thing") from error


class TellsNoLoss(Right):
    def lose(self, seat: Seat, why: str) -> None:
        before = len(self.replies)
        super().lose(seat, why)
        while len(self.replies) > before:
            self.replies.pop()


class TellsLossesBackwards(Right):
    def lose(self, seat: Seat, why: str) -> None:
        seat.calls.reverse()
        super().lose(seat, why)


class RepeatsLostCalls(Right):
    def lose(self, seat: Seat, why: str) -> None:
        calls = list(seat.calls)
        super().lose(seat, why)
        for _, request in calls:
            if request != b"die" and seat.worker is not None:
                self.submit(seat.number, request)


class ReusesIncarnations(Right):
    def workers(self) -> Sequence[WorkerState]:
        return [dataclasses.replace(state, incarnation=0) for state in super().workers()]


class ForgetsReasons(Right):
    def workers(self) -> Sequence[WorkerState]:
        return [dataclasses.replace(state, last_failure="") for state in super().workers()]


class NeverGivesUp(Right):
    def start(self, make: WorkerFactory, workers: int, needs: Needs, d: Path, m: int) -> None:
        super().start(make, workers, needs, d, 1000)


class MiscountsLosses(Right):
    def account(self) -> Sequence[Account]:
        return [dataclasses.replace(account, lost=0) for account in super().account()]


class StopsOnce(Right):
    def stop(self, timeout_s: float = 5.0) -> None:
        assert self.folder is None or self.folder.exists()
        super().stop()


class StopsSlowly(Right):
    def stop(self, timeout_s: float = 5.0) -> None:
        time.sleep(0.3)
        super().stop()


class LeavesFiles(Right):
    def broadcast(self, blob: bytes, version: int) -> None:
        assert self.folder is not None
        (self.folder.parent / "blob").write_bytes(blob)
        super().broadcast(blob, version)


def case_of(kind: type) -> type[ExecutorTests]:
    class TestCase(ExecutorTests):
        here = False

        @pytest.fixture
        def executor(self) -> Executor:
            made: Executor = kind()
            return made

    return TestCase


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers here end by an exception, and nothing is worth waiting for."""

    def die() -> None:
        raise Died

    monkeypatch.setattr(echo_worker, "die", die)
    monkeypatch.setattr(kit, "PATIENCE_S", 0.2)
    monkeypatch.setattr(kit, "STOP_S", 0.2)
    monkeypatch.setattr(kit, "_SLACK_S", 0.0)


def test_a_right_executor_passes(kit_failures: Runner) -> None:
    assert kit_failures(case_of(Right)) == set()


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (CannotReplace, "test_it_fits_the_protocol"),
        (StartsOne, "test_all_workers_are_ready_after_the_start"),
        (AnswersTwice, "test_every_call_is_answered_once_and_in_order"),
        (ForgetsACall, "test_every_call_is_answered_once_and_in_order"),
        (CountsFromOne, "test_every_call_is_answered_once_and_in_order"),
        (TakesAnything, "test_calls_beyond_two_in_flight_are_refused"),
        (CutsPayloads, "test_payloads_of_every_size_arrive_unchanged"),
        (HandsOutBytes, "test_payloads_of_every_size_arrive_unchanged"),
        (DropsParts, "test_parts_come_before_their_answer"),
        (ForgetsBroadcasts, "test_a_worker_that_dies_of_a_broadcast_is_replaced"),
        (LoadsLate, "test_a_call_follows_what_was_broadcast_before_it"),
        (NamesNoVersion, "test_a_call_follows_what_was_broadcast_before_it"),
        (ForgetsBroadcasts, "test_a_replacement_gets_the_newest_broadcast"),
        (HidesTracebacks, "test_an_exception_is_told_and_the_worker_goes_on"),
        (PassesErrorsThrough, "test_a_worker_that_cannot_be_built_is_reported"),
        (TellsNoLoss, "test_calls_of_a_worker_that_dies_are_lost_once_each"),
        (TellsLossesBackwards, "test_calls_of_a_worker_that_dies_are_lost_once_each"),
        (RepeatsLostCalls, "test_calls_of_a_worker_that_dies_are_lost_once_each"),
        (ReusesIncarnations, "test_calls_of_a_worker_that_dies_are_lost_once_each"),
        (ForgetsReasons, "test_a_worker_that_always_fails_is_given_up"),
        (NeverGivesUp, "test_a_worker_that_always_fails_is_given_up"),
        (MiscountsLosses, "test_calls_of_a_worker_that_dies_are_lost_once_each"),
        (StopsOnce, "test_stopping_is_possible_at_any_time_and_twice"),
        (StopsSlowly, "test_stopping_takes_seconds_and_leaves_no_process"),
        (LeavesFiles, "test_files_are_gone_after_stopping"),
    ],
)
def test_a_broken_executor_is_caught(broken: type, caught_by: str, kit_failures: Runner) -> None:
    found = kit_failures(case_of(broken), [caught_by])
    assert any(name.startswith(caught_by) for name in found)


def test_the_kit_says_what_to_override(kit_failures: Runner) -> None:
    assert len(kit_failures(ExecutorTests)) > 10


def test_the_kits_workers_can_be_sent_to_other_processes() -> None:
    import cloudpickle  # type: ignore[import-untyped]

    for factory in (echo_worker.EchoWorker, echo_worker.unbuildable):
        assert len(cloudpickle.dumps(factory)) < 200, "by name, so that no code travels"
