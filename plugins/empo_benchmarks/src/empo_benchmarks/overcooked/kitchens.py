"""Copies of a kitchen as environments: all of a block step in one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor

from empo_benchmarks.overcooked import kernel
from empo_benchmarks.overcooked.kitchen import ACTIONS
from empo_benchmarks.overcooked.world import OvercookedWorld
from empo_benchmarks.row_copies import RowCopies, steps_left
from empo_core.errors import ConfigError
from empo_core.protocols import HumanPrior
from empo_core.protocols.environments import Action, ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_environments.batched_copies import BatchedCopies
from empo_environments.block_schedule import check_action
from empo_worlds.policy_checks import human_policy

SHAPED = torch.tensor([0.0, 3.0, 3.0, 5.0, 0.0])
"""What the game pays for the events of ``kernel`` on the way to soups."""
SOUP = 20.0
"""What it pays for a soup."""


@dataclass(frozen=True)
class Partner:
    """A human who does not learn, and the goal that it pursues."""

    prior: HumanPrior
    goal: int


class KitchenVectorEnv(BatchedCopies[RowCopies]):
    """Many copies of a kitchen, in which both cooks learn, or the robot; a ``VectorEnv``.

    Both are paid for what either does. Soups count for nothing once they are paid for, so that the
    goal to serve one never ends. An agent sees its view of the world. Episodes are truncated at the
    world's horizon: how many steps are left is not seen.

    Args:
        world: The kitchen.
        copies: How many copies there are.
        shaping: Factor of what is paid on the way to soups.
        partner: The human where only the robot learns.
        blocks: How many blocks the copies are divided into.
        desync: Whether first episodes are shorter, so that they do not all end together.
        first: Number of the first copy, which random numbers depend on.

    Raises:
        ConfigError: if episodes in the kitchen never end.
    """

    def __init__(
        self,
        world: OvercookedWorld,
        *,
        copies: int,
        shaping: float,
        partner: Partner | None = None,
        blocks: int = 1,
        desync: bool = False,
        first: int = 0,
    ) -> None:
        if world.spec.horizon is None:
            raise ConfigError("environment 'overcooked' needs world_model.params.max_steps")
        super().__init__(copies, blocks, first)
        self._world, self._partner, self._desync = world, partner, desync
        self._pay = shaping * SHAPED
        self._pay[kernel.SOUP_SERVED] = SOUP
        self._spec = env_spec(world, is_alone=partner is not None, copies=copies, blocks=blocks)

    @property
    def spec(self) -> EnvSpec:
        """Constants of the copies."""
        return self._spec

    def begun(self, count: int, generator: torch.Generator) -> RowCopies:
        """So many copies at the start of an episode."""
        left = steps_left(self._world.spec.horizon or 1, count, generator, desync=self._desync)
        rows, nothing = self._world.initial_state().repeat(count, 1), torch.zeros(count).bool()
        return RowCopies(
            rows, left, torch.zeros(count), nothing, ~nothing, rows[:0], generator=generator
        )

    def act(self, copies: RowCopies, action: Action) -> None:
        """Let everybody act; episodes that end are followed by the next ones at once."""
        check_action(self._spec, action, np.ones(len(action), np.bool_))
        actions = torch.from_numpy(action).view(-1, len(self._spec.agents))
        if self._partner is not None:
            policy = human_policy(self._world, self._partner.prior, copies.rows, 1)
            partner_policy = policy[:, self._partner.goal, : len(ACTIONS)]
            human = torch.multinomial(partner_policy, 1, generator=copies.generator)
            actions = torch.cat([actions, human], 1)
        rows, events = kernel.successors(
            self._world.kitchen, copies.rows.numpy(), actions.contiguous().numpy()
        )
        copies.rows = torch.from_numpy(rows)
        copies.rows[:, -1] = 0
        copies.reward = self._pay[torch.from_numpy(events).long()].sum(1)
        copies.left = copies.left - 1
        copies.over = copies.left == 0
        copies.final = copies.rows[copies.over]
        copies.rows[copies.over] = self._world.initial_state()
        copies.left[copies.over] = self._spec.max_episode_steps or 1
        copies.begins = copies.over

    def time_step(self, block: int, copies: RowCopies) -> TimeStep:
        """What the last step of a block led to."""
        agents = len(self._spec.agents)
        over = copies.over.repeat_interleave(agents).numpy()
        return TimeStep(
            block=block,
            observation=self._views(copies.rows),
            reward=copies.reward.repeat_interleave(agents).numpy(),
            terminated=np.zeros_like(over),
            truncated=over,
            starts=copies.begins.repeat_interleave(agents).numpy(),
            acts=np.ones_like(over),
            final_row=np.flatnonzero(over),
            final_observation=self._views(copies.final),
        )

    def _views(self, rows: Int16[Tensor, "env word"]) -> Float[np.ndarray, "agent feature"]:
        """What the agents that learn see, copy by copy."""
        return self._world.views(rows)[:, : len(self._spec.agents)].flatten(0, 1).numpy()


def env_spec(world: OvercookedWorld, *, is_alone: bool, copies: int, blocks: int) -> EnvSpec:
    """Constants of so many copies of a kitchen, in which the robot is the only learner or not."""
    names = tuple(agent.name for agent in world.spec.agents)
    return EnvSpec(
        observations=ObservationSpec(sum(world.kitchen.values)),
        actions=ActionSpec(choices=(len(ACTIONS),)),
        agents=names[:1] if is_alone else names,
        num_envs=copies,
        num_blocks=blocks,
        max_episode_steps=world.spec.horizon,
    )
