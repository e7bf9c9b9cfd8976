"""Warnings of a run: what its code logged as a warning, so that its results say it too."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

MOST = 100
"""Further warnings are only in the log."""


class LoggedWarnings(logging.Handler):
    """Collects the messages of warnings, each once.

    Attributes:
        messages: The messages in order.
    """

    def __init__(self, packages: Collection[str]) -> None:
        """Listen to the loggers of some packages; other libraries' warnings concern no result."""
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._packages = packages

    def emit(self, record: logging.LogRecord) -> None:
        """Note the message of a warning; errors end a run, and are told otherwise."""
        if record.levelno >= logging.ERROR or record.name.split(".")[0] not in self._packages:
            return
        message = record.getMessage()
        if message not in self.messages and len(self.messages) < MOST:
            self.messages.append(message)


def with_warnings(summary: Mapping[str, Any], logged: Iterable[str]) -> dict[str, Any]:
    """A summary whose ``warnings`` are its own and those that were logged.

    What a result of somebody else calls so and is no list stays as it is.
    """
    warnings = summary.get("warnings", [])
    if not isinstance(warnings, list | tuple):
        return dict(summary)
    return {**summary, "warnings": [*warnings, *only_logged(summary, logged)]}


def only_logged(summary: Mapping[str, Any], logged: Iterable[str]) -> list[str]:
    """The logged warnings that no warning of a summary contains."""
    warnings = summary.get("warnings")
    texts = [str(warning) for warning in warnings] if isinstance(warnings, list | tuple) else []
    return [message for message in logged if not any(message in text for text in texts)]
