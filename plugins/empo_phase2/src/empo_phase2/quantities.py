"""The five quantities in timed states: from networks, or in closed form from each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import Aggregator, ValueNetwork
from empo_core.types import Quantity, Segments, ValueQuery, WorldSpec
from empo_learning.finite import check_finite
from empo_phase2.experience import TimedStates
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Theory
from empo_theory.equations import robot_policy

LEAST_Q = -1e-10
"""Estimates of Q_r are lowered to this before their logarithm is taken."""


class Quantities:
    """Values of timed states according to one set of networks.

    Attributes:
        networks: The learned quantities; all others are computed in closed form.
        spec: Shape and meaning of the rows of ``States``.
        goals: The goals, by slot.
        theory: Parameters of the theory.
        aggregate: Takes all sums over successors and over humans.
    """

    def __init__(
        self,
        networks: Mapping[Quantity, ValueNetwork],
        spec: WorldSpec,
        goals: GoalIndex,
        theory: Phase2Theory,
        aggregate: Aggregator,
    ) -> None:
        self.networks = networks
        self.spec, self.goals, self.theory, self.aggregate = spec, goals, theory, aggregate
        # A slot without a goal asks for goal 0; its value has no weight anywhere.
        self._goal_asked = goals.goal.clamp(min=0)
        self._only_goals = self._goal_asked[0]
        # A goal of weight 0 counts as much as any other where weights do not matter.
        self._weight = (goals.goal >= 0).to(goals.weight) if theory.x_agg == "sum" else goals.weight
        self._humans = torch.tensor(spec.humans, device=goals.human.device)
        self._human_of_slot = self._humans[goals.human]
        self._belongs = goals.human[:, None] == torch.arange(
            len(spec.humans), device=goals.human.device
        )

    def by(self, networks: Mapping[Quantity, ValueNetwork]) -> Quantities:
        """The same quantities according to other networks."""
        return Quantities(networks, self.spec, self.goals, self.theory, self.aggregate)

    def published(self) -> dict[str, Tensor]:
        """Weights that actors act with, on the CPU, named ``<quantity>.<parameter>``.

        Raises:
            NonFiniteError: if a weight is not finite.
        """
        quantity: Quantity = "q_r" if "q_r" in self.networks else "v_r"
        state = self.networks[quantity].state_dict()
        # Copies, because the network goes on learning while actors read them.
        weights = {
            f"{quantity}.{name}": tensor.detach().to("cpu", copy=True)
            for name, tensor in state.items()
        }
        check_finite(weights, "a weight to be published")
        return weights

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Networks in evaluation mode, e.g. without dropout, and back as they were."""
        training = [network for network in self.networks.values() if network.training]
        for network in training:
            network.eval()
        try:
            yield
        finally:
            for network in training:
                network.train()

    def v_h_e(self, states: TimedStates) -> Float[Tensor, "distinct slot"]:
        """V_h^e of each timed state and slot; 0 where the episode is over."""
        values = self.networks["v_h_e"](self.goal_query(states)).view(len(states), -1)
        return values.masked_fill(~states.alive[:, None], 0.0)

    def goal_query(self, states: TimedStates) -> ValueQuery:
        """One query per timed state and slot."""
        return ValueQuery(
            states.states.rows,
            states.steps_left,
            _tiled(self._human_of_slot, len(states)),
            self._goals_asked(states),
            _state_index(states, len(self._human_of_slot)),
            states.memo,
        )

    def _goals_asked(self, states: TimedStates) -> Int[Tensor, " query"]:
        """The goal of each slot of each timed state."""
        if len(self._goal_asked) == 1:
            return _tiled(self._only_goals, len(states))
        return self._goal_asked[states.states.layout].flatten()

    def human_query(self, states: TimedStates) -> ValueQuery:
        """One query per timed state and human."""
        humans = len(self._humans)
        return ValueQuery(
            states.states.rows,
            states.steps_left,
            _tiled(self._humans, len(states)),
            None,
            _state_index(states, humans),
            states.memo,
        )

    def x_h(
        self, states: TimedStates, v_h_e: Float[Tensor, "distinct slot"]
    ) -> Float[Tensor, "distinct human"]:
        """X_h of each timed state and human."""
        if "x_h" not in self.networks:
            return self.power(states, v_h_e)
        return self.networks["x_h"](self.human_query(states)).view(len(states), -1)

    def power(
        self, states: TimedStates, v_h_e: Float[Tensor, "distinct slot"]
    ) -> Float[Tensor, "distinct human"]:
        """X_h in closed form, equation (7)."""
        weight = self._weight[states.states.layout].to(v_h_e.dtype)
        return (weight * v_h_e**self.theory.zeta) @ self._belongs.to(v_h_e.dtype)

    def u_r(
        self, states: TimedStates, x_h: Float[Tensor, "distinct human"]
    ) -> Float[Tensor, " distinct"]:
        """U_r of each timed state."""
        if "u_r" not in self.networks:
            return self.reward(x_h)
        return self.networks["u_r"](state_query(states))[:, 0]

    def reward(self, x_h: Float[Tensor, "distinct human"]) -> Float[Tensor, " distinct"]:
        """U_r in closed form, equation (8), no X_h counting as less than ``x_h_floor``."""
        theory, (count, humans) = self.theory, x_h.shape
        x_h = x_h.clamp(min=theory.x_h_floor)
        offsets = torch.arange(0, count * humans + 1, humans, device=x_h.device)
        segments = Segments(offsets, _repeated(count, humans, x_h.device))
        lack = self.aggregate((x_h**-theory.xi).flatten(), segments, reduction=theory.u_agg)
        return -(lack**theory.eta)

    def q_r(self, states: TimedStates) -> Float[Tensor, "distinct robot_action"]:
        """Q_r of each timed state and joint robot action, where it is learned."""
        return self.networks["q_r"](state_query(states))

    def v_r(
        self,
        states: TimedStates,
        u_r: Float[Tensor, " distinct"] | None = None,
        q_r: Float[Tensor, "distinct robot_action"] | None = None,
        pi_r: Float[Tensor, "distinct robot_action"] | None = None,
    ) -> Float[Tensor, " distinct"]:
        """V_r of each timed state; what it is made of is needed where it is not learned."""
        if "v_r" in self.networks:
            values = self.networks["v_r"](state_query(states))[:, 0]
        else:
            assert u_r is not None
            assert q_r is not None
            assert pi_r is not None
            values = mean_value(u_r, q_r, pi_r)
        return values.masked_fill(~states.alive, self.theory.terminal_value)


