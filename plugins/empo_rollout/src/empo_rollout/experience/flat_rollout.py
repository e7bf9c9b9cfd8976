"""A rollout laid out in columns, from which minibatches and microbatches are taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from empo_rollout.experience.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Minibatch:
    """The columns of one optimiser step, in all processes together.

    Attributes:
        name: For error messages, e.g. "minibatch 2 of epoch 1".
        columns: Positions in the ``FlatRollout``.
        advantage: Normalised over the whole minibatch, times the importance weights of
            prioritised sampling; 0 where a step has no weight.
        total_weight: Sum of the weights of all steps, in all processes: what means are divided by.
    """

    name: str
    columns: Int[Tensor, " column"]
    advantage: Float[Tensor, "time column"]
    total_weight: float


@dataclass(slots=True)
class Microbatch:
    """Copies of some columns of a minibatch: one forward and one backward pass.

    ``observation`` and ``starts`` keep axes for time and column, since recurrent policies are
    unrolled over them; ``row`` is both in one.

    Attributes:
        observation: What agents saw.
        starts: The observation is the first of an episode.
        memory: State of the policy's memory before the first step of each column.
        agent: Position of the agent in its environment.
        action: What it did.
        log_prob: Log-probability of that under the policy that acted.
        value: Value estimate of that policy.
        returns: Targets of the value function.
        weight: How much each step counts in losses; 0 masks it out.
        mask: Which actions were available; None where all always are.
        advantage: As in ``Minibatch``; zeros where a policy is only evaluated.
        share: Sum of ``weight`` as a share of the minibatch's ``total_weight``.
    """

    observation: Shaped[Tensor, "time column word"]
    starts: Bool[Tensor, "time column"]
    memory: Float[Tensor, "column unit"]
    agent: Int[Tensor, " column"]
    action: Float[Tensor, "row number"]
    log_prob: Float[Tensor, " row"]
    value: Float[Tensor, " row"]
    returns: Float[Tensor, " row"]
    weight: Float[Tensor, " row"]
    mask: Bool[Tensor, "row option"] | None
    advantage: Float[Tensor, " row"]
    share: float = 1.0

    @property
    def row_agent(self) -> Int[Tensor, " row"]:
        """The agent of each row."""
        horizon = self.observation.shape[0]
        return self.agent if horizon == 1 else self.agent.repeat(horizon)


class FlatRollout:
    """A rollout in columns: its segments, or its single steps, each a column of one step."""

    def __init__(
        self,
        rollout: Rollout,
        returns: Float[Tensor, "time segment"],
        weight: Float[Tensor, "time segment"],
        *,
        num_agents: int,
        by_steps: bool,
    ) -> None:
        """Arrange a rollout, which must not change from now on.

        ``returns`` are finite, and a step whose ``weight`` is 0 counts in no loss. Columns can only
        be single steps for policies without memory.
        """
        horizon = rollout.observation.shape[0]
        self._by_steps = by_steps
        self._observation = self.arranged(rollout.observation)
        self._starts = self.arranged(rollout.starts)
        self._mask = None if rollout.mask is None else self.arranged(rollout.mask)
        agent = rollout.agent % num_agents
        self._agent = agent.repeat(horizon) if by_steps else agent
        memory = rollout.memory
        self._memory = memory.new_zeros(len(self._agent), 0) if by_steps else memory
        # Side by side, so that they are picked together.
        numbers = torch.stack((rollout.log_prob, rollout.value, returns, weight), -1)
        self._numbers = self.arranged(torch.cat((numbers, rollout.action.to(numbers.dtype)), -1))
        self.weight: Float[Tensor, "step column"] = self.arranged(weight)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._agent)

    def arranged(
        self, values: Shaped[Tensor, "time segment *rest"]
    ) -> Shaped[Tensor, "step column *rest"]:
        """Tensors of the rollout's steps, in columns; without a copy."""
        return values.flatten(0, 1).unsqueeze(0) if self._by_steps else values

    def microbatches(self, minibatch: Minibatch, passes: int) -> Iterator[Microbatch]:
        """A minibatch in so many parts of (almost) equal size."""
        parts = [(minibatch.columns, minibatch.advantage)]
        if passes > 1:
            columns = minibatch.columns.tensor_split(passes)
            parts = list(zip(columns, minibatch.advantage.tensor_split(passes, 1), strict=True))
        for chosen, advantage in parts:
            part = self.microbatch(chosen)
            part.advantage = advantage.flatten()
            part.share = float(part.weight.sum()) / minibatch.total_weight
            yield part

    def microbatch(self, columns: Int[Tensor, " column"]) -> Microbatch:
        """Copies of some columns, with advantages of 0."""
        # Kinds first: what is contiguous is sooner computed with.
        numbers = self._numbers.index_select(1, columns).flatten(0, 1).t().contiguous()
        log_prob, value, returns, weight = numbers[:4].unbind()
        mask = self._mask
        return Microbatch(
            self._observation.index_select(1, columns),
            self._starts.index_select(1, columns),
            self._memory.index_select(0, columns),
            self._agent.index_select(0, columns),
            numbers[4:].t(),
            log_prob,
            value,
            returns,
            weight,
            None if mask is None else mask.index_select(1, columns).flatten(0, 1),
            torch.zeros_like(weight),
        )
