"""Runs of Weights & Biases without a network, read back from their files."""

from __future__ import annotations

import pytest

from empo_core.protocols import Tracker
from empo_core.testing.tracker import TrackerTests
from empo_trackers.plugin import WandbParams
from empo_trackers.weights_and_biases import WandbTracker

pytest.importorskip("wandb", reason="wandb is not installed")


@pytest.mark.slow  # Every run starts a process of its own.
class TestWandbTracker(TrackerTests):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return WandbTracker(WandbParams(mode="offline"))
