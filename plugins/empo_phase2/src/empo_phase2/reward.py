"""The robots' intrinsic reward U_r as it was learned."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_phase2.experience import TimedStates
from empo_phase2.quantities import Quantities
from empo_phase2.state_queries import StateEncoder

AT_ONCE = 4096
"""States whose rewards are computed at the same time."""


class LearnedReward:
    """U_r of networks and tables; see ``empo_core.protocols.IntrinsicReward``."""

    def __init__(self, values: Quantities, encoder: StateEncoder, device: str = "cpu") -> None:
        """Read all quantities anew each time; the encoder need not add successors."""
        self._values, self._encoder, self._device = values, encoder, device

    @torch.no_grad()
    def __call__(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, " state"]:
        """U_r of states from which an episode goes on."""
        parts = [torch.zeros(0)]
        with self._values.evaluating():
            for first in range(0, len(states), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                distinct, encoded = self._encoder(states[part], steps_left[part])
                distinct = distinct.to(self._device)
                timed = TimedStates.of(
                    distinct.at(encoded.state.to(self._device)), steps_left[part].to(self._device)
                )
                v_h_e = self._values.v_h_e(timed)
                u_r = self._values.u_r(timed, self._values.x_h(timed, v_h_e))
                parts.append(u_r.cpu())
        return torch.cat(parts)
