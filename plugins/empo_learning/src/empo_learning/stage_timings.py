"""Milliseconds of each stage of a computation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch
from rich.table import Table

_NOTHING = contextlib.nullcontext()
_MOST_PENDING = 1000


class StageTimings:
    """Adds up how long each stage takes, on the CPU's clock or by CUDA events.

    Stages follow one another; nesting them would count the inner one twice.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        enabled: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start at zero.

        Args:
            device: What computes; a CUDA device is measured without waiting for it.
            enabled: False measures nothing, and costs nothing.
            clock: Seconds, on the CPU.
        """
        self.enabled = enabled
        self._cuda = torch.device(device).type == "cuda"
        self._clock = clock
        self.reset()

    @property
    def calls(self) -> int:
        """Number of entries of the stage that came first."""
        return next(iter(self._entered.values()), 0)

    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Measures what happens while the returned context is entered."""
        return self._measured(name) if self.enabled else _NOTHING

    def stats(self) -> dict[str, float]:
        """Milliseconds of each stage per call, the longest first; waits for CUDA."""
        self._settle()
        items = sorted(self._total_ms.items(), key=lambda item: -item[1])
        return {name: total / self.calls for name, total in items}

    def table(self) -> Table:
        """The same for people, with the share of each stage."""
        stats = self.stats()
        whole = sum(stats.values())
        table = Table(title=f"Stages ({self.calls:,} calls)")
        table.add_column("stage")
        table.add_column("ms", justify="right")
        table.add_column("%", justify="right")
        for name, ms in stats.items():
            table.add_row(name, f"{ms:.3f}", f"{ms / whole:.1%}" if whole else "")
        table.add_section()
        table.add_row("total", f"{whole:.3f}", "100.0%" if whole else "")
        return table

    def reset(self) -> None:
        """Forget everything measured so far."""
        self._total_ms: dict[str, float] = {}
        self._entered: dict[str, int] = {}
        self._pending: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextlib.contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        # Entered before it is left, so that stages keep the order in which they come.
        self._entered[name] = self._entered.get(name, 0) + 1
        self._total_ms.setdefault(name, 0.0)
        if self._cuda:
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            try:
                yield
            finally:
                stop.record()
                self._pending.append((name, start, stop))
                if len(self._pending) >= _MOST_PENDING:
                    self._settle()
        else:
            before = self._clock()
            try:
                yield
            finally:
                self._total_ms[name] += 1e3 * (self._clock() - before)

    def _settle(self) -> None:
        """Read the CUDA events, once the last of them has happened."""
        if self._pending:
            self._pending[-1][2].synchronize()
        for name, start, stop in self._pending:
            self._total_ms[name] += start.elapsed_time(stop)
        self._pending.clear()
