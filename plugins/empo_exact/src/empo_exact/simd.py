"""SIMD primitives of the kernels: arithmetic on several neighbouring numbers at a time.

Compilers turn only the simplest loops into vector instructions, and the sweep's are none of
those: they combine short rows that are found through indices. So the kernels say what is done
to several neighbours ("lanes") at once, by the functions of this module:

====================================  ===========================================================
``four(x)  eight(x)  sixteen(x)``     lanes that all hold the number ``x``
``FOUR  EIGHT  SIXTEEN``              numbers that such lanes hold: the step of a loop over them
``entry(array, index)``               one entry of an array
``load(array, index, like)``          neighbouring entries from an index on, as many as ``like``
``store(array, index, lanes)``        writes lanes to neighbouring entries
``+ - * /``                           lane by lane; a single number stands for as many equal ones
``smaller  larger  where_less``       min, max and ``yes if a < b else no``, lane by lane
``exponential(x)``                    exp(x) for x <= 0; 0 below ``NEGLIGIBLE``
``logarithm(x)``                      log(x) for x >= 0
``lane_sum(lanes)``                   the sum of all lanes
``over_goals(part, first, end, ...)`` calls ``part`` for all goals of a range, 8 or 4 at a time
====================================  ===========================================================

There are two implementations. ``simd_llvm`` maps lanes to LLVM's vectors by numba's extension
interface; it is used by default. ``simd_plain`` is ordinary numba with one number per lane group
(FOUR = EIGHT = SIXTEEN = 1) and is used where the environment has ``EMPO_PLAIN_KERNELS=1``: it is
slower, results agree to about 1e-15, and it takes no LLVM to change it. The tests run the
golden problems with both.

Indices are not checked, and arrays must be C-contiguous.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from empo_exact.simd_plain import Lanes as Lanes
from empo_worlds.compilation import Function, compiled, inlined

PLAIN_KERNELS = os.environ.get("EMPO_PLAIN_KERNELS") == "1"

if TYPE_CHECKING or PLAIN_KERNELS:
    from empo_exact import simd_plain as primitives
else:
    from empo_exact import simd_llvm as primitives

FOUR, EIGHT, SIXTEEN = primitives.FOUR, primitives.EIGHT, primitives.SIXTEEN
four, eight, sixteen = primitives.four, primitives.eight, primitives.sixteen
entry, load, store = primitives.entry, primitives.load, primitives.store
smaller, larger, where_less = primitives.smaller, primitives.larger, primitives.where_less
exponential, logarithm = primitives.exponential, primitives.logarithm
lane_sum = primitives.lane_sum


def kernel(function: Function) -> Function:
    """The function compiled on first use; decorates what Python calls.

    Only the default implementation is kept on disk: the other one would take its place there.
    """
    return compiled(function, on_disk=not PLAIN_KERNELS)


@inlined
def over_goals(part: Callable[..., Any], first: int, end: int, *args: Any) -> None:
    """Call ``part(goal, zero, *args)`` for all goals of a range, as many at a time as there are.

    Args:
        part: Computes for the goals from ``goal`` on, as many as ``zero`` has lanes, all 0.
        first: First goal, a multiple of ``FOUR``.
        end: End of the range, likewise.
        *args: Further arguments of ``part``.
    """
    wide = first + (end - first) // EIGHT * EIGHT
    for goal in range(first, wide, EIGHT):
        part(goal, eight(0.0), *args)
    for goal in range(wide, end, FOUR):
        part(goal, four(0.0), *args)
