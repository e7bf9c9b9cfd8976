"""The parameters of policy loss ``awr``."""

from __future__ import annotations

from empo_core import Config


class AwrParams(Config):
    """What the loss is."""
