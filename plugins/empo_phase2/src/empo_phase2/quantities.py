"""The five quantities in timed states: from networks, or in closed form from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import Aggregator, ValueNetwork
from empo_core.trees import StateDict
from empo_core.types import Quantity, Segments, ValueQuery, WorldSpec
from empo_learning.finite import check_finite
from empo_learning.saved_state import tensor_like
from empo_phase2.experience import TimedStates
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Theory
from empo_theory.equations import robot_policy
from empo_worlds.row_table import RowTable

HIGHEST_Q = -1e-10
"""Estimates of Q_r are lowered to this before their logarithm is taken."""

PART_NUMBERS = 2**22
"""About so many numbers are features and hidden units of the states that are valued at a time."""
GPU_PART_NUMBERS = 2**26
"""The same on a GPU, where every further block takes time."""
QUERY_NUMBERS = 128
"""Hidden units of networks for each question about a state: a guess that suits the defaults."""

SYMBOLS = {"v_h_e": "V_h^e", "x_h": "X_h", "u_r": "U_r", "q_r": "Q_r", "v_r": "V_r"}
"""Names of quantities in messages."""

MOST_NUMBERS = 2**21
"""At most about so many values of target networks are kept."""

ValuesByQuantity = dict[str, Tensor]
"""Of timed states, by the name of the quantity, ``[distinct ...]``."""


class Quantities:
    """The five quantities according to one set of networks: their values in timed states.

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
        # A goal of weight 0 counts as much as any other where weights do not matter.
        self._weight = (goals.goal >= 0).to(goals.weight) if theory.x_agg == "sum" else goals.weight
        self._humans = torch.tensor(spec.humans, device=goals.human.device)
        self._human_of_slot = self._humans[goals.human]
        self._belongs = goals.belongs(len(spec.humans))

    def by(self, networks: Mapping[Quantity, ValueNetwork]) -> Quantities:
        """The same quantities according to other networks."""
        return Quantities(networks, self.spec, self.goals, self.theory, self.aggregate)

    def published(self) -> dict[str, Tensor]:
        """Weights that actors act with, on the CPU, named ``<quantity>.<parameter>``.

        Raises:
            NonFiniteError: if a weight is not finite.
        """
        weights = self._weights("q_r" if "q_r" in self.networks else "v_r")
        check_finite(weights, "a weight to be published")
        return weights

    def weights(self) -> dict[str, Tensor]:
        """Weights of all networks, on the CPU, named ``<quantity>.<parameter>``."""
        states = map(self._weights, self.networks)
        return {name: tensor for state in states for name, tensor in state.items()}

    def _weights(self, quantity: Quantity) -> dict[str, Tensor]:
        """Copies, because the network goes on learning while actors read them."""
        state = self.networks[quantity].state_dict()
        return {f"{quantity}.{n}": t.detach().to("cpu", copy=True) for n, t in state.items()}

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

    def parts(self, states: TimedStates) -> Iterator[TimedStates]:
        """The timed states in parts that bound the RAM which valuing them takes."""
        numbers = PART_NUMBERS if states.steps_left.device.type == "cpu" else GPU_PART_NUMBERS
        return states.split(part_size(self.spec, states.achieved.shape[1], numbers))

    def forward(self, states: TimedStates) -> ValuesByQuantity:
        """All values that do not depend on beta_r; each network is asked once for each part."""
        parts: list[ValuesByQuantity] = []
        for part in self.parts(states):
            values = {"v_h_e": self.v_h_e(part)}
            values["x_h"] = self.x_h(part, values["v_h_e"])
            values["u_r"] = self.u_r(part, values["x_h"])
            if "q_r" in self.networks:
                values["q_r"] = self.q_r(part)
            if "v_r" in self.networks:
                values["v_r"] = self.v_r(part)
            parts.append(values)
        return {name: torch.cat([values[name] for values in parts]) for name in parts[0]}

    @property
    def empty(self) -> ValuesByQuantity:
        """What ``forward`` gives for no timed states."""
        slots, humans = self.goals.goal.shape[1], len(self.spec.humans)
        shapes: dict[Quantity, tuple[int, ...]] = {"v_h_e": (slots,), "x_h": (humans,), "u_r": ()}
        if "q_r" in self.networks:
            shapes["q_r"] = (self.spec.num_robot_actions,)
        if "v_r" in self.networks:
            shapes["v_r"] = ()
        weight = next(self.networks["v_h_e"].parameters())
        return {name: weight.new_empty(0, *shape) for name, shape in shapes.items()}

    def query(self, quantity: Quantity, states: TimedStates) -> ValueQuery:
        """One question per timed state; of V_h^e for each of its slots, of X_h for each human."""
        if quantity not in ("v_h_e", "x_h"):
            return ValueQuery(states.rows, states.steps_left, memo=states.memo)
        human, goal = self._humans, None
        if quantity == "v_h_e":
            human, goal = self._human_of_slot, self._goal_asked[states.layout].flatten()
        count = len(states)
        state = torch.arange(count, device=human.device).repeat_interleave(len(human))
        return ValueQuery(
            states.rows, states.steps_left, human.repeat(count), goal, state, states.memo
        )

    def v_h_e(self, states: TimedStates) -> Float[Tensor, "distinct slot"]:
        """V_h^e of each timed state and slot; 0 where the episode is over."""
        v_h_e = self.networks["v_h_e"](self.query("v_h_e", states)).view(len(states), -1)
        return v_h_e.masked_fill(~states.alive[:, None], 0.0)

    def x_h(
        self, states: TimedStates, v_h_e: Float[Tensor, "distinct slot"]
    ) -> Float[Tensor, "distinct human"]:
        """X_h of each timed state and human; 0 where it is learned and the episode is over."""
        if "x_h" not in self.networks:
            return self.closed_form_x_h(states, v_h_e)
        x_h = self.networks["x_h"](self.query("x_h", states)).view(len(states), -1)
        return x_h.masked_fill(~states.alive[:, None], 0.0)

    def closed_form_x_h(
        self, states: TimedStates, v_h_e: Float[Tensor, "distinct slot"]
    ) -> Float[Tensor, "distinct human"]:
        """X_h of each timed state and human by equation (7)."""
        weight = self._weight[states.layout].to(v_h_e.dtype)
        return (weight * v_h_e**self.theory.zeta) @ self._belongs.to(v_h_e.dtype)

    def u_r(
        self, states: TimedStates, x_h: Float[Tensor, "distinct human"]
    ) -> Float[Tensor, " distinct"]:
        """U_r of each timed state; 0 where the episode is over, whose X_h may be 0."""
        if "u_r" in self.networks:
            u_r = self.networks["u_r"](self.query("u_r", states))[:, 0]
        else:
            u_r = self.closed_form_u_r(x_h)
        return u_r.masked_fill(~states.alive, 0.0)

    def closed_form_u_r(self, x_h: Float[Tensor, "distinct human"]) -> Float[Tensor, " distinct"]:
        """U_r by equation (8), no X_h counting as less than ``x_h_floor``."""
        theory, (count, humans) = self.theory, x_h.shape
        x_h = x_h.clamp(min=theory.x_h_floor)
        offsets = torch.arange(0, count * humans + 1, humans, device=x_h.device)
        index = torch.arange(count, device=x_h.device).repeat_interleave(humans)
        segments = Segments(offsets, index)
        lack = self.aggregate((x_h**-theory.xi).flatten(), segments, reduction=theory.u_agg)
        return -(lack**theory.eta)

    def q_r(self, states: TimedStates) -> Float[Tensor, "distinct robot_action"]:
        """Q_r of each timed state and joint robot action, where it is learned; 0 at the end."""
        q_r = self.networks["q_r"](self.query("q_r", states))
        return q_r.masked_fill(~states.alive[:, None], 0.0)

    def v_r(self, states: TimedStates) -> Float[Tensor, " distinct"]:
        """V_r of each timed state, where it is learned."""
        v_r = self.networks["v_r"](self.query("v_r", states))[:, 0]
        return v_r.masked_fill(~states.alive, self.theory.terminal_value)

    def closed_form_v_r(
        self,
        states: TimedStates,
        u_r: Float[Tensor, " distinct"],
        q_r: Float[Tensor, "distinct robot_action"],
        pi_r: Float[Tensor, "distinct robot_action"],
    ) -> Float[Tensor, " distinct"]:
        """V_r of each timed state by equation (9); Q_r of actions never taken is not read."""
        # Not "pi_r > 0", which would hide a NaN.
        v_r = u_r + torch.where(pi_r == 0, 0.0, pi_r * q_r).sum(-1)
        return v_r.masked_fill(~states.alive, self.theory.terminal_value)


