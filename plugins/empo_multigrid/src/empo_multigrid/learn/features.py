"""State rows of one layout as numbers that a network reads; needs the layout, but no world."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from empo_core.features import Features, FeatureShape, Featurizer
from empo_multigrid.learn.compact import Compactor
from empo_multigrid.learn.feature_layout import StateLayout


class MultigridFeatures(Featurizer):
    """Reads the state rows of one layout; equal for layouts that are read alike."""

    def __init__(self, state_layout: StateLayout) -> None:
        self.state_layout = state_layout
        self._compactor = Compactor(state_layout)

    def __eq__(self, other: object) -> bool:
        """True if the other reads rows alike."""
        return isinstance(other, MultigridFeatures) and self.state_layout == other.state_layout

    def __hash__(self) -> int:
        """Equal ones have equal hashes."""
        return hash(self.state_layout)

    def __reduce__(self) -> tuple[type[MultigridFeatures], tuple[StateLayout]]:
        """Leave out what is made when it is needed."""
        return MultigridFeatures, (self.state_layout,)

    @property
    def shape(self) -> FeatureShape:
        """Shapes of the features."""
        return self._compactor.features.shape

    def __call__(self, states: Int[Tensor, "state word"]) -> Features:
        """The features of each state, on the device of ``states``: its compact row, read.

        Raises:
            WorldError: if the rows have another length.
        """
        return self._compactor.features(self._compactor(states))
