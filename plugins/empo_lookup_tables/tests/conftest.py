"""Worlds and questions that the tests share."""

from collections.abc import Callable, Sequence

import pytest
import torch

from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.table import LookupTable
from empo_testing.worlds import TinyWorld

Make = Callable[..., LookupTable]
Ask = Callable[..., ValueQuery]


@pytest.fixture
def spec() -> WorldSpec:
    """Rows of two int16 words, two humans (agents 0 and 2), three goals, two robot actions."""
    return TinyWorld().spec


@pytest.fixture
def make(spec: WorldSpec) -> Make:
    """Makes a table of a quantity from params, of running means unless they say otherwise."""

    def table(quantity: Quantity = "v_r", **params: object) -> LookupTable:
        return LookupTable(
            LookupParams.model_validate({"rule": "running-mean"} | params), spec, quantity
        )

    return table


@pytest.fixture
def ask() -> Ask:
    """Makes a query about states given by their first word, after 2 steps unless said."""

    def query(
        first_words: Sequence[int],
        steps_left: Sequence[int] | None = None,
        *,
        goal: Sequence[int] | None = None,
        human: Sequence[int] | None = None,
        state: Sequence[int] | None = None,
    ) -> ValueQuery:
        states = torch.tensor([[word, 7] for word in first_words], dtype=torch.int16).view(-1, 2)
        times = torch.tensor(steps_left or [2] * len(first_words), dtype=torch.int64)
        indices = (None if index is None else torch.tensor(index) for index in (human, goal, state))
        return ValueQuery(states, times, *indices)

    return query
