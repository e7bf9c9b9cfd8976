"""All values of timed states, from one forward pass per network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.types import WorldSpec
from empo_phase2.experience import TimedStates
from empo_phase2.quantities import Quantities, policy_of
from empo_phase2.target_cache import Values

BLOCK_NUMBERS = 2**22
"""About so many numbers are features and hidden units of the states that are valued at a time."""
GPU_BLOCK_NUMBERS = 2**26
"""The same on a GPU, where every further block takes time."""
QUERY_NUMBERS = 128
"""Hidden units of networks for each question about a state: a guess that suits the defaults."""


@dataclass(frozen=True, slots=True)
class ForwardValues:
    """Values of the distinct timed states, from one forward pass per network.

    Attributes:
        v_h_e: V_h^e of each goal slot.
        x_h: X_h of each human.
        u_r: U_r.
        q_r: Q_r; None where it is not learned.
        pi_r: The robots' policy; None where Q_r is not learned.
        v_r: V_r.
    """

    v_h_e: Float[Tensor, "distinct slot"]
    x_h: Float[Tensor, "distinct human"]
    u_r: Float[Tensor, " distinct"]
    q_r: Float[Tensor, "distinct robot_action"] | None
    pi_r: Float[Tensor, "distinct robot_action"] | None
    v_r: Float[Tensor, " distinct"]


def forward(
    states: TimedStates,
    values: Quantities,
    beta_r: float,
    lookup: Callable[[Callable[[TimedStates], Values]], Values] | None = None,
) -> ForwardValues:
    """Stage 3: all values of the distinct timed states."""
    value = partial(lasting_values, values=values)
    columns = value(states) if lookup is None else lookup(value)
    q_r, pi_r, v_r = columns.get("q_r"), None, columns.get("v_r")
    if q_r is not None:
        pi_r = policy_of(q_r, states.states.available, beta_r)
    if v_r is None:
        v_r = values.v_r(states, columns["u_r"], q_r, pi_r)
    return ForwardValues(columns["v_h_e"], columns["x_h"], columns["u_r"], q_r, pi_r, v_r)


def lasting_values(states: TimedStates, values: Quantities) -> Values:
    """Values that do not depend on beta_r, by name."""
    parts = [_values(block, values) for block in blocks(states, values)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _values(states: TimedStates, values: Quantities) -> Values:
    """The same of one block; each network is asked once."""
    columns = {"v_h_e": values.v_h_e(states)}
    columns["x_h"] = values.x_h(states, columns["v_h_e"])
    columns["u_r"] = values.u_r(states, columns["x_h"])
    for name, ask in {"q_r": values.q_r, "v_r": values.v_r}.items():
        if name in values.networks:
            columns[name] = ask(states)
    return columns


def blocks(states: TimedStates, values: Quantities) -> Iterator[TimedStates]:
    """The states in blocks that bound the RAM which valuing them takes."""
    numbers = BLOCK_NUMBERS if states.steps_left.device.type == "cpu" else GPU_BLOCK_NUMBERS
    return states.split(block_size(values.spec, states.states.achieved.shape[1], numbers))


def block_size(spec: WorldSpec, slots: int, numbers: int = BLOCK_NUMBERS) -> int:
    """How many states are valued at a time; fewer, the more numbers each of them takes."""
    return max(1, numbers // (spec.featurizer.shape.flat + QUERY_NUMBERS * slots))
