"""Checks of blocks and saved replays, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from empo_core.errors import ConfigError, NonFiniteError
from empo_phase2.experience import Block
from empo_phase2.replay.shape import ReplayShape


def check_block(
    block: Block, *, capacity: int, policy: tuple[int, ...], shape: ReplayShape
) -> Int64[np.ndarray, " pair"]:
    """Number of successors of each pair of a block, after checking it.

    ``policy`` is the shape of the humans' policies in a transition.

    Raises:
        ConfigError: if the block was made for another replay, or is too large.
        ValueError: if the block contradicts itself.
        NonFiniteError: if a probability is infinite or NaN.
    """
    new, count = block.transitions, len(block.transitions)
    if count > capacity:
        raise ConfigError(
            f"replay.capacity: {capacity} transitions are fewer than the {count} that arrive at "
            "once; raise it"
        )
    # Where no policies are kept, it does not matter how long they would be.
    policies = new.human_policy if policy[0] else new.human_policy[..., : policy[1]]
    for name, tensor, expected in (
        ("human_policy", policies, (count, *policy)),
        ("acts_for", new.acts_for, (count, shape.slots)),
        ("human_action", new.human_action, (count, shape.humans)),
        ("behaviour", new.behaviour, (count, shape.behaviour_actions)),
        ("offsets", new.offsets, (count * shape.pairs + 1,)),
    ):
        if tensor.shape != expected:
            raise ConfigError(
                f"replay: {name} of a block has shape {tuple(tensor.shape)} where the replay was "
                f"built for {expected}"
            )
    for name, probs in (
        ("successors", new.prob),
        ("the humans' policies", new.human_policy),
        ("the behaviour policy", new.behaviour),
    ):
        # Any of them that is not finite makes the sum so.
        if not torch.isfinite(probs.sum()):
            raise NonFiniteError(f"a probability of {name} in a block is infinite or NaN")
    states = len(block.states.rows)
    for name, positions, limit in (
        ("state", new.state, states),
        ("next", new.next, states),
        ("successor", new.successor, states),
    ):
        array = positions.numpy()
        # Negative ones are huge without their sign.
        if int(array.view(f"u{array.itemsize}").max(initial=0)) >= limit:
            raise ValueError(
                f"{name} of a block goes from {array.min()} to {array.max()}; it must be at least "
                f"0 and below {limit}"
            )
    offsets = new.offsets.numpy()
    counts = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(new.successor) or counts.min(initial=0) < 0:
        raise ValueError("offsets of a block must rise from 0 to its number of successors")
    return counts


def check_tree(current: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Compare the shape of a saved replay with that of one that is to continue it.

    Raises:
        ConfigError: if the shapes differ.
    """
    paths = [
        ("record",),
        ("policy",),
        ("acts_for",),
        ("behaviour",),
        ("pool", "counts"),
        ("states", "keys"),
        ("states", "bits"),
    ]
    shapes = [("capacity", current["capacity"], tree["capacity"])]
    for path in paths:
        mine, saved = (tuple(_entry(of, path).shape[1:]) for of in (current, tree))
        shapes.append((path[-1], mine, saved))
    for name, mine, saved in shapes:
        if mine != saved:
            raise ConfigError(
                f"the saved replay has {name} {saved} where this one has {mine}; resume with the "
                "world and the replay parameters of the run that saved it"
            )


def _entry(tree: Any, path: tuple[str, ...]) -> Any:
    """The entry at a path of a tree."""
    for key in path:
        tree = tree[key]
    return tree
