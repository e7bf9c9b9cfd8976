"""What the core asks of each kind of component.

A component's factory (its ``target``) is called once, with its validated params first:

=============  ==========================================
kind           factory call
=============  ==========================================
world_model    ``factory(params)``
human_prior    ``factory(params, world)``
value_network  ``factory(params, spec, quantity)``
policy_loss    ``factory(params)``
aggregator     ``factory(params)``
tracker        ``factory(params)``
collector      ``factory(params)``
explorer       ``factory(params, spec, agents)``
algorithm      ``factory(params)``
=============  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from rich.console import RenderableType
from torch import Tensor
from torch.distributions import Distribution

from empo_core.types import (
    Experience,
    Featurizer,
    Fit,
    Histogram,
    ImaginedBatch,
    LossNeeds,
    LossOutput,
    Overlay,
    Quantity,
    Reduction,
    Scene,
    Segments,
    Successors,
    ValueQuery,
    WorldSpec,
)


@runtime_checkable
class WorldModel(Protocol):
    """A stationary stochastic game on rows of integers; every method is pure.

    A state is one complete and canonical row: equal rows, equal situations. Time is not in
    the row; the horizon is ``spec.horizon``. Nothing about the world changes when it is
    asked, so answers never depend on the order of questions.
    """

    @property
    def spec(self) -> WorldSpec:
        """What never changes: agents, actions, goals, horizon, row format."""

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """All successors of each state under its joint action, with exact probabilities.

        Args:
            states: State rows.
            actions: One joint action per state. None asks for every joint action of every
                state: pair ``i * spec.num_joint_actions + j`` is then state ``i`` under the
                joint action with index ``j = sum(action[k] * spec.strides[k])``.

        Returns:
            One pair per row of ``actions`` (or per state and joint action). Terminal states
            and unavailable actions have no successors.

        Raises:
            WorldError: A row is malformed, or an action index is out of range.
        """

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; padded with False on the action axis.

        A state in which the agents have no available action is terminal.
        """

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """Whether each goal of ``spec.goals`` is achieved in each state."""

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state, distributed as ``transitions`` says.

        A terminal state is returned as it is.
        """

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The state in a form people can read, possibly of several lines."""


@runtime_checkable
class Drawable(Protocol):
    """A world that can draw its states; optional."""

    def render(
        self, state: Int[Tensor, " word"], overlay: Overlay | None = None
    ) -> UInt8[np.ndarray, "height width 3"]:
        """An RGB picture of a state; needs no window. All states have equal size."""


@runtime_checkable
class Located(Protocol):
    """A world whose agents are somewhere on a grid; optional."""

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of each agent in each state."""


@runtime_checkable
class Compactable(Protocol):
    """A world whose states can be stored with everything a network needs to know; optional.

    Unlike a row, which means nothing without its world, a compact row describes itself, so it
    can be read where there is no world, and next to those of other worlds of equal size.
    """

    @property
    def compact_features(self) -> Featurizer:
        """Reads compact rows; gives what ``spec.features`` gives for the rows themselves."""

    def compact(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state compact_word"]:
        """The compact row (int32) of each state; equal states have equal ones."""


@runtime_checkable
class HumanPrior(Protocol):
    """How the humans act for each of their hypothetical goals."""

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human pursuing that goal.

        Args:
            states: Non-terminal state rows.
            steps_left: Remaining steps of the episode, at least 1; the same for all rows.

        Returns:
            Probabilities over the human's own actions, summing to 1 on the last axis, padded
            with zeros where another human has more actions. Unavailable actions have 0.
        """


