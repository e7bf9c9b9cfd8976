"""Random games solved by ``exact``, beside the same equations with 60 digits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from fault_kinds import Trial

EXACT = Path(__file__).parents[2] / "plugins/empo_exact/tests"


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Games, one a trial, with the symbols of both objectives, defunct robots, and counts."""
    sys.path.insert(0, str(EXACT))
    from precise_reference import errors  # type: ignore[import-not-found]

    logging.disable()
    worst: dict[str, float] = {}
    for number in range(seed * 1_000_000, seed * 1_000_000 + count):
        try:
            largest, allowed = errors(number)
        except Exception as error:
            yield Trial(f"game {number}", f"{type(error).__name__}: {error}")
            continue
        for name, error in largest.items():
            worst[name] = max(worst.get(name, 0.0), error)
        wrong = {
            name: f"{error:.1e}" for name, error in largest.items() if not error <= allowed[name]
        }
        yield Trial(f"game {number}", f"relative errors {wrong}" if wrong else "")
    logging.disable(logging.NOTSET)
    listed = ", ".join(f"{name} {largest:.1e}" for name, largest in worst.items())
    print(f"numerics: largest relative errors {listed}", flush=True)
