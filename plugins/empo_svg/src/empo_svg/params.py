"""The parameters of policy loss ``svg``."""

from __future__ import annotations

from empo_core import Config


class SvgParams(Config):
    """What the loss is."""
