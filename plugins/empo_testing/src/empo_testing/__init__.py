"""Conformance kits for plugin authors: one module and one class per protocol.

Subclass the class of your kind in your plugin's tests and override the fixture that returns
the thing under test, e.g. ``aggregator`` of ``AggregatorTests``; the other fixtures have
defaults. ``worlds`` has a tiny world to test with.
"""

from __future__ import annotations

import sys

_KITS = [
    "aggregator",
    "algorithm",
    "callback",
    "collector",
    "environment",
    "executor",
    "exploration",
    "human_prior",
    "policy_loss",
    "policy_network",
    "schedule",
    "tracker",
    "value_network",
    "world_model",
]

# Without this a failing kit would show "AssertionError" and not the two sides.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{name}" for name in _KITS))
