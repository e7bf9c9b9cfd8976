"""Keys that stand for actions, in terminals and in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Arrow(NamedTuple):
    """A key with an arrow.

    Attributes:
        sign: The arrow.
        end: The letter at the end of what a terminal sends for it.
        letter: The letter that does the same.
        words: Names of actions that it may mean, the first that an agent has.
    """

    sign: str
    end: str
    letter: str
    words: str

    def action(self, names: Sequence[str]) -> int | None:
        """Which of an agent's actions it means, if any."""
        low = [name.lower() for name in names]
        return next((low.index(word) for word in self.words.split() if word in low), None)


ARROWS = (
    Arrow("↑", "A", "w", "forward up north n"),
    Arrow("←", "D", "a", "left west w"),
    Arrow("→", "C", "d", "right east e"),
    Arrow("↓", "B", "s", "down south s backward still stay wait pass idle noop"),
)


def signs_of(names: Sequence[str]) -> list[str]:
    """What stands for each action: an arrow, or a digit; "" for those beyond the ninth."""
    signs = [str(action + 1) if action < 9 else "" for action in range(len(names))]
    for arrow in ARROWS:
        action = arrow.action(names)
        if action is not None:
            signs[action] = arrow.sign
    return signs
