"""Work that the results of a run do not depend on: where it fails, a warning says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("empo_core")


@contextmanager
def best_effort(activity: str) -> Iterator[None]:
    """Turn a failure of what is done within into one warning.

    For pictures, films and pages of results that are written already, and for closing what was
    used. Ctrl-C is passed on; ``sys.exit`` of a component, and a task of its that was cancelled,
    are failures like others.

    Args:
        activity: The work, e.g. ``drawing curve.png``, for the warning.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        event = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        log.warning("%s failed (%s); the results do not depend on that", activity, event)
        log.info("%s failed here:", activity, exc_info=True)  # For log.txt, not for the terminal.
