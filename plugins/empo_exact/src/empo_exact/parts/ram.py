"""RAM and disk of a solve in parts, and refusals of what cannot fit; see ``empo_exact.ram``."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

from empo_core.errors import SolveError
from empo_exact.game import goal_order
from empo_exact.plugin import ExactParams
from empo_exact.ram import (
    GIB,
    LEAST_ROOM,
    SHARE,
    Sizes,
    block_bytes,
    limit,
    payoff_bytes,
    ram_bytes,
    refuse_disk,
    remaining_bytes,
    spilled_disk_bytes,
    state_bytes,
    used_bytes,
)

HALO = 5
"""States of other parts that follow those of one, for each of its own; an upper bound."""
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h.


def return_freed() -> None:
    """Let freed arrays go back to the system at once, where its C library can be told so.

    GNU's otherwise keeps what it thinks will be needed again, and a limit could not be held.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def parts_needed(sizes: Sizes, params: ExactParams) -> int:
    """Parts into which a graph has to be cut, so that one after another fits into RAM.

    Raises:
        SolveError: if no number of parts would fit.
    """
    used, allowed = used_bytes(), _share_of_limit(params)
    free = int(SHARE * (allowed - used))
    free_to_build = free - block_bytes(sizes, params)
    if free_to_build < LEAST_ROOM:
        raise SolveError(
            f"{sizes.spec.name!r} has {sizes.states} states; with them this process holds "
            f"{used / GIB:.2f} of {allowed / GIB:.2f} GiB. To solve it in parts takes "
            f"{(LEAST_ROOM + block_bytes(sizes, params)) / GIB:.2f} GiB more: raise "
            "compute.ram_limit_gb or use a smaller max_steps."
        )
    num_parts = max(
        -(-_spilled_bytes(sizes, params) // free), -(-_building_bytes(sizes) // free_to_build)
    )
    return min(sizes.states, num_parts)


def _building_bytes(sizes: Sizes) -> int:
    """Bytes that the parts take at most, each while its transitions are worked out, added up."""
    pairs = sizes.expanded * sizes.spec.num_joint_actions
    # Targets and successors, codes, all but the last twice; counts of each pair, and offsets.
    return 16 * sizes.transitions + 16 * pairs


def _spilled_bytes(sizes: Sizes, params: ExactParams) -> int:
    """Bytes that the parts take at most, each while it is swept, added up."""
    spec = sizes.spec
    # One graph is in use, the next one is read. Values: of two times, and those that are written.
    row = 3 * state_bytes(spec, params) + 2 * len(goal_order(spec))
    row += (1 + HALO) * payoff_bytes(spec, params)
    return 2 * sizes.graph_bytes + sizes.states * row


def _share_of_limit(params: ExactParams) -> int:
    """Bytes that each process may hold: a limit that was set is for each of them."""
    shared = params.compute.processes if params.compute.ram_limit_gb is None else 1
    return limit(params) // shared


def check_share(sizes: Sizes, params: ExactParams, parts: int, processes: int) -> None:
    """Refuse parts in RAM whose share of the values does not fit beside what was explored.

    Raises:
        SolveError: if the share does not fit, with what is needed, what there is, and what to do.
    """
    # What was found is forgotten with the last part that a process makes of it.
    twice = sizes.graph_bytes if parts > processes else 0
    whole = max(remaining_bytes(sizes, params), twice)
    needed_bytes, allowed = used_bytes() + whole // processes, _share_of_limit(params)
    if needed_bytes > allowed:
        raise SolveError(
            f"solving {sizes.spec.name!r} ({sizes.states} states, {sizes.transitions} transitions) "
            f"needs {needed_bytes / GIB:.2f} GiB in each of {processes} processes; the limit is "
            f"{allowed / GIB:.2f} GiB. Set compute.graph: spill, use more processes on other "
            "machines, a smaller max_steps, or raise compute.ram_limit_gb."
        )


def check_spill(sizes: Sizes, directory: Path) -> None:
    """Refuse to spill what does not fit onto the disk beside what was found.

    Raises:
        SolveError: if the solve does not fit, with what is needed, what there is, and what to do.
    """
    more = spilled_disk_bytes(sizes) - sizes.graph_bytes
    refuse_disk(sizes, more, directory, "Run it on another disk")


def check_merge(sizes: Sizes, params: ExactParams) -> None:
    """Refuse to bring together in RAM what does not fit.

    Raises:
        SolveError: if the merged result does not fit, with what is needed, what there is, and what
            to do.
    """
    # Until then the values of all times are in RAM, unless they are in files.
    merged_params = (
        params if params.compute.graph == "spill" else params.model_copy(update={"keep": "all"})
    )
    needed_bytes, allowed = used_bytes() + ram_bytes(sizes, merged_params), limit(params)
    if needed_bytes > allowed:
        raise SolveError(
            f"keep: {params.keep} brings the parts of {sizes.spec.name!r} together, which needs "
            f"{needed_bytes / GIB:.2f} GiB; the limit is {allowed / GIB:.2f} GiB. Set keep: none."
        )
