"""Guesses at the word that a misspelt one was meant to be."""

from __future__ import annotations

import contextlib
import difflib
import itertools
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
"""Of names that are meant as files, and not as components."""
_MAX_SEARCHES = 10
_MISSPELT, _BEGIN = 0.9, 3
"""Likeness of a word with a slip; less like it is the name of which a word is the begin, if it has
so many letters."""
_MAX_CHOICES, _MAX_LENGTH = 1000, 100
_left: ContextVar[Iterator[int] | None] = ContextVar("_left", default=None)


@contextlib.contextmanager
def few_suggestions() -> Iterator[None]:
    """Within it there are only a few searches, since each costs up to a millisecond."""
    token = _left.set(_left.get() or iter(range(_MAX_SEARCHES)))
    try:
        yield
    finally:
        _left.reset(token)


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The choice that a word resembles most, if there is one and it has its turn."""
    left = _left.get()
    if len(word) > _MAX_LENGTH or (left is not None and next(left, None) is None):
        return None
    candidates = list(itertools.islice(choices, _MAX_CHOICES))
    for likeness in (_MISSPELT, cutoff):
        if close := difflib.get_close_matches(word, candidates, n=1, cutoff=max(likeness, cutoff)):
            return close[0]
        begins = [name for name in candidates if name.startswith(word) and len(word) >= _BEGIN]
        if begins:
            return min(begins, key=len)
    return None
