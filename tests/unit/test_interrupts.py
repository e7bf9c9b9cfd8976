"""Signals that end a run: once, in good order, however often they come."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import numba
import pytest

from empo_core import interrupts
from empo_core.interrupts import Interrupts, Termination


@pytest.fixture(autouse=True)
def _heeds_ctrl_c() -> Iterator[None]:
    """Some shells let their background jobs ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", interrupts.SIGNALS)
@pytest.mark.usefixtures("heeds_hangups")
def test_of_several_quick_signals_the_first_one_ends_a_run(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with Termination():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) == handler


def test_a_signal_while_a_run_is_wound_up_counts_only_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Termination() as termination:
        termination.begin()
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(interrupts, "REPEATED_S", 0.01)
        time.sleep(0.02)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_while_signals_wait_the_second_one_acts_at_once_and_the_third_is_a_repetition() -> None:
    with Termination():
        with Interrupts() as pending:
            assert not pending.are_pending
            signal.raise_signal(signal.SIGINT)
            assert pending.are_pending
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_without_a_handler_before_the_second_signal_that_waits_acts_at_once() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Interrupts():
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("callback", ["_raw_object_cache_getbuffer", "_raw_object_cache_notify"])
def test_a_signal_while_the_compiler_calls_back_ends_a_run_and_breaks_no_kernel(
    callback: str,
) -> None:
    # What numba imports when it first compiles must not be broken off: it would not load again.
    assert numba.njit(lambda x: x - 1)(1) == 0

    @numba.njit
    def successor(x: int) -> int:
        return x + 1

    reached: list[str] = []

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == callback and not reached:
            reached.append(callback)
            signal.raise_signal(signal.SIGTERM)

    def call() -> None:
        sys.setprofile(interrupt)
        try:
            assert successor(1) == 2
        finally:
            sys.setprofile(None)
        time.sleep(5)

    with Termination(), pytest.raises(KeyboardInterrupt):
        call()
    assert reached == [callback]
    assert successor(1) == 2


def test_a_run_in_another_thread_is_interrupted_without_a_signal() -> None:
    ends: list[str] = []

    def run() -> None:
        with Termination(), Interrupts() as waiting:
            interrupts.interrupt()
            ends.append("goes on to a good moment" if waiting.are_pending else "")
        with Termination():
            try:
                interrupts.interrupt()
            except KeyboardInterrupt:
                ends.append("ends at once")

    before = signal.signal(signal.SIGTERM, lambda *_: ends.append("a signal"))
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ends == ["goes on to a good moment", "ends at once"]
