"""Speed of a learner, line by line of a run's log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

from empo_core.trees import StateDict
from empo_learning.bounded_curve import BoundedCurve


class Pace:
    """Adds up how long a learner's work takes, over all attempts of a run.

    Attributes:
        seconds: Time of all work so far.
        lines: ``seconds`` at each line of the log, thinned out in long runs.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lines: BoundedCurve[float] = BoundedCurve()
        self._line_steps = 0

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Measures the work that is done while the returned context is entered."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    def line(self, steps: int, lap: Mapping[str, float]) -> dict[str, float]:
        """Metrics ``time/...`` of a new line: speed, and shares of the time since the last line.

        Args:
            steps: Steps so far.
            lap: Seconds by name since the last line, see ``Timers.lap``.
        """
        seconds = self.seconds - (self.lines[-1] if self.lines else 0.0)
        advanced, self._line_steps = steps - self._line_steps, steps
        self.lines.append(self.seconds)
        whole = sum(part for name, part in lap.items() if "/" not in name)
        return {
            "time/steps_per_second": advanced / max(seconds, 1e-9),
            "time/steps_per_second_total": steps / max(self.seconds, 1e-9),
            **{f"time/{name}_percent": 100 * part / whole for name, part in lap.items() if whole},
        }

    def state_dict(self) -> StateDict:
        """Everything to go on from."""
        return {
            "seconds": self.seconds,
            "lines": self.lines.state_dict(),
            "line_steps": self._line_steps,
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned."""
        self.seconds = state_dict["seconds"]
        self.lines.load_state_dict(state_dict["lines"])
        self._line_steps = state_dict["line_steps"]
