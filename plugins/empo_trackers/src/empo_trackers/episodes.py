"""Statistics of a run's episodes, for the other trackers to show."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import Tracker
from empo_core.trees import StateDict
from empo_core.types import Histogram
from empo_trackers.episodic import EpisodicEMATracker
from empo_trackers.episodic_histogram import EpisodicEMATrackerWithHistogram
from empo_trackers.plugin import EpisodicEmaParams


class EpisodicEma(Tracker):
    """Averages of rewards and lengths, and shares of the reasons for which episodes end.

    It writes nothing itself: the other trackers of a run log its statistics.
    """

    _kind: type[EpisodicEMATracker] = EpisodicEMATracker

    def __init__(self, params: EpisodicEmaParams) -> None:
        self._params = params
        self._tracker: EpisodicEMATracker | None = None

    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Begin anew, with an episode in each environment."""
        options = self._params.model_dump()
        self._tracker = self._kind(num_envs, reasons=reasons, **options)

    def episode_statistics(self) -> dict[str, float | Histogram]:
        """Statistics so far; empty before ``start_episodes``."""
        return {} if self._tracker is None else {**self._tracker.get_statistics()}

    def step_episodes(
        self,
        rewards: Shaped[Tensor, " env"],
        dones: Shaped[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """Take in a step of the environments, or of the active ones.

        Raises:
            ValueError: if ``start_episodes`` was not called, or had another ``num_envs``.
        """
        if self._tracker is None:
            raise ValueError(
                "step_episodes needs to know the environments: call start_episodes first"
            )
        self._tracker.step_update(rewards, dones, reasons, active=active)

    def state_dict(self) -> StateDict:
        """Statistics so far, running episodes included."""
        return {} if self._tracker is None else dict(self._tracker.state_dict())

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            ValueError: if ``start_episodes`` was not called.
            ConfigError: if the state is of other environments, reasons or bins.
        """
        if self._tracker is None:
            if state_dict:
                raise ValueError(
                    "load_state_dict needs to know the environments: call start_episodes first"
                )
            return
        current = self._tracker.state_dict()
        for name in sorted({*current, *state_dict}):
            loaded_shape, current_shape = (
                tuple(s[name].shape) if name in s else None for s in (state_dict, current)
            )
            if loaded_shape != current_shape:
                raise ConfigError(
                    f"the checkpoint does not fit the tracker: its {name} has shape "
                    f"{loaded_shape}, here it is {current_shape}; resume with the same "
                    "environments, reasons and bins"
                )
        self._tracker.load_state_dict(state_dict)


class EpisodicHistogram(EpisodicEma):
    """The averages, and histograms of rewards and lengths since the run began."""

    _kind = EpisodicEMATrackerWithHistogram

    def episode_statistics(self) -> dict[str, float | Histogram]:
        """Statistics so far; empty before ``start_episodes``."""
        statistics = super().episode_statistics()
        for name in ("reward", "length") if statistics else ():
            histogram = getattr(self._tracker, f"{name}_histogram")
            edges, counts = histogram.bin_edges.tolist(), histogram.bins.tolist()
            statistics[f"histograms/{name}"] = Histogram(edges=edges, counts=counts)
            for beyond in ("underflow", "overflow"):
                statistics[f"histograms/{name}_{beyond}"] = getattr(histogram, beyond)
        return statistics
