"""After a restore every generator draws what it would have drawn."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from empo_learning.checkpoint import Checkpoints
from empo_learning.randomness import capture, restore
from empo_testing.exploration import global_randomness_untouched


def draws() -> list[float]:
    """A hundred numbers of each generator, of several kinds."""
    found: list[float] = []
    for _ in range(100):
        found += [random.random(), random.gauss(0, 1), random.randrange(10**6)]
        found += [np.random.random(), np.random.standard_normal(), int(np.random.randint(10**6))]
        found += [float(torch.rand(())), float(torch.randn(())), int(torch.randint(10**6, ()))]
    return found


@pytest.mark.parametrize("odd", [0, 1], ids=["even", "with half of a pair of normals left"])
def test_the_next_draws_are_identical(tmp_path: Path, odd: int) -> None:
    for _ in range(odd):
        random.gauss(0, 1), np.random.standard_normal(), torch.randn(())
    Checkpoints(tmp_path).save(0, capture())
    expected = draws()
    draws()
    restore(Checkpoints(tmp_path).load(0))
    assert draws() == expected


def test_capturing_draws_nothing() -> None:
    with global_randomness_untouched():
        before = random.getstate()
        capture()
        assert random.getstate() == before


def test_generators_of_devices_that_are_gone_are_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = capture()
    state["cuda"] = state["cuda"] + [torch.Generator().get_state()]
    restore(state)
    assert "random generators of 1 CUDA devices and there are 0" in caplog.text
