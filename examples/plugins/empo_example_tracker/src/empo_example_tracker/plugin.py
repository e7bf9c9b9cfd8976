"""Components of this distribution; imported to list plugins, so it must stay light."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from empo_core import Command, Component, Config, hookimpl


class CsvParams(Config):
    """The dialect of the file."""

    separator: Literal[",", ";", "\t"] = Field(",", description="What stands between cells.")


@hookimpl
def empo_components() -> Iterable[Component]:
    """Offer one tracker."""
    yield Component(
        kind="tracker",
        name="csv",
        params=CsvParams,
        target="empo_example_tracker.tracker:CsvTracker",
        api=1,
        summary="Every metric as a column of metrics.csv.",
    )


@hookimpl
def empo_commands() -> Iterable[Command]:
    """Offer one command."""
    yield Command(
        name="csv-last",
        help="Print the last value of every column that the tracker csv wrote.",
        target="empo_example_tracker.commands:csv_last",
        api=1,
    )
