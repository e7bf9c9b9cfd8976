"""One training step: sample, compute targets, move every active quantity towards its own."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import Aggregator, Regression, ValueNetwork
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.trees import StateDict, whole_number
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_learning.finite import check_finite
from empo_learning.regression import regression_of
from empo_learning.state_tree import flatten
from empo_learning.timers import Timers
from empo_phase2.behaviour import build_networks
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Params
from empo_phase2.quantities import Quantities, state_query
from empo_phase2.target_cache import TargetCache
from empo_phase2.targets import BatchTargets, ScheduledTheory, TargetComputer
from empo_phase2.warmup import WarmUpSchedule

log = logging.getLogger(__name__)


@runtime_checkable
class TransitionSource(Protocol):
    """The part of a replay that a learner reads."""

    @property
    def freed_states(self) -> int:
        """Number of state ids given back so far, which may mean other states now."""

    def sample_indices(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None,
        by_state: bool = False,
    ) -> Int[Tensor, " transition"]:  # fmt: skip
        """Positions of transitions drawn evenly, or by state and time where they start."""

    def transitions(self, indices: Int[Tensor, " transition"]) -> Transitions:
        """The transitions at some positions."""

    def states(self, ids: Int[Tensor, " distinct"]) -> States:
        """States by id."""


class Learner:
    """Networks of the learned quantities, their target copies, and their optimisers.

    Attributes:
        networks: The learned quantities.
        values: All quantities according to the networks.
        skipped: Number of fits left out because something was not finite.
    """

    def __init__(
        self,
        params: Phase2Params,
        spec: WorldSpec,
        goals: GoalIndex,
        aggregate: Aggregator,
        timers: Timers,
        seed: int,
    ) -> None:
        """Build networks with weights drawn from torch's global generator.

        Args:
            params: Everything about the run.
            spec: Shape and meaning of state rows.
            goals: The goals, by slot.
            aggregate: Adds up successors.
            timers: Measures the stages of target computation.
            seed: That of the run, which the choice of transitions depends on.
        """
        self._params, self._schedule, self._spec = params, WarmUpSchedule(params), spec
        self._goals = goals
        self.networks = build_networks(params.values, spec)
        for network in self.networks.values():
            network.to(params.compute.device)
        optimiser = params.optimiser
        self._regressions: dict[Quantity, Regression] = {
            quantity: regression_of(
                network,
                weight_decay=optimiser.weight_decay,
                max_grad_norm=optimiser.max_grad_norm,
            )
            for quantity, network in self.networks.items()
        }
        # Copied together, so that encoders that are shared stay shared.
        self._targets = copy.deepcopy(self.networks)
        self.values = Quantities(self.networks, spec, goals, params.theory, aggregate)
        self._target_values = Quantities(self._targets, spec, goals, params.theory, aggregate)
        self._compute = TargetComputer(
            spec,
            goals,
            aggregate,
            model_based=params.targets.model_based,
            timers=timers,
            advantage_floor=params.targets.q_r_advantage_floor,
        )
        self._cache = TargetCache()
        self._generator = torch.Generator().manual_seed(seed_of(stream(seed, Stream.BATCHES)))
        self._by_state = params.replay.sampling == "states"
        if params.replay.sampling is None:
            # A table has learned an expectation as soon as it has seen it once.
            tables = all(network.is_table for network in self.networks.values())
            self._by_state = not tables and not self.is_sampled
        self.skipped = 0
        for target in self._targets.values():
            target.eval()

    def step(self, step: int, replay: TransitionSource) -> tuple[BatchTargets, dict[Quantity, Fit]]:
        """Train once.

        Args:
            step: Number of training steps before this one.
            replay: The transitions so far.

        Returns:
            The targets, and loss and gradient norm of each active quantity.

        Raises:
            NonFiniteError: if something is not finite and ``on_nan`` is ``stop``.
        """
        schedule = self._schedule
        index = replay.sample_indices(
            self._params.replay.batch_size,
            self._generator,
            oldest=schedule.oldest(step),
            by_state=self._by_state,
        )
        batch = replay.transitions(index)
        theory = ScheduledTheory(
            schedule.gamma_h(step), schedule.gamma_r(step), schedule.beta_r(step)
        )
        uniform = None
        if not self._params.targets.model_based:
            drawn = torch.rand(len(batch), generator=self._generator, dtype=torch.float64)
            uniform = drawn.to(self._params.compute.device)
        self._cache.check(replay.freed_states)
        targets = self._compute(
            batch, replay.states, self._target_values, theory, uniform, self._cache
        )
        fits: dict[Quantity, Fit] = {}
        active: tuple[Quantity, ...] = ()
        with self._guarded(step):
            check_finite(targets.must_be_finite, "what targets are computed from")
            active = schedule.active(step)
        if not active:  # What is not finite must not be read again.
            self._cache.clear()
        for quantity in active:
            with self._guarded(step):
                fits[quantity] = self._fit(quantity, targets, self.lr(quantity, step))
        if (step + 1) % self._params.optimiser.target_interval == 0:
            self.refresh_targets()
        return targets, fits

    def lr(self, quantity: Quantity, step: int) -> float:
        """The learning rate of a quantity; where the config gives none, its regression's own."""
        lr = self._params.optimiser.lr
        if isinstance(lr, dict):
            lr = lr[quantity]
        if lr is None:
            lr = self._regressions[quantity].default_lr(sampled=self.is_sampled)
        return lr * self._schedule.lr_factor(step)

    @property
    def is_sampled(self) -> bool:
        """True where targets are samples rather than expectations."""
        return not self._params.targets.are_exact(self._spec)

    @torch.no_grad()
    def predicted(self, quantity: Quantity, targets: BatchTargets) -> float:
        """Mean output of a quantity's network where a batch starts."""
        query, _, weight = self._regression_batch(quantity, targets)
        answers = torch.where(weight > 0, self.networks[quantity](query) * weight, 0.0)
        return float(answers.sum() / weight.sum().clamp(min=1e-12))

    @torch.no_grad()
    def misfit(self, quantity: Quantity, targets: BatchTargets) -> float:
        """Mean distance of a quantity from its targets in a batch, relative to their mean size."""
        query, target, weight = self._regression_batch(quantity, targets)
        away = (self.networks[quantity](query) - target).abs()
        size = torch.where(weight > 0, target.abs() * weight, 0.0).sum()
        return float(torch.where(weight > 0, away * weight, 0.0).sum() / size.clamp(min=1e-12))

    def refresh_targets(self) -> None:
        """Compute targets with newer values from now on.

        Raises:
            NonFiniteError: if a weight is not finite.
        """
        rate = self._params.optimiser.target_rate
        # All before any is loaded, since encoders may be shared.
        newer: dict[str, Any] = {
            quantity: between(self._targets[quantity], network, rate)
            for quantity, network in self.networks.items()
        }
        check_finite(flatten(newer)[1], "a weight")
        for quantity, target in self._targets.items():
            target.load_state_dict(newer[quantity])
        self._cache.refresh()

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

    def state_dict(self) -> StateDict:
        """Everything needed to resume exactly.

        Raises:
            NonFiniteError: if something in it is not finite.
        """
        state = {
            "networks": {name: dict(net.state_dict()) for name, net in self.networks.items()},
            "targets": {name: dict(net.state_dict()) for name, net in self._targets.items()},
            "regressions": {name: r.state_dict() for name, r in self._regressions.items()},
            "cache": self._cache.state_dict(),
            "generator": self._generator.get_state(),
            "skipped": self.skipped,
        }
        check_finite(flatten(state)[1], "what is to be saved")
        return state

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name in self.networks:
            self.networks[name].load_state_dict(state_dict["networks"][name])
            self._targets[name].load_state_dict(state_dict["targets"][name])
            self._regressions[name].load_state_dict(state_dict["regressions"][name])
        self._cache.load_state_dict(state_dict["cache"], self._cached_columns())
        self._generator.set_state(state_dict["generator"])
        self.skipped = whole_number(state_dict["skipped"])

    def _cached_columns(self) -> dict[str, Tensor]:
        """What the cache of targets holds, of no state at all."""
        humans, slots = len(self._spec.humans), len(self._goals)
        robots = self._spec.num_robot_actions
        dtype = next(iter(self.networks["v_h_e"].parameters())).dtype
        columns = {"v_h_e": torch.zeros(0, slots), "x_h": torch.zeros(0, humans)}
        columns["u_r"] = torch.zeros(0)
        widths = {"q_r": (robots,), "v_r": ()}
        columns |= {name: torch.zeros(0, *widths[name]) for name in widths if name in self.networks}
        return {name: column.to(dtype) for name, column in columns.items()}

    def _fit(self, quantity: Quantity, targets: BatchTargets, lr: float) -> Fit:
        query, target, weight = self._regression_batch(quantity, targets)
        return self._regressions[quantity].fit(query, target, weight, lr=lr)

    def _regression_batch(
        self, quantity: Quantity, targets: BatchTargets
    ) -> tuple[ValueQuery, Tensor, Tensor]:
        """Queries of a quantity, their targets, and the weight of each error."""
        sources = targets.sources
        if quantity == "q_r":
            return state_query(sources), targets.q_r, targets.q_r_weight
        if quantity == "v_h_e":
            query = self.values.goal_query(sources)
            return query, targets.v_h_e.reshape(-1, 1), targets.v_h_e_weight.reshape(-1, 1)
        targets_of = {"x_h": targets.x_h, "u_r": targets.u_r, "v_r": targets.v_r}
        target = targets_of[quantity]
        assert target is not None
        target = target.reshape(-1, 1)
        ask = self.values.human_query if quantity == "x_h" else state_query
        return ask(sources), target, torch.ones_like(target)

    @contextlib.contextmanager
    def _guarded(self, step: int) -> Iterator[None]:
        """Stop, or skip the rest of the block, where something is not finite (``on_nan``)."""
        try:
            yield
        except NonFiniteError as error:
            if self._params.optimiser.on_nan == "stop":
                error.add_note(f"This happened in training step {step}.")
                raise
            self.skipped += 1
            log.warning("step %d: %s; the step was skipped", step, error)


def between(target: ValueNetwork, network: ValueNetwork, rate: float) -> dict[str, Tensor]:
    """Weights a share of the way from one network to another; all of the way for tables."""
    newest = network.state_dict()
    if rate == 1 or network.is_table:
        return dict(newest)
    before = target.state_dict()
    return {
        name: before[name].lerp(weight, rate) if weight.is_floating_point() else weight
        for name, weight in newest.items()
    }
