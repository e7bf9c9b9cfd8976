"""Comparison of transitions that were stored with what the world says."""

from __future__ import annotations

import numpy as np
import torch

from empo_exact.expansion import Expand
from empo_exact.parts.exploration import blocks_of
from empo_exact.parts.sweeps import Parts
from empo_exact.transition_arrays import chances


def difference(parts: Parts, expand: Expand) -> str | None:
    """What the world says otherwise than the stored graph, in any state; None: nothing.

    Args:
        parts: The parts that are stored.
        expand: Expands blocks of states of the world.
    """
    world = parts.world
    name, joint = repr(world.spec.name), world.spec.num_joint_actions
    for part in parts.numbers:
        graph, achieved = parts.graph_and_goals(part)
        if not np.array_equal(world.achieved(torch.from_numpy(graph.states)).numpy(), achieved):
            return f"goals of {name} are achieved in other states than when files were written"
        rows, first = graph.states[: graph.num_expanded], 0
        for expansion in expand(blocks_of(rows, joint)):
            last = first + expansion.num_pairs
            offsets, index = graph.offsets[first : last + 1], expansion.index.numpy()
            items = slice(int(offsets[0]), int(offsets[-1]))
            if not (
                np.array_equal(np.diff(offsets), np.diff(expansion.offsets.numpy()))
                and np.array_equal(
                    graph.states[graph.successor[items]], expansion.states.numpy()[index]
                )
                and np.array_equal(parts.codes[graph.code[items]], chances(expansion)[index])
            ):
                return f"{name} has other transitions than when files were written"
            first = last
    return None
