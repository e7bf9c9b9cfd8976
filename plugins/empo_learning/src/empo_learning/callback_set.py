"""The callbacks of a run, as its loop calls them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from empo_core.best_effort import best_effort
from empo_core.errors import CallbackError, ConfigError, failure
from empo_core.protocols import Callback, Training
from empo_core.trees import StateDict
from empo_core.types import Histogram

log = logging.getLogger(__name__)


class CallbackSet:
    """Calls the hooks of several callbacks, one after the other.

    Attributes:
        training: The run as callbacks see it.
    """

    def __init__(self, callbacks: Sequence[Callback], training: Training) -> None:
        self._callbacks, self.training = callbacks, training

    def __bool__(self) -> bool:
        """True if there are any."""
        return bool(self._callbacks)

    def start(self) -> None:
        """Begin in every callback."""
        self._call_all("start", lambda callback: callback.start(self.training))

    def after_rollout(self) -> None:
        """Tell every callback that experience is collected."""
        self._call_all("after_rollout", lambda callback: callback.after_rollout(self.training))

    def after_update(self) -> None:
        """Tell every callback that an update is made."""
        self._call_all("after_update", lambda callback: callback.after_update(self.training))

    def after_evaluation(
        self, score: float | None, metrics: Mapping[str, float | Histogram]
    ) -> None:
        """Tell every callback the outcome of an evaluation."""
        self._call_all(
            "after_evaluation",
            lambda callback: callback.after_evaluation(self.training, score, metrics),
        )

    def finish(self) -> None:
        """End every callback; one that fails at it is a warning."""
        for callback in self._callbacks:
            with best_effort(f"finish of the callback {type(callback).__name__}"):
                callback.finish(self.training)

    def state_dict(self) -> list[StateDict]:
        """Class and state of every callback, in their order.

        Raises:
            CallbackError: if a callback fails.
        """
        states: list[StateDict] = []

        def note(callback: Callback) -> None:
            states.append({"name": type(callback).__name__, "state": callback.state_dict()})

        self._call_all("state_dict", note)
        return states

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore what ``state_dict`` returned; other callbacks than then begin anew."""
        before = [str(state["name"]) for state in states]
        now = [type(callback).__name__ for callback in self._callbacks]
        if before != now:
            log.warning(
                "callbacks: the run had %s and goes on with %s: not as it would have",
                ", ".join(before) or "none",
                ", ".join(now) or "none",
            )
        for callback, state in zip(self._callbacks, states, strict=False):
            if type(callback).__name__ == state["name"]:
                with guarded(callback, "load_state_dict"):
                    callback.load_state_dict(state["state"])

    def _call_all(self, hook: str, call: Callable[[Callback], None]) -> None:
        for callback in self._callbacks:
            with guarded(callback, hook):
                call(callback)
                _check_scale(self.training.lr_scale)


def _check_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"training.lr_scale is {scale}; it must be finite and above 0")


@contextmanager
def guarded(callback: Callback, hook: str) -> Iterator[None]:
    """Turn what a callback raises in a hook into a CallbackError; Ctrl-C passes."""
    try:
        yield
    except (KeyboardInterrupt, ConfigError):
        raise  # The person's wish, and the person's config: no fault of the callback.
    except BaseException as error:
        raise CallbackError(f"the callback {failure(error, callback, hook)}") from error
