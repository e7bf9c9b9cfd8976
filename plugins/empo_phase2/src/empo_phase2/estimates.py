"""Estimates of all quantities in states of a world, from networks and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_phase2.experience import TimedStates
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, policy_of
from empo_phase2.state_queries import StateEncoder
from empo_phase2.targets import one_step_q_r

AT_ONCE = 4096
"""States whose rewards are computed at the same time."""


@dataclass(frozen=True, slots=True)
class ValueEstimates:
    """Estimates of all quantities in some states.

    Attributes:
        v_r: V_r.
        q_r: Q_r of each joint robot action; NaN where one is not available.
        pi_r: The robots' policy.
        u_r: U_r.
        x_h: X_h of each human.
        v_h_e: V_h^e of each goal of the world.
    """

    v_r: Float[Tensor, " state"]
    q_r: Float[Tensor, "state robot_action"]
    pi_r: Float[Tensor, "state robot_action"]
    u_r: Float[Tensor, " state"]
    x_h: Float[Tensor, "state human"]
    v_h_e: Float[Tensor, "state goal"]

    def expected(self, prob: Float[Tensor, " state"]) -> ValueEstimates:
        """Expectations where the state is random, as those of one state."""
        if len(prob) == 1:
            return self
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return ValueEstimates(
            **{name: (prob.to(part.dtype) @ part)[None] for name, part in parts.items()}
        )


class ValueEstimator:
    """Estimates all quantities in states of a world, at the theory's final parameters."""

    def __init__(self, quantities: Quantities, encoder: StateEncoder, device: str = "cpu") -> None:
        """Read all quantities anew each time, so that they may go on learning.

        The encoder must add successors where Q_r is not learned.
        """
        if "q_r" not in quantities.networks and not encoder.has_successors:
            raise ValueError("where Q_r is not learned, the encoder needs a human prior")
        self._quantities, self._encoder, self._device = quantities, encoder, device

    @torch.no_grad()
    def __call__(
        self, rows: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> ValueEstimates:
        """Estimates in non-terminal states of the encoder's world."""
        states, transitions = self._encoder(rows, steps_left)
        states, transitions = states.to(self._device), transitions.to(self._device)
        sources = TimedStates.of(states.at(transitions.state), transitions.steps_left)
        quantities, available = self._quantities, sources.available
        theory = quantities.theory
        with quantities.evaluating():
            values = quantities.forward(sources)
            q_r, v_r = values.get("q_r"), values.get("v_r")
            if q_r is None:
                profiles = HumanProfiles(quantities.spec, quantities.goals)
                q_r = one_step_q_r(states, transitions, quantities, profiles, theory.gamma_r)
        pi_r = policy_of(q_r, available, theory.beta_r)
        if v_r is None:
            v_r = quantities.closed_form_v_r(sources, values["u_r"], q_r, pi_r)
        q_r = q_r.masked_fill(~available, math.nan)
        v_h_e = self._by_goal(values["v_h_e"])
        parts = (v_r, q_r, pi_r, values["u_r"], values["x_h"], v_h_e)
        return ValueEstimates(*(part.cpu() for part in parts))

    def _by_goal(self, by_slot: Tensor) -> Tensor:
        """Values of slots, in the order of the world's goals."""
        goal = self._encoder.goals.goal[0].to(by_slot.device)
        values = by_slot.new_zeros(len(by_slot), len(self._encoder.world.spec.goals))
        # Goals of an ensemble count those of its first world first.
        values[:, goal[goal >= 0]] = by_slot[:, goal >= 0]
        return values


class LearnedReward:
    """U_r of networks and tables; see ``empo_core.protocols.IntrinsicReward``."""

    def __init__(self, quantities: Quantities, encoder: StateEncoder, device: str = "cpu") -> None:
        """Read all quantities anew each time; the encoder need not add successors."""
        self._quantities, self._encoder, self._device = quantities, encoder, device

    @torch.no_grad()
    def __call__(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, " state"]:
        """U_r of states from which an episode goes on."""
        parts = [torch.zeros(0)]
        with self._quantities.evaluating():
            for first in range(0, len(states), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                distinct, encoded = self._encoder(states[part], steps_left[part])
                distinct = distinct.to(self._device)
                timed = TimedStates.of(
                    distinct.at(encoded.state.to(self._device)), steps_left[part].to(self._device)
                )
                v_h_e = self._quantities.v_h_e(timed)
                u_r = self._quantities.u_r(timed, self._quantities.x_h(timed, v_h_e))
                parts.append(u_r.cpu())
        return torch.cat(parts)
