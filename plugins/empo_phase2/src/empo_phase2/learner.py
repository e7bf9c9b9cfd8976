"""Learning of ``phase2``: collect, and in each training step sample, targets, fit, refresh.

``empo_learning.loop`` calls ``Learner.advance`` until the run is over.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import Collector, Regression, Schedule, ValueNetwork, Weights
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.stages import Tell, stage
from empo_core.trees import StateDict, whole_number
from empo_core.types import Fit, Quantity, ValueQuery
from empo_learning.bounded_curve import BoundedCurve, load_numbers
from empo_learning.finite import check_finite
from empo_learning.learner import Evaluated
from empo_learning.learner import Learner as LoopLearner
from empo_learning.lr_schedules import schedule_of
from empo_learning.regression import regression_of
from empo_learning.state_tree import flatten
from empo_learning.timers import Timers
from empo_phase2 import metrics
from empo_phase2.blind_spots import EnteredSituations
from empo_phase2.compare import Comparison
from empo_phase2.estimates import ValueEstimator
from empo_phase2.experience import Block
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.params import Phase2Params
from empo_phase2.quantities import Quantities, TargetCache
from empo_phase2.replay import Replay
from empo_phase2.targets import BatchTargets, TargetComputer
from empo_phase2.warmup import StepPlan, WarmUpSchedule

log = logging.getLogger(__name__)


class Learner(LoopLearner):
    """Networks of the learned quantities, their target copies, and everything that trains them.

    Attributes:
        quantities: All quantities according to the newest networks.
        networks: These networks.
        replay: The transitions so far.
        targets: Those of the newest training step; None before the first.
        fits: Loss and gradient norm of each quantity in that step.
        lr: The learning rate of each quantity in the newest step that it was trained in.
        skipped: How often something was not finite and fits were left out: that of one quantity,
            or those of all where it was in what targets are computed from.
        losses: The loss of each quantity at each line of the log, thinned out in long runs.
        schedule: Stages of training and schedules of parameters.
        is_exact: Whether targets are expectations rather than samples.
    """

    def __init__(
        self,
        params: Phase2Params,
        quantities: Quantities,
        replay: Replay,
        collector: Collector,
        explorers: ExplorerSet,
        timers: Timers,
        seed: int,
        *,
        comparison: Comparison | None = None,
        estimate: ValueEstimator | None = None,
        tell: Tell | None = None,
        lr_schedule: Schedule | None = None,
    ) -> None:
        """Prepare for the first training step.

        Args:
            params: Everything about the run.
            quantities: All quantities according to networks that have learned nothing yet.
            replay: Where transitions are kept.
            collector: Brings them.
            explorers: The explorers that learn from them.
            timers: Measures the stages of target computation.
            seed: That of the run, which the choice of transitions depends on.
            comparison: Compares values with the right ones.
            estimate: Estimates from ``quantities`` that are compared; needed with ``comparison``.
            tell: Called with the stage of the run, while it waits for the first experience.
            lr_schedule: A caller's schedule of learning rates; None: that of ``params``.
        """
        self._params, self.schedule = params, WarmUpSchedule(params)
        self.quantities, self.networks = quantities, quantities.networks
        self.replay, self._collector, self._explorers = replay, collector, explorers
        self._comparison, self._estimate, self._tell = comparison, estimate, tell
        self._timers = timers
        self.is_exact = params.targets.are_exact(quantities.spec)
        optimiser = params.optimiser
        self._regressions: dict[Quantity, Regression] = {
            quantity: regression_of(
                network,
                weight_decay=optimiser.weight_decay,
                max_grad_norm=optimiser.max_grad_norm,
            )
            for quantity, network in self.networks.items()
        }
        self._lr_schedule = schedule_of(optimiser, lr_schedule)
        lr = optimiser.lr
        rates = lr if isinstance(lr, dict) else dict.fromkeys(self.networks, lr)
        self._rates = {
            quantity: rates[quantity] or regression.default_lr(sampled=not self.is_exact)
            for quantity, regression in self._regressions.items()
        }
        # Copied together, so that encoders that are shared stay shared.
        self._target_networks = copy.deepcopy(dict(self.networks))
        for target in self._target_networks.values():
            target.eval()
        self._cache = TargetCache()
        self._compute = TargetComputer(
            quantities.by(self._target_networks),
            model_based=params.targets.model_based,
            measure=timers if timers.enabled else nullcontext,
            advantage_floor=params.targets.q_r_advantage_floor,
            cache=self._cache,
        )
        self._generator = torch.Generator().manual_seed(seed_of(stream(seed, Stream.BATCHES)))
        self._by_state = params.replay.sampling == "states"
        if params.replay.sampling is None:
            # A table has learned an expectation as soon as it has seen it once.
            tables = all(network.is_table for network in self.networks.values())
            self._by_state = self.is_exact and not tables
        self.steps = self._line_steps = self._timed_steps = self.skipped = 0
        self.total_steps = params.total_steps
        self.targets: BatchTargets | None = None
        self.fits: dict[Quantity, Fit] = {}
        self.lr: dict[Quantity, float] = {}
        self.losses: BoundedCurve[tuple[int, dict[str, float]]] = BoundedCurve()
        self.entered = EnteredSituations()
        self._published: Weights = {}
        self._exploration: dict[str, float] = {}

    @property
    def evaluates(self) -> bool:
        """True if right values are there to compare with."""
        return self._comparison is not None

    def start(self) -> None:
        """Publish the initial weights."""
        self._publish()

    def advance(self) -> None:
        """Collect what is due, and train once if there is anything to train on.

        Raises:
            NonFiniteError: if something is not finite, see ``train``, or a weight to be published.
        """
        if len(self.replay) or self._tell is None:
            self._collect()
        else:
            with stage(self._tell, "first experience"):
                self._collect()
        if len(self.replay) == 0:
            return
        plan = self.schedule.at(self.steps)
        self.train(plan, self._lr_schedule(plan.lr_progress) * self.lr_scale)
        if self.steps % self._params.optimiser.publish_interval == 0:
            self._publish()
        self.after_update()

    def train(self, plan: StepPlan, lr_factor: float = 1.0) -> None:
        """One training step: sample, targets, fit, refresh.

        Args:
            plan: What is in training, and the parameters of the theory of now.
            lr_factor: Multiplies the learning rate of each quantity.

        Raises:
            NonFiniteError: if a value of a target network, a loss or a gradient is not finite and
                ``on_nan`` is ``stop``; or if a weight or a moment is not at a refresh, whatever
                ``on_nan`` says.
        """
        params = self._params
        # Sample.
        index = self.replay.sample_indices(
            params.replay.batch_size,
            self._generator,
            oldest=plan.oldest,
            by_state=self._by_state,
        )
        batch = self.replay.transitions(index)
        uniform = None
        if not params.targets.model_based:
            drawn = torch.rand(len(batch), generator=self._generator, dtype=torch.float64)
            uniform = drawn.to(params.compute.device)
        # Targets, in five stages; fit.
        self.fits = {}
        try:
            self.targets = self._compute(batch, self.replay.states, plan.current, uniform)
        except NonFiniteError as error:
            self._stop_or_skip(error)
        else:
            self._fit(self.targets, plan.active, lr_factor)
        # Refresh.
        self.steps += 1
        self._timed_steps += 1
        if self.steps % params.optimiser.target_interval == 0:
            self.refresh_targets()
        interval = params.reporting.profile_batching_interval
        if interval and self.steps % interval == 0:
            log.info("%s", metrics.profile_table(self.profile(), self._timed_steps))

    def _fit(self, targets: BatchTargets, active: Sequence[Quantity], lr_factor: float) -> None:
        """Move each quantity in training towards its targets.

        Raises:
            NonFiniteError: if something is not finite and ``on_nan`` is ``stop``.
        """
        for quantity in active:
            query, target, weight = self.regression_batch(quantity, targets)
            self.lr[quantity] = self._rates[quantity] * lr_factor
            try:
                self.fits[quantity] = self._regressions[quantity].fit(
                    query, target, weight, lr=self.lr[quantity]
                )
            except NonFiniteError as error:
                self._stop_or_skip(error)

    def profile(self) -> dict[str, float]:
        """Mean milliseconds per training step of each stage of targets; empty if not measured."""
        return self._timers.mean_ms(self._timed_steps)

    def regression_batch(
        self, quantity: Quantity, targets: BatchTargets
    ) -> tuple[ValueQuery, Tensor, Tensor]:
        """Queries of a quantity, their targets, and the weight of each error."""
        query = self.quantities.query(quantity, targets.sources)
        if quantity == "q_r":
            return query, targets.q_r, targets.q_r_weight
        if quantity == "v_h_e":
            return query, targets.v_h_e.reshape(-1, 1), targets.v_h_e_weight.reshape(-1, 1)
        target = {"x_h": targets.x_h, "u_r": targets.u_r, "v_r": targets.v_r}[quantity]
        assert target is not None
        target = target.reshape(-1, 1)
        return query, target, torch.ones_like(target)

    def refresh_targets(self) -> None:
        """Compute targets with newer values from now on.

        Raises:
            NonFiniteError: if a weight is not finite, or a moment of the optimiser: infinite ones
                would keep weights as they are, and no loss would show it.
        """
        rate = self._params.optimiser.target_rate
        # All before any is loaded, since encoders may be shared.
        newer: dict[str, Any] = {
            quantity: between(self._target_networks[quantity], network, rate)
            for quantity, network in self.networks.items()
        }
        check_finite(flatten(newer)[1], "a weight")
        moments: dict[str, Any] = {n: r.state_dict() for n, r in self._regressions.items()}
        check_finite(flatten(moments)[1], "a moment of the optimiser")
        for quantity, target in self._target_networks.items():
            target.load_state_dict(newer[quantity])
        self._cache.clear()

    def metrics(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Numbers about the newest training step, and about collection."""
        numbers = metrics.of_collection(self._collector, self.replay) | self._exploration
        numbers |= self._explorers.rates(self.steps, self.schedule)
        if self.targets is not None:
            self.losses.append((self.steps, {q: float(fit.loss) for q, fit in self.fits.items()}))
            numbers |= metrics.of_step(self.steps - 1, self.schedule, self.targets)
            for quantity, fit in self.fits.items():
                query, _, weight = self.regression_batch(quantity, self.targets)
                with torch.no_grad():
                    prediction = self.networks[quantity](query)
                numbers |= metrics.of_fit(quantity, fit, self.lr[quantity], prediction, weight)
            numbers |= metrics.of_networks(self.networks)
            numbers["optim/skipped_fits"] = float(self.skipped)
        if self._timers.enabled:
            numbers |= metrics.of_stages(self._timers.lap(), max(self.steps - self._line_steps, 1))
        self._line_steps = self.steps
        return numbers

    def evaluate(self) -> Evaluated | None:
        """The gap to the right values, where they are known."""
        if self._comparison is None or self._estimate is None:
            return None
        with self.interruptible():
            gap = self._comparison.record(self.steps, self._estimate)
        named = {name.replace("Compare/", "eval/").lower(): value for name, value in gap.items()}
        return Evaluated(named, -gap["Compare/V_r_mean_rel"])

    def state_dict(self, *, midway: bool = False) -> StateDict:
        """Everything needed to resume exactly.

        Raises:
            NonFiniteError: if something in it is not finite.
        """
        learned = {
            "networks": {name: dict(net.state_dict()) for name, net in self.networks.items()},
            "target_networks": {
                name: dict(net.state_dict()) for name, net in self._target_networks.items()
            },
            "regressions": {name: r.state_dict() for name, r in self._regressions.items()},
            "cache": self._cache.state_dict(),
            "generator": self._generator.get_state(),
            "skipped": self.skipped,
        }
        check_finite(flatten(learned)[1], "what is to be saved")
        return learned | {
            "steps": self.steps,
            "losses": self.losses.state_dict(),
            "replay": self.replay.state_dict(),
            "published": dict(self._published),
            "collector": self._collector.state_dict(),
            "explorers": self._explorers.state_dict(),
            "comparison": self._comparison.state_dict() if self._comparison else None,
            "entered": self.entered.state_dict(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned."""
        for name in self.networks:
            self.networks[name].load_state_dict(state_dict["networks"][name])
            self._target_networks[name].load_state_dict(state_dict["target_networks"][name])
            self._regressions[name].load_state_dict(state_dict["regressions"][name])
        self._cache.load_state_dict(state_dict["cache"], self.quantities.empty)
        self._generator.set_state(state_dict["generator"])
        self.skipped = whole_number(state_dict["skipped"])
        self.steps = self._line_steps = whole_number(state_dict["steps"])
        load_numbers(self.losses, state_dict["losses"])
        self.replay.load_state_dict(state_dict["replay"])
        self._published = state_dict["published"]
        self._collector.publish(self._published, self.steps)
        self._collector.load_state_dict(state_dict["collector"])
        self._explorers.load_state_dict(state_dict["explorers"])
        if self._comparison:
            self._comparison.load_state_dict(state_dict["comparison"])
        self.entered.load_state_dict(state_dict["entered"])

    def _collect(self) -> None:
        """Put what actors bring into the replay, and let explorers learn from it."""
        renumberings = self.replay.renumberings
        try:
            experiences = self._collector.collect(self.steps)
            for experience in experiences:
                block = Block.from_arrays(experience.arrays)
                self.replay.add(block, training_step=self.steps)
                self.entered.add(block)
                if self._comparison:
                    self._comparison.observe(block)
                if self._explorers.learns:
                    self._exploration = self._explorers.learn(block)
        finally:  # A run that breaks off here is saved, too.
            if self.replay.renumberings != renumberings:
                self._cache.clear()  # Its keys are ids of states.
        if experiences:
            self.after_rollout()

    def _publish(self) -> None:
        """Send the newest values to the actors."""
        weights = self.quantities.published() | self._explorers.weights()
        self._collector.publish(weights, self.steps)
        self._published = weights

    def _stop_or_skip(self, error: NonFiniteError) -> None:
        """Raise an error, or count and log it and go on, as ``on_nan`` says."""
        if self._params.optimiser.on_nan == "stop":
            error.add_note(f"This happened in training step {self.steps}.")
            raise error
        self.skipped += 1
        log.warning("step %d: %s; the step was skipped", self.steps, error)


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
