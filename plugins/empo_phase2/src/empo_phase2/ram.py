"""RAM that a training step takes."""

from __future__ import annotations

import math

from empo_core.types import WorldSpec
from empo_phase2.quantities import BLOCK_NUMBERS, QUERY_NUMBERS, block_size
from empo_phase2.target_cache import MOST_NUMBERS

COPIES = 4
"""Numbers that are held at a time for each feature and hidden unit: inputs, outputs, gradients."""
ITEM_BYTES, SLOT_BYTES = 100, 12
"""RAM per successor of a batch, and more for each goal of it."""
STATE_BYTES, VALUE_BYTES = 100, 24
"""RAM per distinct state of a batch, and more for each of its values."""
MOMENTS = 4
"""Gradient and moments of Adam, per weight; AMSGrad has three."""


def step_bytes(
    spec: WorldSpec, slots: int, *, batch: int, items: float, states: float, weights: int
) -> int:
    """RAM of a training step, roughly, where networks are of their usual size.

    Args:
        spec: What the learner's rows look like.
        slots: Goals of a state.
        batch: Transitions of a step.
        items: Successors per transition.
        states: Distinct states per transition, itself among them.
        weights: Numbers that all networks learn.
    """
    distinct = math.ceil(batch * states)
    numbers = BLOCK_NUMBERS // block_size(spec, slots)
    valued = COPIES * 4 * numbers * min(distinct, block_size(spec, slots))
    fitted = COPIES * 4 * batch * (spec.featurizer.shape.flat + slots * QUERY_NUMBERS)
    ragged = batch * items * (ITEM_BYTES + SLOT_BYTES * slots)
    row = spec.state_words * spec.state_dtype.itemsize
    flat = distinct * (2 * row + STATE_BYTES + VALUE_BYTES * (slots + spec.num_robot_actions))
    optimiser_bytes = 4 * (MOST_NUMBERS + MOMENTS * weights)
    return int(max(valued + ragged + flat, fitted)) + optimiser_bytes
