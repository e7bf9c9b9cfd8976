"""Rows that a world's dtype does not hold are refused, not cast to another state's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import WorldError

WORLDS = {
    "blocks": {"name": "blocks"},
    "overcooked": {"name": "overcooked", "params": {"max_steps": 5}},
    "bushworld": {"name": "bushworld/thicket"},
    "multigrid": {"name": "multigrid/trivial"},
    "table": {"name": "table/commitment"},
}
ASKED: dict[str, Callable[[Any, torch.Tensor], object]] = {
    "transitions": lambda world, rows: world.transitions(rows),
    "available": lambda world, rows: world.available(rows),
    "achieved": lambda world, rows: world.achieved(rows),
    "describe": lambda world, rows: world.describe(rows[0]),
    "transition_probabilities": lambda world, rows: world.transition_probabilities(
        rows[0], [0] * len(world.spec.agents)
    ),
}


@pytest.mark.parametrize("method", ASKED)
@pytest.mark.parametrize("name", WORLDS)
def test_words_that_would_wrap_around_are_refused(name: str, method: str) -> None:
    world = build(WorldModelRef.model_validate(WORLDS[name]))
    bits = torch.iinfo(world.spec.state_dtype).bits
    right = world.initial_state()[None]
    ASKED[method](world, right.long())
    for word in range(world.spec.state_words):
        wrong = right.long().clone()
        wrong[0, word] += 2**bits
        with pytest.raises(WorldError):
            ASKED[method](world, wrong)
