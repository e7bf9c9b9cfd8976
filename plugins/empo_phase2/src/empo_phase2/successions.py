"""Successors in the order in which they are recorded, and choosing among them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.types import Successors, WorldSpec


class PairOrder:
    """Pairs as an experience counts them: humans' joint actions, and the robots' within.

    Attributes:
        profiles: How many joint actions the humans have.
        robot_actions: How many the robots have.
        of_robots: The joint action of all agents in which only the robots act, and everybody
            else does action 0 [robot_action agent].
    """

    def __init__(self, spec: WorldSpec) -> None:
        self.profiles, self.robot_actions = spec.num_human_actions, spec.num_robot_actions
        self._humans, self._robots = list(spec.humans), list(spec.robots)
        self.of_robots = _joint_actions(spec, spec.robots)
        self._spec = spec
        self._joint_actions = spec.num_joint_actions
        counts = [spec.num_actions[human] for human in spec.humans]
        self._human_strides = torch.tensor(
            [int(torch.tensor(counts[:k]).prod()) for k in range(len(counts))]
        )

    @cached_property
    def joint(self) -> Int[Tensor, " pair"]:
        """Index of the joint action of pair ``profile * robot_actions + robot_action``.

        Made where it is needed: many humans together have more actions than fit into memory.
        """
        strides = torch.tensor(self._spec.strides)
        of_humans = _joint_actions(self._spec, self._spec.humans)
        joint = (of_humans * strides).sum(1)[:, None] + (self.of_robots * strides).sum(1)
        return joint.flatten()

    def arranged(self, expanded: Successors, count: int) -> Successors:
        """The successors of ``count`` states under all joint actions, in this order."""
        first = torch.arange(count)[:, None] * self._joint_actions
        return pick(expanded, (first + self.joint).flatten())

    def profile(self, human_action: Int[Tensor, "env human"]) -> Int[Tensor, " env"]:
        """Which joint action of the humans it is."""
        return (human_action * self._human_strides).sum(1)

    def actions(
        self, human_action: Int[Tensor, "env human"], robot_action: Int[Tensor, " env"]
    ) -> Int[Tensor, "env agent"]:
        """One action per agent."""
        actions = self.of_robots[robot_action]
        actions[:, self._humans] = human_action
        return actions

    def under_every_robot_action(
        self, human_action: Int[Tensor, "env human"]
    ) -> Int[Tensor, "pair agent"]:
        """One action per agent, for pair ``env * robot_actions + robot_action``."""
        actions = self.of_robots.repeat(len(human_action), 1)
        actions[:, self._humans] = human_action.repeat_interleave(self.robot_actions, 0)
        return actions


def pick(successors: Successors, pairs: Int[Tensor, " pair"]) -> Successors:
    """The successors of some pairs, in the given order."""
    start = successors.offsets[pairs]
    counts = successors.offsets[pairs + 1] - start
    offsets = torch.zeros(len(pairs) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    total = int(offsets[-1])
    shift = torch.repeat_interleave(start - offsets[:-1], counts, output_size=total)
    items = shift + torch.arange(total)
    duration = None if successors.duration is None else successors.duration[items]
    return Successors(offsets, successors.states[items], successors.prob[items], duration)


def joined(parts: Sequence[Successors]) -> Successors:
    """The pairs of all parts, one part after the other."""
    ends = torch.tensor([0] + [len(part.prob) for part in parts]).cumsum(0)
    offsets = [part.offsets[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
    durations = [torch.ones_like(p.prob) if p.duration is None else p.duration for p in parts]
    return Successors(
        torch.cat([*offsets, ends[-1:]]),
        torch.cat([part.states for part in parts]),
        torch.cat([part.prob for part in parts]),
        None if all(part.duration is None for part in parts) else torch.cat(durations),
    )


def draw(
    prob: Float[Tensor, "*batch choice"], uniform: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """The choice that a number in [0, 1) falls on; never one of probability 0.

    Similar distributions mostly give the same choice for the same number.
    """
    total = prob.double().cumsum(-1)
    whole = total[..., -1]
    # Rounding may lift the product to the whole itself, which is nobody's share.
    target = torch.minimum(uniform * whole, whole.nextafter(torch.zeros_like(whole)))
    return (total <= target[..., None]).sum(-1)


def _joint_actions(spec: WorldSpec, agents: Sequence[int]) -> Int[Tensor, "choice agent"]:
    """All joint actions of some agents, the first counting fastest; 0 for everybody else."""
    number = 1
    for agent in agents:
        number *= spec.num_actions[agent]
    actions = torch.zeros(number, len(spec.agents), dtype=torch.int64)
    rest = torch.arange(number)
    for agent in agents:
        actions[:, agent] = rest % spec.num_actions[agent]
        rest = rest // spec.num_actions[agent]
    return actions
