"""Protocol between an algorithm and ``Loop``: advance, evaluate, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, NamedTuple

from empo_core.trees import StateDict
from empo_core.types import Histogram

Metrics = Mapping[str, float | Histogram]
"""Numbers by key, as trackers log them; ``docs/reference/metrics.md`` lists the keys."""


class Evaluated(NamedTuple):
    """The outcome of an evaluation.

    Attributes:
        metrics: What trackers log.
        score: Higher is better; the checkpoint with the highest is kept. None: not known.
    """

    metrics: Metrics
    score: float | None


class EvaluationInterrupted(KeyboardInterrupt):
    """A signal broke off an evaluation, in all processes that learn together."""


class Learner(ABC):
    """A learning algorithm, one unit of work at a time.

    ``Loop`` calls ``advance`` until ``is_over``, and the other methods only between two calls of
    it, ``state_dict`` excepted. Attributes:

    - ``steps``: steps so far, as trackers count them.
    - ``total_steps``: how many steps there will be.
    - ``may_be_unknown``: keys of ``state_dict`` under which NaN means that something is unknown.
    - ``after_rollout``, ``after_update``: what ``advance`` calls once experience is collected, and
      once an update is made, for callbacks.
    - ``lr_scale``: factor of all learning rates, which callbacks may change between two calls.
    - ``interruptible``: a context for long work of ``evaluate``: Ctrl-C and signals end the work
      at once, by a KeyboardInterrupt, and it is done anew when the run goes on.
    """

    steps: int
    total_steps: int
    may_be_unknown: ClassVar[frozenset[str]] = frozenset()
    after_rollout: Callable[[], None] = staticmethod(lambda: None)
    after_update: Callable[[], None] = staticmethod(lambda: None)
    lr_scale: float = 1.0
    interruptible: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    @property
    def ticks(self) -> int:
        """The count that intervals of ``Reporting`` refer to; by default ``steps``."""
        return self.steps

    @property
    def updates(self) -> int:
        """A number that grows with all that is learned; it names checkpoints."""
        return self.steps

    @property
    def progress(self) -> tuple[float, float]:
        """How much work is done, and how much there is in all; by default steps."""
        return self.steps, self.total_steps

    @property
    def evaluates(self) -> bool:
        """True if ``evaluate`` measures anything."""
        return True

    @property
    def is_over(self) -> bool:
        """True if there is nothing left to do."""
        return self.steps >= self.total_steps

    @abstractmethod
    def start(self) -> None:
        """Begin at step 0; where a run is resumed, ``load_state_dict`` is called instead."""

    @abstractmethod
    def advance(self) -> None:
        """Do the smallest unit of work after which a checkpoint is exact.

        Raises:
            NonFiniteError: if a loss, gradient, target or weight is infinite or NaN.
            CollectError: if no experience can be collected any more.
        """

    @abstractmethod
    def metrics(self, seconds: Mapping[str, float]) -> Metrics:
        """Numbers about the newest work, for one line of the log.

        Args:
            seconds: What each timer measured since the line before.
        """

    def evaluate(self) -> Evaluated | None:
        """Measure how good the learned values or policy are, without effect on the training."""
        return None

    def status(self) -> list[str]:
        """Remarks about the run for people who watch it, after ``metrics``."""
        return []

    @abstractmethod
    def state_dict(self, *, midway: bool) -> StateDict:
        """Everything needed to go on exactly so, as a tree that checkpoints take.

        Tensors and numbers in it must be finite, those of ``may_be_unknown`` excepted. Wall-clock
        times do not belong into it. Of several processes each calls it, and what rank 0 returns
        is kept.

        Args:
            midway: Whether ``advance`` raised; what is exact only between two calls of it is left
                out then.
        """

    @abstractmethod
    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned, in all processes, instead of ``start``."""
