"""Limits of a certificate; imports nothing heavy, since the command has them as its defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from empo_core.errors import ConfigError


@dataclass(frozen=True)
class Effort:
    """Limits of a certificate, whichever is reached first.

    Attributes:
        epsilon: Pairs with a smaller occupancy are not expanded; 0 expands everything.
        minutes: So long pairs are expanded.
        memory_gb: So much RAM (GiB) the process may hold.
    """

    epsilon: float = 1e-5
    minutes: float = 5.0
    memory_gb: float = 4.0

    def __post_init__(self) -> None:
        """Refuse what is no limit.

        Raises:
            ConfigError: if one of the numbers is negative, infinite or no number, or the occupancy
                is beyond 1.
        """
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"epsilon (--eps) must be a number from 0 to 1, not {self.epsilon!r}")
        for name, limit in (("minutes", self.minutes), ("memory", self.memory_gb)):
            if not 0 <= limit < math.inf:
                raise ConfigError(f"--{name} must be a number of at least 0, not {limit!r}")
