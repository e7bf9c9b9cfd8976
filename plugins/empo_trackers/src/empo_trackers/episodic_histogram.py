"""Statistics of episodes, and histograms of their returns and lengths."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from empo_trackers.checks import Real, Reals
from empo_trackers.episodic import EpisodeOptions, EpisodicEMATracker
from empo_trackers.histogram import Closed, FastVectorizedHistogram
from empo_trackers.plugin import LENGTH_BINS, REWARD_BINS


class EpisodicEMATrackerWithHistogram(EpisodicEMATracker):
    """Episode statistics with histograms of returns and lengths.

    Attributes:
        reward_histogram: By what they paid.
        length_histogram: By how long they were.
    """

    def __init__(
        self,
        num_envs: int,
        alpha: Real = 0.01,
        device: torch.device | str | None = None,
        reward_bins: Reals | None = None,
        length_bins: Reals | None = None,
        *,
        closed: Closed = "left",
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Begin an episode in every environment.

        Args:
            num_envs: How many environments there are; 0 is possible.
            alpha: What a new number weighs in the averages, in (0, 1].
            device: Where everything is kept; the CPU by default. Inputs are moved there.
            reward_bins: Edges of bins; 0, 1, 5, 10, 20, 50, 100, 200 by default.
            length_bins: Edges of bins; 1, 10, 25, 50, 100, 150, 200, 300 by default.
            closed: Which edge belongs to a bin, see ``FastVectorizedHistogram``.
            options: As for ``EpisodicEMATracker``.

        Raises:
            ValueError: if an argument is out of its range.
        """
        super().__init__(num_envs, alpha, device, **options)
        if self.disable:
            return
        rewards = REWARD_BINS if reward_bins is None else reward_bins
        lengths = LENGTH_BINS if length_bins is None else length_bins
        self.reward_histogram = FastVectorizedHistogram(rewards, device, closed=closed)
        self.length_histogram = FastVectorizedHistogram(lengths, device, closed=closed)

    @property
    def reward_bin_edges(self) -> Float[Tensor, " edge"]:
        """Edges of the bins of rewards, wherever the tracker was moved to."""
        return self.reward_histogram.bin_edges

    @property
    def length_bin_edges(self) -> Float[Tensor, " edge"]:
        """Edges of the bins of lengths."""
        return self.length_histogram.bin_edges

    def get_histograms(self) -> dict[str, Shaped[np.ndarray, " bin"]]:
        """Counts, shares and edges of both histograms, as arrays.

        ``wandb.Histogram(np_histogram=(counts, edges))`` shows them as they are.
        """
        arrays = {}
        for key, histogram in self._histograms.items():
            arrays[f"histograms/{key}_counts"] = _array(histogram.bins)
            arrays[f"histograms/{key}_distribution"] = _array(histogram.get_probabilities())
            arrays[f"histograms/{key}_bin_edges"] = _array(histogram.bin_edges)
        return arrays

    def reset_histograms(self) -> None:
        """Begin the histograms anew; everything else goes on."""
        for histogram in self._histograms.values():
            histogram.reset()

    @property
    def _histograms(self) -> dict[str, FastVectorizedHistogram]:
        if self.disable:
            return {}
        return {"reward": self.reward_histogram, "length": self.length_histogram}

    def _record(
        self,
        rewards: Float[Tensor, " env"],
        lengths: Int64[Tensor, " env"],
        dones: Bool[Tensor, " env"],
    ) -> None:
        super()._record(rewards, lengths, dones)
        self.reward_histogram.update_batch(rewards, dones)
        self.length_histogram.update_batch(lengths, dones)


def _array(tensor: Shaped[Tensor, " bin"]) -> Shaped[np.ndarray, " bin"]:
    """A copy that later episodes do not change."""
    return tensor.cpu().numpy().copy()
