"""Values on their way to other processes."""

from __future__ import annotations

import cloudpickle  # type: ignore[import-untyped]

from empo_core.errors import EmpoError, WorkerError


def pickled(
    value: object,
    subject: str,
    *,
    instead: str = "work without worker processes",
    error: type[EmpoError] = WorkerError,
) -> bytes:
    """A value as it goes to another process.

    Args:
        value: The value.
        subject: Its name, for errors.
        instead: Another way, for errors.
        error: Raised where the value cannot be sent.

    Raises:
        EmpoError: if of the class ``error``, if the value cannot be sent.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as reason:
        raise error(
            f"{subject} cannot be sent to another process: {type(reason).__name__}: {reason}. "
            f"Leave out open files, locks and the like, or {instead}."
        ) from reason
    return data
