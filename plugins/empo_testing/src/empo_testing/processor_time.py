"""Processor time of a call, for tests that bound what a bad file may cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def timed(call: Callable[[], Result], limit: float, tries: int = 3) -> tuple[Result, float]:
    """Result of a call and its processor time in seconds, the least of some tries.

    It is called again only while it takes more than ``limit`` seconds, ``tries`` times at most: any
    one call is slow if Python looks through the objects of all other tests for garbage meanwhile,
    or if other programs want the same cores. The call must not depend on having been made before.
    """
    fastest = float("inf")
    for _ in range(tries):
        started = time.process_time()
        result = call()
        fastest = min(fastest, time.process_time() - started)
        if fastest <= limit:
            break
    return result, fastest
