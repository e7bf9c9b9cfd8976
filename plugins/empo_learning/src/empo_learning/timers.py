"""Named timers of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch

from empo_core.trees import StateDict


class Timers:
    """Stopwatches by name that may be nested.

    What is measured within another measurement has that one's name before its own::

        with timers("rollout"), timers("environment"):
            ...  # counts for "rollout" and for "rollout/environment"
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        enabled: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start a first lap at zero.

        Args:
            device: What computes; where it is CUDA, each measurement waits for it at both ends.
            enabled: False measures nothing by name, and waits for nothing.
            clock: Seconds.
        """
        self.enabled = enabled
        self._cuda = torch.device(device) if torch.device(device).type == "cuda" else None
        self._clock = clock
        self._names: list[str] = []
        self._before: dict[str, float] = {}
        self._lap: dict[str, float] = {}
        self._whole_before = 0.0
        self._lap_began = clock()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measures what happens while the returned context is entered."""
        if not self.enabled:
            yield
            return
        self._names.append(name)
        path = "/".join(self._names)
        self._lap.setdefault(path, 0.0)  # Now, so that names keep the order in which they begin.
        began = self._now()
        try:
            yield
        finally:
            self._lap[path] += self._now() - began
            self._names.pop()

    def lap(self) -> dict[str, float]:
        """Seconds by name since the last lap, and begin a new one.

        Raises:
            RuntimeError: if something is being measured.
        """
        self._refuse_within("a lap cannot end")
        now = self._clock()
        seconds, self._lap = self._lap, {}
        for name, value in seconds.items():
            self._before[name] = self._before.get(name, 0.0) + value
        self._whole_before += now - self._lap_began
        self._lap_began = now
        return seconds

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, those before a resumption included."""
        return self._whole_before + self._clock() - self._lap_began

    def totals(self) -> dict[str, float]:
        """Seconds by name since the beginning, those before a resumption included."""
        names = self._before | self._lap
        return {name: self._before.get(name, 0.0) + self._lap.get(name, 0.0) for name in names}

    def mean_ms(self, count: int) -> dict[str, float]:
        """Milliseconds by name per unit of work, of which ``count`` were done so far."""
        return {name: 1e3 * part / max(count, 1) for name, part in self.totals().items()}

    def shares(self) -> dict[str, float]:
        """Per cent of all time by name since the beginning; names of nested ones add up to less."""
        whole = self.seconds
        return {name: 100 * part / whole if whole else 0.0 for name, part in self.totals().items()}

    def state_dict(self) -> StateDict:
        """Measurements so far."""
        return {"seconds": self.seconds, "totals": self.totals()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned, with a new lap.

        Raises:
            RuntimeError: if something is being measured.
        """
        self._refuse_within("other measurements cannot be loaded")
        self._before, self._lap = dict(state_dict["totals"]), {}
        self._whole_before, self._lap_began = float(state_dict["seconds"]), self._clock()

    def _now(self) -> float:
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)
        return self._clock()

    def _refuse_within(self, action: str) -> None:
        if self._names:
            raise RuntimeError(f"{action} while {'/'.join(self._names)!r} is being measured")
