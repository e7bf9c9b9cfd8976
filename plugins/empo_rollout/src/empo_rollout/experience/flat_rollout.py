"""A rollout as what optimiser steps are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.distributions import Distribution

from empo_rollout.experience.minibatches import Minibatch
from empo_rollout.experience.rollout import Rollout


@dataclass(slots=True)
class Microbatch:
    """Some columns of a rollout, as one forward and backward pass needs them.

    Each is a segment. What a policy unrolls has axes for time and segment; everything else has one
    for both, ``row``.
    """

    observation: Shaped[Tensor, "time segment word"]
    starts: Bool[Tensor, "time segment"]
    memory: Float[Tensor, "segment unit"]
    agent: Int[Tensor, " segment"]
    action: Float[Tensor, "row number"]
    log_prob: Float[Tensor, " row"]
    value: Float[Tensor, " row"]
    returns: Float[Tensor, " row"]
    weight: Float[Tensor, " row"]
    mask: Bool[Tensor, "row option"] | None

    @property
    def row_agent(self) -> Int[Tensor, " row"]:
        """The agent of each row."""
        horizon = self.observation.shape[0]
        return self.agent if horizon == 1 else self.agent.repeat(horizon)


class FlatRollout:
    """A rollout in columns: its segments, or its single steps, each a segment of one step."""

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

        Args:
            rollout: What happened.
            returns: What each observation turned out to be worth; finite.
            weight: How much each step counts in losses; 0 masks it out.
            num_agents: Agents of an environment; slots are counted environment by environment.
            by_steps: Whether columns are single steps, for policies without memory.
        """
        horizon = rollout.observation.shape[0]
        self._by_steps = by_steps
        self._observation = self._columns(rollout.observation)
        self._starts = self._columns(rollout.starts)
        self._action = self._columns(rollout.action.to(torch.float32))
        self._mask = None if rollout.mask is None else self._columns(rollout.mask)
        agent = rollout.agent % num_agents
        self._agent = agent.repeat(horizon) if by_steps else agent
        memory = rollout.memory
        self._memory = memory.new_zeros(len(self._agent), 0) if by_steps else memory
        # Side by side, so that they are picked together.
        numbers = (rollout.log_prob, rollout.value, returns, weight)
        self._numbers = self._columns(torch.stack(numbers, -1))
        self.weight = self._columns(weight)

    @property
    def num_columns(self) -> int:
        """How many columns there are."""
        return len(self._agent)

    def arranged(self, values: Float[Tensor, "time segment"]) -> Float[Tensor, "step column"]:
        """Numbers of each step of the rollout, in columns."""
        return self._columns(values)

    def chosen(self, minibatch: Minibatch) -> Int[Tensor, " chosen"]:
        """The columns that a minibatch consists of."""
        columns = minibatch.steps if self._by_steps else minibatch.segments
        assert columns is not None
        return columns

    def part(self, columns: Int[Tensor, " chosen"]) -> Microbatch:
        """Copies of some columns."""
        numbers = self._numbers.index_select(1, columns).flatten(0, 1)
        log_prob, value, returns, weight = numbers.unbind(1)
        mask = self._mask
        return Microbatch(
            self._observation.index_select(1, columns),
            self._starts.index_select(1, columns),
            self._memory.index_select(0, columns),
            self._agent.index_select(0, columns),
            self._action.index_select(1, columns).flatten(0, 1),
            log_prob,
            value,
            returns,
            weight,
            None if mask is None else mask.index_select(1, columns).flatten(0, 1),
        )

    def _columns(self, values: Tensor) -> Tensor:
        return values.flatten(0, 1).unsqueeze(0) if self._by_steps else values


class PolicyAtStarts:
    """The policy as policy losses see it: at the features of one batch, and at no others.

    Its distributions were made by the whole network, so that gradients reach all of it, though
    the features that the loss was given are constants.
    """

    def __init__(self, start: Float[Tensor, "row feature"], distribution: Distribution) -> None:
        self._start, self._distribution = start, distribution

    def __call__(self, features: Tensor) -> Distribution:
        """The distributions at these features.

        Raises:
            ValueError: They are not the ``start`` of the batch.
        """
        start = self._start
        same = features.shape == start.shape
        if not (same and (features.data_ptr() == start.data_ptr() or torch.equal(features, start))):
            raise ValueError(
                f"the policy was asked about features of shape {tuple(features.shape)} that are "
                f"not batch.start, of shape {tuple(start.shape)}: a policy loss of algorithm "
                "'rollout' can ask about the observed states alone, since there is no world model"
            )
        return self._distribution