class TargetCache:
    """Values of timed states by target networks, each computed once until these networks change.

    They are part of the state of a run: the last digits of a network's answers depend on what
    else it was asked at the same time, so that answers to new questions would be others.

    Attributes:
        values: Those of all timed states so far, in order of first need.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as networks have changed, or what keys mean."""
        self._keys, self.values = RowTable(1, np.dtype(np.int64)), ValuesByQuantity()

    def __len__(self) -> int:
        """Number of timed states."""
        return self._keys.count

    def read(
        self,
        key: Int[Tensor, " distinct"],
        forward: Callable[[Int[Tensor, " new"]], ValuesByQuantity],
    ) -> ValuesByQuantity:
        """The values of timed states, those without any so far being computed.

        Args:
            key: A number for each timed state, every one once.
            forward: From positions in ``key`` to the values of the timed states there.

        Raises:
            NonFiniteError: if one of those is not finite; nothing of them is kept.
        """
        keys = key.cpu().numpy()[:, None]
        place = self._keys.find(keys)
        new = np.flatnonzero(place < 0)
        if len(new):
            columns = sum(values[0].numel() for values in self.values.values())
            if (len(self) + len(new)) * columns > MOST_NUMBERS:
                self.clear()
                new = np.arange(len(keys))
            values = forward(torch.from_numpy(new).to(key.device))
            symbols = {SYMBOLS[quantity]: part for quantity, part in values.items()}
            check_finite(symbols, "what targets are computed from")
            if len(self):
                values = {name: torch.cat([self.values[name], values[name]]) for name in values}
            place[new], self.values = self._keys.number(keys[new]), values
        position = torch.from_numpy(place).to(key)
        return {name: values[position] for name, values in self.values.items()}

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly."""
        key = torch.from_numpy(self._keys.rows[:, 0].copy())
        return {"key": key, "values": dict(self.values)}

    def load_state_dict(self, state_dict: StateDict, empty: ValuesByQuantity) -> None:
        """Restore what ``state_dict`` returned.

        Args:
            state_dict: The keys and the values.
            empty: Values of no timed states, which tell shapes, types and device.

        Raises:
            ValueError: if a key is there twice, or values have another shape or type.
        """
        self.clear()
        key = state_dict["key"]
        key = tensor_like(key, torch.empty(len(key), dtype=torch.int64))
        if not len(key):
            return
        for name, none in empty.items():
            values = tensor_like(
                state_dict["values"][name], none.new_empty(len(key), *none.shape[1:])
            )
            self.values[name] = values.to(none.device)
        self._keys.number(key.numpy()[:, None])
        if len(self) != len(key):
            raise ValueError("a timed state has two values")


def policy_of(
    q_r: Float[Tensor, "distinct robot_action"],
    available: Bool[Tensor, "distinct robot_action"],
    beta_r: float,
) -> Float[Tensor, "distinct robot_action"]:
    """The robots' power-law policy, equation (5); even where the episode is over."""
    nothing = ~available.any(-1, keepdim=True)
    return robot_policy(q_r.clamp(max=HIGHEST_Q), beta_r, available | nothing)


def part_size(spec: WorldSpec, slots: int, numbers: int = PART_NUMBERS) -> int:
    """How many states are valued at a time; fewer, the more numbers each of them takes."""
    return max(1, numbers // (spec.featurizer.shape.flat + QUERY_NUMBERS * slots))
