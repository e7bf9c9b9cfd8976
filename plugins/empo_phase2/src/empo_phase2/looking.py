"""States of a world as a learner sees them, and what it has learned about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import Aggregator, HumanPrior, WorldModel
from empo_phase2.ensemble import members_of, slots_of
from empo_phase2.experience import States, Transitions
from empo_phase2.memories import RememberedPrior
from empo_phase2.params import Theory
from empo_phase2.profiles import HumanProfiles
from empo_phase2.quantities import Quantities, Situations, policy_of
from empo_phase2.recording import Recorder
from empo_phase2.successions import PairOrder
from empo_phase2.targets import look_ahead

Data = TypeVar("Data", States, Transitions)
AT_ONCE = 4096
"""States whose rewards are worked out at the same time."""


class Lookout:
    """Looks at states of a world as a learner gets them, and at all that can follow.

    Attributes:
        world: The world whose states it looks at; of an ensemble, the first.
        slots: The goals as the learner counts them.
        looks_ahead: Whether it tells what can follow.
    """

    def __init__(self, world: WorldModel, store: str, prior: HumanPrior | None) -> None:
        """Prepare for a world.

        Args:
            world: The world, or the ensemble, that was learned in.
            store: ``"rows"`` or ``"compact"``.
            prior: How its humans act; None tells nothing about what can follow.
        """
        self.world, self.slots = members_of(world)[0], slots_of(world)
        self.looks_ahead = prior is not None
        self._whole = world
        self._order = PairOrder(world.spec)
        self._recorder = Recorder(world, self.slots, self._order, store)
        self._prior = None if prior is None else RememberedPrior(prior, world.spec, self.slots)

    def __call__(
        self, rows: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> tuple[States, Transitions]:
        """What is known about states, and transitions that start there, in the same order.

        Args:
            rows: Non-terminal states of ``world``.
            steps_left: Remaining steps of each.

        Returns:
            The transitions say what everybody might do; nothing has really happened in them.
        """
        rows = self._whole_rows(rows)
        self._recorder.start()
        state, count = self._recorder.number(rows), len(rows)
        policy = torch.zeros(count, 0, 0)
        offsets = torch.zeros(count * self._order.robot_actions + 1, dtype=torch.int64)
        successor, prob = offsets[:0], torch.zeros(0)
        if self._prior is not None:
            layout = torch.zeros(count, dtype=torch.int64)
            policy = self._prior(rows, steps_left, layout)
            found = self._order.arranged(self._whole.transitions(rows), count)
            successor = self._recorder.number(found.states)
            offsets, prob = found.offsets, found.prob.float()
        nobody = torch.zeros(count, len(self._whole.spec.humans), dtype=torch.int64)
        transitions = Transitions(
            state=state,
            steps_left=steps_left,
            human_policy=policy,
            goal=nobody,
            human_action=nobody,
            action=torch.zeros_like(state),
            next=state,
            offsets=offsets,
            successor=successor,
            prob=prob,
        )
        return self._recorder.states(), transitions

    def stored(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state stored_word"]:
        """Rows of ``world`` as the learner gets them."""
        return self._recorder.stored(self._whole_rows(rows))

    def _whole_rows(self, rows: Tensor) -> Tensor:
        """Rows of the first world as rows of the ensemble, where there is one."""
        if self._whole is self.world:
            return rows
        whole = torch.zeros(
            len(rows), self._whole.spec.state_words, dtype=self._whole.spec.state_dtype
        )
        whole[:, 1 : 1 + rows.shape[1]] = rows
        return whole


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is thought of some states.

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


class LearnedValues:
    """What networks and tables say about states of a world, at the theory's own parameters."""

    def __init__(
        self,
        values: Quantities,
        lookout: Lookout,
        theory: Theory,
        aggregate: Aggregator,
        device: str = "cpu",
    ) -> None:
        """Prepare the assessment.

        Args:
            values: All quantities; read anew each time, so they may go on learning.
            lookout: Looks at states; must look ahead where Q_r is not learned.
            theory: Exponents and conventions.
            aggregate: Adds up successors.
            device: Where the networks are.
        """
        if "q_r" not in values.networks and not lookout.looks_ahead:
            raise ValueError("where Q_r is not learned, the lookout needs a human prior")
        self._values, self._lookout = values, lookout
        self._theory, self._aggregate, self._device = theory, aggregate, device

    @torch.no_grad()
    def __call__(
        self, rows: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Assessment:
        """What is thought of non-terminal states of the lookout's world."""
        states, transitions = self._lookout(rows, steps_left)
        states, transitions = _moved(states, self._device), _moved(transitions, self._device)
        sources = Situations.of(states.at(transitions.state), transitions.steps_left)
        values = self._values
        with _at_rest(values):
            q_r = self._q_r(states, transitions, sources)
            pi_r = policy_of(q_r, sources.states.available, self._theory.beta_r)
            v_h_e = values.v_h_e(sources)
            x_h = values.x_h(sources, v_h_e)
            u_r = values.u_r(sources, x_h)
            v_r = values.v_r(sources, u_r, q_r, pi_r)
        q_r = q_r.masked_fill(~sources.states.available, math.nan)
        found = (part.cpu() for part in (v_r, q_r, pi_r, u_r, x_h, self._by_goal(v_h_e)))
        return Assessment(*found)

    def _q_r(self, states: States, transitions: Transitions, sources: Situations) -> Tensor:
        """Q_r, learned or by looking one step ahead."""
        values = self._values
        if "q_r" in values.networks:
            return values.q_r(sources)
        profiles = HumanProfiles(values.spec, self._lookout.slots)
        return look_ahead(
            states, transitions, values, profiles, self._theory.gamma_r, self._aggregate
        )

    def _by_goal(self, by_slot: Tensor) -> Tensor:
        """Values of slots, in the order of the world's goals."""
        goal = self._lookout.slots.goal[0].to(by_slot.device)
        values = by_slot.new_zeros(len(by_slot), len(self._lookout.world.spec.goals))
        # Goals of an ensemble count those of its first world first.
        values[:, goal[goal >= 0]] = by_slot[:, goal >= 0]
        return values


class LearnedPower:
    """U_r as networks and tables say it; see ``empo_core.protocols.IntrinsicReward``."""

    def __init__(self, values: Quantities, lookout: Lookout, device: str = "cpu") -> None:
        """Prepare to answer.

        Args:
            values: All quantities; read anew each time.
            lookout: Looks at states; ahead or not.
            device: Where the networks are.
        """
        self._values, self._lookout, self._device = values, lookout, device

    @torch.no_grad()
    def __call__(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, " state"]:
        """U_r of states from which an episode goes on."""
        parts = [torch.zeros(0)]
        with _at_rest(self._values):
            for first in range(0, len(states), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                known, found = self._lookout(states[part], steps_left[part])
                known = _moved(known, self._device)
                situations = Situations.of(
                    known.at(found.state.to(self._device)), steps_left[part].to(self._device)
                )
                v_h_e = self._values.v_h_e(situations)
                u_r = self._values.u_r(situations, self._values.x_h(situations, v_h_e))
                parts.append(u_r.cpu())
        return torch.cat(parts)


def _moved(data: Data, device: str) -> Data:
    return type(data)(**{f.name: getattr(data, f.name).to(device) for f in fields(data)})


@contextmanager
def _at_rest(values: Quantities) -> Iterator[None]:
    """Networks without what they do in training only, e.g. dropout."""
    training = [
        network
        for network in values.networks.values()
        if isinstance(network, torch.nn.Module) and network.training
    ]
    for network in training:
        network.eval()
    try:
        yield
    finally:
        for network in training:
            network.train()
