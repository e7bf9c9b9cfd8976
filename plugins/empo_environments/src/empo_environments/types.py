"""Types of what foreign environments are, give and take.

Their libraries leave the values of spaces open, so the types that stand for them are open here,
once; ``spaces`` checks values against the declared space before anything is learned from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium

GymEnv: TypeAlias = gymnasium.Env[Any, Any]
"""A Gymnasium environment with whatever observations and actions."""
GymVectorEnv: TypeAlias = gymnasium.vector.VectorEnv[Any, Any, Any]
"""A Gymnasium vector environment with whatever observations, actions and arrays."""
Space: TypeAlias = gymnasium.spaces.Space[Any]
"""A Gymnasium space of whatever values."""
Value: TypeAlias = Any
"""An observation or action of a space: an array, a number, a mapping or a tuple of them."""
Info: TypeAlias = Mapping[str, Any]
"""Further information about a step, by names that are up to the environment."""
