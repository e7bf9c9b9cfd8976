"""Random numbers that any language can repeat bit for bit: PCG-XSH-RR 64/32, see pcg-random.org."""

from __future__ import annotations

from collections.abc import Sequence

MOST_SEED = 2**53 - 1
"""The largest whole number that JavaScript reads exactly."""
_FACTOR, _INCREMENT, _MASK = 6364136223846793005, 54 << 1 | 1, 2**64 - 1


class Pcg32:
    """Stream 54 of the generator; ``state`` is all there is to keep of it."""

    def __init__(self, seed: int) -> None:
        self.state = ((_INCREMENT + seed) * _FACTOR + _INCREMENT) & _MASK

    def next(self) -> int:
        """The next whole number in ``[0, 2**32)``."""
        old = self.state
        self.state = (old * _FACTOR + _INCREMENT) & _MASK
        shifted, turn = (old >> 18 ^ old) >> 27 & 0xFFFFFFFF, old >> 59
        return (shifted >> turn | shifted << (-turn & 31)) & 0xFFFFFFFF

    def draw(self, chances: Sequence[float]) -> int:
        """A position, by the inverse of the running total; uses one number, also for one chance.

        Args:
            chances: They sum to 1; where rounding leaves a rest, it is the last positive one's.
        """
        uniform, total, last = (self.next() + 0.5) / 2**32, 0.0, 0
        for position, chance in enumerate(chances):
            if chance > 0:
                total, last = total + chance, position
                if uniform < total:
                    break
        return last