def state_query(states: TimedStates) -> ValueQuery:
    """One query per timed state."""
    return ValueQuery(states.states.rows, states.steps_left, memo=states.memo)


def _state_index(states: TimedStates, times: int) -> Int[Tensor, " query"]:
    """The position of each timed state, so many times in a row."""
    return _repeated(len(states), times, states.steps_left.device)


@lru_cache(maxsize=16)
def _repeated(count: int, times: int, device: torch.device) -> Int[Tensor, " item"]:
    """Shared by all who ask, so not to be written to."""
    return torch.arange(count, device=device).repeat_interleave(times)


@lru_cache(maxsize=16)
def _tiled(index: Int[Tensor, " slot"], times: int) -> Int[Tensor, " query"]:
    """Shared likewise."""
    return index.repeat(times)


def mean_value(
    u_r: Float[Tensor, " distinct"],
    q_r: Float[Tensor, "distinct robot_action"],
    pi_r: Float[Tensor, "distinct robot_action"],
) -> Float[Tensor, " distinct"]:
    """V_r in closed form, equation (9); Q_r of actions that are never taken is not read."""
    # Not "pi_r > 0", which would hide a NaN.
    return u_r + torch.where(pi_r == 0, 0.0, pi_r * q_r).sum(-1)


def policy_of(
    q_r: Float[Tensor, "distinct robot_action"],
    available: Bool[Tensor, "distinct robot_action"],
    beta_r: float,
) -> Float[Tensor, "distinct robot_action"]:
    """The robots' power-law policy, equation (5); even where the episode is over."""
    nothing = ~available.any(-1, keepdim=True)
    return robot_policy(q_r.clamp(max=LEAST_Q), beta_r, available | nothing)
