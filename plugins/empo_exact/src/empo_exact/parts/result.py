"""The result of a solve in parts: the start, and the sizes of the whole."""

from __future__ import annotations

from pydantic import JsonValue

from empo_exact.induction import Seconds
from empo_exact.parts.sweeps import Parts
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem
from empo_exact.result import ExactResult
from empo_exact.values import ValueStore


class PartsResult(ExactResult):
    """Values and policies at the start; its graph is the part of the start, with its halo."""

    def __init__(
        self,
        problem: Problem,
        store: ValueStore,
        params: ExactParams,
        seconds: Seconds,
        seed: int,
        parts: Parts,
    ) -> None:
        super().__init__(problem, store, params, seconds, seed)
        self._parts = parts

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of states and transitions, of all parts."""
        return self._parts.states, self._parts.transitions
