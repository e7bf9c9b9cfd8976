"""Copies of a kitchen as environments: all of a block step in one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_core.protocols import HumanPrior
from empo_core.protocols.environments import Action, ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_core.trees import StateDict
from empo_environments.block_schedule import BlockScheduler, check_action
from empo_overcooked import kernel
from empo_overcooked.kitchen import ACTIONS, COOK_WORDS
from empo_overcooked.world import OvercookedWorld

SHAPED = torch.tensor([0.0, 3.0, 3.0, 5.0, 0.0])
"""What the game pays for the events of ``kernel`` on the way to soups."""
SOUP = 20.0
"""What it pays for a soup."""


@dataclass(frozen=True)
class Partner:
    """A human who does not learn, and the goal that it pursues."""

    prior: HumanPrior
    goal: int


class KitchenVectorEnv:
    """Many copies of a kitchen, in which both cooks learn, or the robot; a ``VectorEnv``.

    Both are paid for what either does. Soups count for nothing once they are paid for, so that the
    goal to serve one never ends. An agent sees the state's features with itself as the first cook.
    Episodes are truncated at the world's horizon: how many steps are left is not seen.

    Args:
        world: The kitchen.
        copies: How many copies there are.
        shaping: Factor of what is paid on the way to soups.
        partner: The human where only the robot learns.
        blocks: How many blocks the copies are divided into.
        desync: Whether first episodes are shorter, so that they do not all end together.
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
    ) -> None:
        if copies % blocks:
            raise ValueError(f"{copies} copies cannot be divided into {blocks} equal blocks")
        self._world, self._partner, self._desync = world, partner, desync
        self._pay = shaping * SHAPED
        self._pay[kernel.SOUP_SERVED] = SOUP
        self._turns = BlockScheduler(blocks, "rotation")
        self._blocks: list[_Copies] = []
        self._spec = env_spec(world, is_alone=partner is not None, copies=copies, blocks=blocks)

    @property
    def spec(self) -> EnvSpec:
        """Constants of the copies."""
        return self._spec

    def start(self, seed: int) -> None:
        """Begin an episode in every copy."""
        self._begin(seed)
        self._turns.begin()

    def recv(self) -> TimeStep:
        """The next block, in strict turns.

        Raises:
            ValueError: None is under way.
        """
        (block,) = self._turns.awaited()
        self._turns.arrive(block)
        return self._arrival(block)

    def send(self, block: int, action: Action) -> None:
        """Let a block act.

        Raises:
            ValueError: It has not arrived, or these are no actions for it.
        """
        self._turns.check(block)
        agents = len(self._spec.agents)
        check_action(self._spec, action, np.ones(len(action), np.bool_))
        self._step(self._blocks[block], torch.from_numpy(action).view(-1, agents))
        self._turns.leave(block)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        return {
            "queue": self._turns.queue(),
            "blocks": [copies.state_dict() for copies in self._blocks],
        }

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Go on from what ``state_dict`` returned; always exactly."""
        self._begin(0)
        for copies, state in zip(self._blocks, state_dict["blocks"], strict=True):
            copies.load_state_dict(state)
        self._turns.begin(state_dict["queue"])
        return True

    def close(self) -> None:
        """Nothing: no processes and no files belong to it."""

    def _begin(self, seed: int) -> None:
        count = self._spec.num_envs // self._spec.num_blocks
        # A generator per block, so that blocks do not depend on each other's turns.
        seeds = np.random.SeedSequence(seed).generate_state(self._spec.num_blocks, np.uint64) >> 1
        self._blocks = [
            _Copies.of(self._world, count, torch.Generator().manual_seed(own), self._desync)
            for own in seeds.tolist()
        ]

    def _step(self, copies: _Copies, options: Int[Tensor, "env learner"]) -> None:
        """Let everybody act; episodes that end are followed by the next ones at once."""
        actions = options
        if self._partner is not None:
            policy = self._partner.prior.policy(copies.rows, 1)[:, self._partner.goal]
            human = torch.multinomial(policy, 1, generator=copies.generator)
            actions = torch.cat([options, human], 1)
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

    def _arrival(self, block: int) -> TimeStep:
        copies, agents = self._blocks[block], len(self._spec.agents)
        over = copies.over.repeat_interleave(agents).numpy()
        return TimeStep(
            block=block,
            observation=seen(self._world, copies.rows, agents).numpy(),
            reward=copies.reward.repeat_interleave(agents).numpy(),
            terminated=np.zeros_like(over),
            truncated=over,
            starts=copies.begins.repeat_interleave(agents).numpy(),
            acts=np.ones_like(over),
            final_row=np.flatnonzero(over),
            final_observation=seen(self._world, copies.final, agents).numpy(),
        )


STATE = ("rows", "left", "reward", "over", "begins", "final")


@dataclass(slots=True)
class _Copies:
    """Copies of a kitchen in the middle of their episodes, and the outcome of the last step."""

    rows: Int16[Tensor, "env word"]
    left: Int[Tensor, " env"]
    reward: Float[Tensor, " env"]
    over: Bool[Tensor, " env"]
    begins: Bool[Tensor, " env"]
    final: Int16[Tensor, "final word"]
    generator: torch.Generator

    @classmethod
    def of(
        cls, world: OvercookedWorld, count: int, generator: torch.Generator, desync: bool
    ) -> _Copies:
        """Begin an episode in each copy."""
        steps, start = world.spec.horizon or 1, world.initial_state()
        left = torch.full((count,), steps)
        if desync:
            left = torch.randint(1, steps + 1, (count,), generator=generator)
        rows, nothing = start.repeat(count, 1), torch.zeros(count, dtype=torch.bool)
        return cls(rows, left, torch.zeros(count), nothing, ~nothing, rows[:0], generator)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        state = {name: getattr(self, name).clone() for name in STATE}
        return state | {"generator": self.generator.get_state()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name in STATE:
            setattr(self, name, state_dict[name].clone())
        self.generator.set_state(state_dict["generator"])


def seen(
    world: OvercookedWorld, rows: Int16[Tensor, "env word"], agents: int
) -> Float[Tensor, "agent feature"]:
    """What the first agents of each copy see: itself, the other cook, the kitchen."""
    order = np.arange(rows.shape[1])
    order[: 2 * COOK_WORDS] = np.roll(order[: 2 * COOK_WORDS], COOK_WORDS)
    views = torch.stack([rows, rows[:, order]][:agents], 1).flatten(0, 1)
    return world.spec.featurizer(views).flat()


def env_spec(world: OvercookedWorld, *, is_alone: bool, copies: int, blocks: int) -> EnvSpec:
    """Constants of so many copies of a kitchen, in which the robot is the only learner or not."""
    names = tuple(agent.name for agent in world.spec.agents)
    return EnvSpec(
        observations=ObservationSpec(world.spec.featurizer.shape.flat),
        actions=ActionSpec(choices=(len(ACTIONS),)),
        agents=names[:1] if is_alone else names,
        num_envs=copies,
        num_blocks=blocks,
        max_episode_steps=world.spec.horizon,
    )
