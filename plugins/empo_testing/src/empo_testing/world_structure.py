"""Conformance of the structure that a world declares; part of the kit of world models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_worlds.cone_checks import cone, word_that_matters
from empo_worlds.row_table import distinct
from empo_worlds.symmetry_checks import first_false


class StructureTests:
    """Symmetries and dependencies, on the states of a world model's kit."""

    def test_declared_symmetries_change_nothing(self, world: WorldModel, states: Tensor) -> None:
        if not world.symmetries():
            pytest.skip("the world declares no symmetries")
        rows = torch.from_numpy(distinct(states.numpy()))
        violation = first_false(world, world.symmetries(), rows)
        assert violation is None, f"{violation[0].name!r} is no symmetry: {violation[1]}"

    def test_words_outside_the_declared_cone_have_no_influence(
        self, world: WorldModel, states: Tensor
    ) -> None:
        reads = world.reads()
        if reads is None:
            pytest.skip("the world does not say which words depend on which")
        rows = torch.from_numpy(distinct(states.numpy()))
        reason = word_that_matters(world, ~cone(reads), rows)
        assert reason is None, f"reads() leaves something out: {reason}"
