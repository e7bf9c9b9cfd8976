"""Networks of a config, and the behaviour policy of actors."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.components import build
from empo_core.config import ValueNetworkRef
from empo_core.protocols import Aggregator, ValueNetwork, Weights
from empo_core.types import Quantity, WorldSpec
from empo_learning.finite import check_finite
from empo_phase2.experience import States, TimedStates, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import QUANTITIES, Phase2Params, Values
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, policy_of
from empo_phase2.targets import one_step_q_r


def build_networks(representations: Values, spec: WorldSpec) -> dict[Quantity, ValueNetwork]:
    """A fresh network for every learned quantity, encoders shared where they can be."""
    networks: dict[Quantity, ValueNetwork] = {}
    for quantity in QUANTITIES:
        reference: ValueNetworkRef | None = getattr(representations, quantity)
        if reference is not None:
            networks[quantity] = build(reference, spec, quantity)
    for quantity, network in networks.items():
        if quantity != "v_h_e":
            network.share(networks["v_h_e"])
    return networks


class RobotBehaviour:
    """The robots' power-law policy of the latest published weights; uniform before the first.

    Attributes:
        quantity: The quantity it is computed from: Q_r, or V_r where Q_r is in closed form.
        network: The network of that quantity.
    """

    def __init__(self, params: Phase2Params, spec: WorldSpec, slots: GoalIndex) -> None:
        self.quantity: Quantity = "v_r" if params.values.q_r is None else "q_r"
        self._theory = params.theory
        self.network = build_networks(params.values, spec)[self.quantity]
        aggregate: Aggregator = build(params.aggregator)
        self._profiles = HumanProfiles(spec, slots)
        self._quantities = Quantities(
            {self.quantity: self.network}, spec, slots, params.theory, aggregate
        )
        self.network.eval()

    def load(self, weights: Weights) -> None:
        """Act with these weights, named ``<quantity>.<parameter>``; others are not looked at.

        Raises:
            NonFiniteError: if a weight is not finite; the robot goes on acting with its weights of
                before.
        """
        prefix = f"{self.quantity}."
        of_quantity: dict[str, Any] = {
            name.removeprefix(prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(prefix)
        }
        check_finite(of_quantity, f"a weight of {self.quantity} to act with")
        self.network.load_state_dict(of_quantity)

    @torch.no_grad()
    def policy(
        self, states: States, transitions: Transitions, beta_r: float
    ) -> Float[Tensor, "transition robot_action"]:
        """Probability of each joint robot action where some transitions start.

        What can follow is only read where Q_r is in closed form.
        """
        q_r, sources = self.q_r(states, transitions)
        return policy_of(q_r, sources.available, beta_r)

    @torch.no_grad()
    def q_r(
        self, states: States, transitions: Transitions
    ) -> tuple[Float[Tensor, "transition robot_action"], TimedStates]:
        """Q_r where some transitions start, and these timed states."""
        sources = TimedStates.of(states.at(transitions.state), transitions.steps_left)
        if self.quantity == "q_r":
            return self._quantities.q_r(sources), sources
        q_r = one_step_q_r(
            states, transitions, self._quantities, self._profiles, self._theory.gamma_r
        )
        return q_r, sources