@runtime_checkable
class ValueNetwork(Protocol):
    """One of Q_r, V_h^e, X_h, U_r, V_r as a trainable function of states.

    Every ``torch.nn.Module`` with a ``quantity`` and a suitable ``forward`` fits.
    """

    quantity: Quantity

    def __call__(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each query, within the bounds of its quantity.

        ``output`` is the number of joint robot actions for ``q_r`` (robot 0 of
        ``spec.robots`` counts fastest) and 1 otherwise.
        """

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The trainable tensors."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to restore the network, as tensors."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class Regression(Protocol):
    """Fits one value network to targets, and remembers what it needs for that."""

    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """Move the network's answers towards the targets, by one step.

        Args:
            query: The questions.
            target: What the answers should be; read nowhere where the weight is 0.
            weight: How much each answer counts, at least 0.
            lr: Learning rate.

        Raises:
            NonFiniteError: The loss or the gradient is not finite; the network is unchanged.
        """

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, e.g. an optimiser's moments; the network is not part of it."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class FitsItself(Protocol):
    """A value network that brings its own way of fitting it; optional.

    Others are fitted by gradient descent on squared errors (``empo_core.training.regression``).
    """

    def regression(self, *, weight_decay: float, max_gradient_norm: float | None) -> Regression:
        """What fits this network from now on."""


@runtime_checkable
class SharesEncoders(Protocol):
    """A value network that can read what another network's encoders make of a state; optional."""

    def share(self, source: ValueNetwork) -> bool:
        """Use the encoders of ``source`` beside its own, without training them.

        They become part of ``state_dict`` but not of ``parameters``. Returns whether ``source``
        has encoders that fit; where it has none, nothing changes.
        """


Policy = Callable[[Tensor], Distribution]
"""From features ``[... feature]`` to a distribution over actions ``[... action]``."""

Critic = Callable[[Tensor, Tensor], Tensor]
"""From features and actions to values ``[... head]``, differentiable in the actions."""


@runtime_checkable
class PolicyLoss(Protocol):
    """From candidate actions and their targets to a scalar and metrics."""

    @property
    def needs(self) -> LossNeeds:
        """What it must be given."""

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``.

        Its gradient reaches the parameters of ``policy`` and no others: the batch is
        constant and the critic's parameters must be left without gradients. A call changes
        nothing, not even the loss.

        Raises:
            ValueError: Something that it needs is missing, or the batch has too few candidates.
        """


@runtime_checkable
class AdaptivePolicyLoss(Protocol):
    """A policy loss that changes in the course of training; optional.

    A running scale, a coefficient that falls or is tuned: the learner calls ``adapt`` once after
    each step of the policy's optimiser, and puts the state into its checkpoints.
    """

    def adapt(self, memory: Mapping[str, Tensor], progress: float) -> None:
        """Remember what a call found.

        Args:
            memory: ``LossOutput.memory`` of the call that the optimiser followed.
            progress: Share of the run that is done, from 0 to 1.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so: a tree as checkpoints take it."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class WeighsCandidates(Protocol):
    """A policy loss that prefers some candidates to others; optional.

    A learner may let its value targets prefer the same ones.
    """

    def weights(self, batch: ImaginedBatch) -> Float[Tensor, "start candidate"]:
        """How much each candidate counts; at least 0, adding up to 1 at each start."""


@runtime_checkable
class Aggregator(Protocol):
    """Reduces many items to one value per segment, e.g. successors to states."""

    def __call__(
        self,
        values: Float[Tensor, " item *trailing"],
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Float[Tensor, " item"] | None = None,
    ) -> Float[Tensor, " segment *trailing"]:
        """Combine the items of each segment; the order of items has no effect.

        Args:
            values: One row per item, any trailing axes.
            segments: The segment of each item.
            reduction: How items combine. An empty segment gives the neutral value: 0 for
                ``sum`` and ``mean``, +inf for ``min``, -inf for ``max``.
            weight: Factor of each item, for ``sum`` and ``mean``; the weighted mean divides
                by the total weight (0 where that is 0).

        Returns:
            One row per segment, in the dtype of ``values``.

        Raises:
            ValueError: Shapes disagree, or a weight is given with ``min`` or ``max``.
        """


Weights: TypeAlias = Mapping[str, Tensor]
"""Named tensors that a learner publishes to its actors, on the CPU."""


@runtime_checkable
class Actor(Protocol):
    """Acts in environments and records what happened; in the learner's process or its own."""

    def load(self, weights: Weights, version: int) -> None:
        """Act with these weights from now on; every ``Experience`` names their version."""

    def act(self, training_step: int) -> Experience:
        """Act for a while: every environment takes one step.

        Args:
            training_step: Training steps so far, on which exploration depends.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so: environments, generators, counts.

        A tree of dictionaries and lists with tensors, numbers, strings, booleans and None.
        """

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""


ActorFactory = Callable[[int], Actor]
"""Builds the actor with a number, from 0; can be pickled by ``cloudpickle``."""


@runtime_checkable
class Collector(Protocol):
    """Produces experience by running actors."""

    def start(self, make_actor: ActorFactory, directory: Path) -> None:
        """Build the actors; files, if there must be any, go into ``directory``.

        Raises:
            CollectError: An actor cannot be built; its traceback is in the message.
        """

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let all actors act with these weights as soon as possible."""

    def collect(self, training_step: int) -> Sequence[Experience]:
        """The experience that is due before the next training step; may be empty.

        Waits only while there is less than the learner may start with.

        Raises:
            CollectError: No actor works any more.
        """

    def counters(self) -> dict[str, float]:
        """Numbers for people and trackers, ``env_steps`` among them."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on; exactly so where the collector is synchronous."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned.

        Before that the collector is started, and what it had been told to publish last is
        published again.
        """

    def stop(self) -> None:
        """End all actors within seconds; may be called at any time and twice."""


@runtime_checkable
class Explorer(Protocol):
    """Changes what some agents do while experience is collected: the robots, or one human.

    ``agents`` of the factory call are who chooses, in index order: all robots jointly, or one
    human alone.
    """

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """Action probabilities to act with, given those of the policy.

        Unavailable actions keep probability 0, and rows keep summing to 1.
        """

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """What was chosen in a scene that ``explore`` was asked about."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, e.g. counts."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class LearnedExplorer(Protocol):
    """An explorer that learns where experience is learned from; optional.

    The learner has one of its own, trains it, and publishes its weights to those of the actors.
    """

    def learn(
        self, states: Int[Tensor, "state word"], choice: Int[Tensor, " state"]
    ) -> dict[str, float]:
        """One training step on states and what was chosen there; returns numbers for people."""

    def weights(self) -> dict[str, Tensor]:
        """What ``explore`` needs of what was learned."""

    def load_weights(self, weights: Weights) -> None:
        """Use what ``weights`` of another copy returned."""


RunStatus = Literal["finished", "failed", "interrupted"]


@runtime_checkable
class Tracker(Protocol):
    """Watches a run and changes nothing about it."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """A run begins; files go into ``directory``, ``config`` is the resolved config."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers at a step; keys are slash-separated, e.g. ``value/V_r``."""

    def progress(self, task: str, done: float, total: float) -> None:
        """How far a named task is, in any unit; ``done == total`` finishes it."""

    def finish(self, status: RunStatus) -> None:
        """The run is over; write out what is held back."""


@runtime_checkable
class Rewindable(Protocol):
    """A tracker whose records can be cut off at a step; optional.

    A run that is resumed goes on from a checkpoint, and logs some steps a second time.
    """

    def rewind(self, step: int) -> None:
        """Drop what was logged for later steps than this, in this run directory."""


@runtime_checkable
class Narrator(Protocol):
    """A tracker that can say in words how a task goes; optional."""

    def narrate(self, task: str, text: str) -> None:
        """One short line, e.g. how fast a task is; it replaces the line before."""


@runtime_checkable
class EpisodeTracker(Protocol):
    """A tracker that follows the episodes of many environments step by step; optional.

    What it finds goes to the other trackers of the run whenever something is logged.
    """

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        """So many environments begin now; episodes end for one of these reasons."""

    def step(
        self,
        rewards: Float[Tensor, " env"],
        dones: Bool[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """The environments took a step.

        Args:
            rewards: What each step paid.
            dones: Whether the episode ended with it.
            reasons: Why, where it ended, as positions in what ``follow`` was told; -1: unknown.
            active: Which environments took it; the others' rewards, dones and reasons mean
                nothing, and their episodes do not become longer. None: all.
        """

    def statistics(self) -> dict[str, float | Histogram]:
        """What is known so far, as a tracker logs it; empty before ``follow``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so: a tree as checkpoints take it."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, after ``follow``."""


@runtime_checkable
class Result(Protocol):
    """What a run computed."""

    def summary(self) -> dict[str, Any]:
        """The result as JSON data; what ``empo run --json`` prints."""

    def report(self) -> RenderableType:
        """The result for people, printed at the end of a run."""

    def save(self, directory: Path) -> None:
        """Write tables and pictures into ``directory``."""


@runtime_checkable
class RobotPolicy(Protocol):
    """How the robots act in any state: what an evaluation plays."""

    def probabilities(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; unavailable ones have 0.

        Args:
            states: Non-terminal state rows of the world.
            steps_left: Remaining steps of each episode, at least 1.

        Raises:
            SolveError: It knows nothing about some of the states.
        """


@runtime_checkable
class Solution(Protocol):
    """A result that knows the right values of every reachable state; optional.

    Learned values are compared with it.
    """

    def reachable_states(self, steps_left: int) -> Int[Tensor, "state word"]:
        """Non-terminal states that an episode can be in with so many steps left, sorted."""

    def robot_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, " state"]:
        """V_r of each state."""

    def robot_policies(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state robot_action"]:
        """The robots' policy in each state."""

    def goal_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal"]:
        """V_h^e of each state and goal."""


@runtime_checkable
class Playable(Protocol):
    """An algorithm whose finished or interrupted runs can be played; optional.

    ``empo evaluate`` asks for it.
    """

    def restore(self, context: RunContext) -> tuple[RobotPolicy, HumanPrior]:
        """The robots' policy of the run in ``context.directory``, and how its humans act.

        Raises:
            StorageError: The run left nothing that can be loaded.
        """


IntrinsicReward = Callable[[Tensor, Tensor], Tensor]
"""U_r ``[state]`` of states ``[state word]`` from which an episode goes on, and of the steps left
in each ``[state]``."""


@runtime_checkable
class Empowering(Protocol):
    """An algorithm whose finished runs know the intrinsic reward U_r of states; optional.

    Learners that take their reward from elsewhere (algorithm ``rollout``, reward ``power``) ask
    for it.
    """

    def intrinsic_reward(self, context: RunContext) -> IntrinsicReward:
        """U_r as the run in ``context.directory`` has it, for states of ``context.world``.

        Raises:
            StorageError: The run left nothing that can be loaded, or knows another world.
        """


@runtime_checkable
class RunContext(Protocol):
    """What an algorithm is given besides its params.

    ``world_model`` is the config's reference to the world, from which other processes build it
    anew; None where the world did not come from a config.
    """

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool
    world_model: Any


@runtime_checkable
class Algorithm(Protocol):
    """What a run does."""

    def run(self, context: RunContext) -> Result:
        """Do it, reporting to ``context.tracker``; large files go to ``context.directory``.

        With ``context.resume`` the directory holds what an interrupted run of the same
        config left behind.

        Raises:
            SolveError: The problem cannot be solved as posed.
            ConfigError: The config lacks something this algorithm needs, e.g. a world.
        """

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """What a run would need (sizes, memory), without running it; for ``empo check``."""
