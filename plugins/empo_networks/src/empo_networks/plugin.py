"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from collections.abc import Iterable

from empo_core import Component, hookimpl


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer what this distribution has."""
    return ()
