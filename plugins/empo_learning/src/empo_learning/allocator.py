"""Behaviour of the C library with memory that tensors give back."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep freed memory for later, instead of giving it back at once.

    Every step of a learner needs tensors of the same sizes as the last one. By default glibc asks
    the system for each large one anew, and every page of it is then zeroed on first use: more than
    half of the time of a large batch. Returns whether that could be set; only glibc knows it.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, 2**26))
    accepted = [mallopt(option, value) == 1 for option, value in settings]
    return all(accepted)
