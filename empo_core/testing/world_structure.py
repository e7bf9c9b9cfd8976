"""Conformance of the structure that a world declares; part of the kit of world models."""

from __future__ import annotations

import pytest
from torch import Tensor

from empo_core.protocols import Factored, Symmetric, WorldModel
from empo_core.worlds.structure_checks import cone, false_symmetry, word_that_matters


class StructureTests:
    """Symmetries and dependencies, on the states of a world model's kit."""

    def test_declared_symmetries_change_nothing(self, world: WorldModel, states: Tensor) -> None:
        if not isinstance(world, Symmetric):
            pytest.skip("the world declares no symmetries")
        for symmetry in world.symmetries():
            reason = false_symmetry(world, symmetry, states)
            assert reason is None, f"{symmetry.name!r} is no symmetry: {reason}"

    def test_words_outside_the_declared_cone_have_no_influence(
        self, world: WorldModel, states: Tensor
    ) -> None:
        if not isinstance(world, Factored):
            pytest.skip("the world does not say which words depend on which")
        reason = word_that_matters(world, ~cone(world.reads()), states)
        assert reason is None, f"reads() leaves something out: {reason}"
