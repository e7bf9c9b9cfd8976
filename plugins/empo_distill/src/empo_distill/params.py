"""The parameters of policy loss ``distill``."""

from __future__ import annotations

from empo_core import Config


class DistillParams(Config):
    """What the loss is."""
