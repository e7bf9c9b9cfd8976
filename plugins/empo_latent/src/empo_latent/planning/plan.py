"""The planner's model protocol, its random numbers and its result.

Axes: ``time`` counts the steps of a plan, ``proposal`` the plans that the policy proposes, ``draw``
those that are drawn in each ``round``, ``elite`` the best of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_learning.distributions import BoundedNormal


@runtime_checkable
class PlanningModel(Protocol):
    """The part of a world model that plans are judged with; heads lie on leading axes."""

    @property
    def active(self) -> Bool[Tensor, "task action"]:
        """Per task, which numbers of an action it uses."""

    def next_latent(
        self,
        z: Float[Tensor, "*rows latent"],
        action: Float[Tensor, "*batch action"],
        *,
        task: Int[Tensor, "*some"] | None = None,
        split: bool = False,
    ) -> Float[Tensor, "dynamics *batch latent"]:
        """The next latent by each dynamics head; with ``split`` from a latent of its own."""

    def reward(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*batch action"],
        *,
        task: Int[Tensor, "*some"] | None = None,
    ) -> Float[Tensor, "reward *batch 1"]:
        """Rewards of actions, by each reward head."""

    def termination(
        self, next_z: Float[Tensor, "*batch latent"], *, task: Int[Tensor, "*some"] | None = None
    ) -> Float[Tensor, "*batch 1"]:
        """Probability that the step which led to ``next_z`` ended the episode."""

    def value(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*batch action"] | None = None,
        *,
        task: Int[Tensor, "*some"] | None = None,
        network: Literal["online", "target"] = "online",
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "value *batch 1"]:
        """Values of latents, or of actions in them, by each value head."""

    def policy(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Int[Tensor, "*some"] | None = None,
        optimistic: bool = False,
    ) -> BoundedNormal:
        """The distribution of a policy's actions."""


class Noise(NamedTuple):
    """Everything that is random about a plan; standard normal where nothing else is said.

    Attributes:
        proposals: For the actions that the policy proposes.
        jitter: Added to them, scaled; None where the parameters ask for none.
        draws: For the plans of each round.
        choice: Standard exponential; the elite with the least of it per weight is chosen, which
            is each with the probability of its weight.
        action: Added to the first action, scaled.
        heads: Which value heads judge; None: all.
    """

    proposals: Float[Tensor, "time env proposal action"]
    jitter: Float[Tensor, "time env proposal action"] | None
    draws: Float[Tensor, "round time env draw action"]
    choice: Float[Tensor, "env elite"]
    action: Float[Tensor, "env action"]
    heads: Int[Tensor, " chosen"] | None = None


class Plan(NamedTuple):
    """The chosen action, and the plan that it begins.

    Attributes:
        action: What to do now.
        mean: The plan; the next one starts from it.
        std: How sure the plan is of its first action: the elites' standard deviation.
        metrics: Numbers for people, 0-d tensors.
    """

    action: Float[Tensor, "env action"]
    mean: Float[Tensor, "time env action"]
    std: Float[Tensor, "env action"]
    metrics: Mapping[str, Tensor]
