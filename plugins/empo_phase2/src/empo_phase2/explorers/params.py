"""Parameters of the explorers."""

from __future__ import annotations

from empo_core import Config


class EpsilonGreedyParams(Config):
    """How often to act at random."""


class CountBonusParams(Config):
    """How much to prefer what was seen rarely."""


class RndParams(Config):
    """How much to prefer what cannot be predicted yet."""


class ActionSequencesParams(Config):
    """Which sequences to follow, and how often."""
