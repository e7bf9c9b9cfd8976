"""Copies of a world model as environments: all of a block step in one call."""

from __future__ import annotations

import sys

import numpy as np
import torch
from jaxtyping import Float32, Int, Shaped, UInt8
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import HumanPrior, IntrinsicReward, WorldModel
from empo_core.protocols.environments import Action, EnvSpec, TimeStep
from empo_core.types import WorldSpec
from empo_environments.batched_copies import BatchedCopies
from empo_environments.block_schedule import check_action
from empo_learning.state_cache import StateCache
from empo_world_environments.copies import GOAL, REASONS, Stage, WorldCopies
from empo_world_environments.observation import Learners, WorldObservation
from empo_worlds.roles import check_roles


class _ObservationBuffer:
    """Observations of a block, and the states that they show; None: none yet."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observations = np.zeros(shape, np.float32)
        self.rows: Tensor | None = None

    @property
    def references(self) -> int:
        """How many references to the array there are, those of its views among them."""
        return sys.getrefcount(self.observations)


UNHELD = _ObservationBuffer((0,)).references
"""References to an array that only its buffer holds."""


class WorldVectorEnv(BatchedCopies[WorldCopies]):
    """Many copies of a world, in which all robots learn, or all humans; a ``VectorEnv``.

    Robots are paid what ``reward`` says of the state that a step leads to, while humans pursue
    goals drawn by weight when an episode begins; nothing is paid for states in which the episode
    is over. Without a ``reward`` all robots are paid 1 whenever a human arrives at its goal for
    the first time, and the episode ends when all have arrived; robots do not see the goals.

    Humans are paid 1 for arriving at such a goal, which ends their part: with one human
    the episode, with several whoever has arrived acts at random from then on and learns nothing,
    until all have arrived or the episode is over. Robots act at random while humans learn.

    The observations of a time step stay as they are while somebody keeps them.

    Episodes end where the world is terminal, and at its horizon. Both are ``terminated``: in
    EMPO nothing is worth anything after the horizon, and how many steps are left is seen. Episodes
    are truncated only after ``steps_per_episode``, and with ``desync`` the first of each copy.

    Args:
        world: The world.
        copies: How many copies there are.
        learners: Who learns.
        reward: What robots are paid; None: learners are paid for goals that humans arrive at.
        prior: How humans act while robots learn; None: evenly at random.
        goal_resample_prob: Chance per step that a human with a prior pursues another goal.
        steps_per_episode: Steps after which episodes are truncated; None: see above.
        blocks: How many blocks the copies are divided into.
        desync: Whether to cut off first episodes, so that they do not all end together.
        terminal_observations: Whether to tell last observations of terminated episodes, too.
        first: Number of the first copy, which random numbers depend on.
        joint: Whether all robots of a copy are one agent, with a choice per robot.

    Raises:
        ConfigError: if no agent could learn.
        ValueError: if humans learn and have a ``reward``.
        UnsuitableWorldError: if an agent is neither human nor robot.
        SolveError: if a human has no goal that it could pursue.
    """

    def __init__(
        self,
        world: WorldModel,
        *,
        copies: int,
        learners: Learners = "robots",
        reward: IntrinsicReward | None = None,
        prior: HumanPrior | None = None,
        goal_resample_prob: float = 0.0,
        steps_per_episode: int | None = None,
        blocks: int = 1,
        desync: bool = False,
        terminal_observations: bool = False,
        first: int = 0,
        joint: bool = False,
    ) -> None:
        check_learners(world.spec, learners, pays_goals=reward is None)
        if reward is not None and learners == "humans":
            raise ValueError("humans are paid for reaching their goals: leave out the reward")
        super().__init__(copies, blocks, first)
        self._sight = WorldObservation(world.spec, learners, joint)
        self._stage = Stage(
            world,
            self._sight,
            prior,
            reward,
            goal_resample_prob,
            steps_per_episode,
            terminal_observations,
        )
        self._desync, self._terminal = desync, terminal_observations
        self._features = StateCache(
            lambda rows, _: self._sight.features(rows), world.spec.state_words, timeless=True
        )
        self._spec = world_spec(self._sight, copies, blocks, pays_goals=reward is None)
        self._shape = copies // blocks, len(self._spec.agents), self._spec.observations.words
        self._buffers: list[list[_ObservationBuffer]] = [[] for _ in range(blocks)]
        featurizer = world.spec.featurizer
        self._featurizer = featurizer if featurizer.can_update else None

    @property
    def spec(self) -> EnvSpec:
        """Constants of the copies."""
        return self._spec

    def render(self, number: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of a copy for people.

        Raises:
            ConfigError: if the world cannot draw itself.
        """
        size = self._shape[0]
        picture = self._stage.world.render(self.blocks[number // size].rows[number % size])
        if picture is None:
            raise ConfigError(f"world {self._stage.world.spec.name!r} cannot draw itself")
        return picture

    def begun(self, count: int, generator: torch.Generator) -> WorldCopies:
        """So many copies at the start of an episode."""
        return WorldCopies(self._stage, count, generator, self._desync)

    def act(self, copies: WorldCopies, action: Action) -> None:
        """Let everybody act.

        Raises:
            ValueError: if these are no actions for the block.
            CollectError: if the reward is no number.
        """
        check_action(self._spec, action, self._of_agents(copies.acts))
        copies.step(torch.from_numpy(action).view(copies.acts.shape))

    def time_step(self, block: int, copies: WorldCopies) -> TimeStep:
        """What the last step of a block led to."""
        buffer = self._unheld(block)
        observation, (_, agents, words) = buffer.observations, self._shape
        flags = copies.truncated | copies.terminated if self._terminal else copies.truncated
        ended = flags[:, :agents].numpy()
        final = copies.final if ended.any() else None
        if final is not None:  # Before the next episodes are seen, as a change of what was seen.
            last = observation.take(final.env.numpy(), 0)
            before = None if buffer.rows is None else buffer.rows[final.env]
            self._observe(last, final.rows, final.left, final.goals, before)
        self._observe(observation, copies.rows, copies.left, copies.goals, buffer.rows)
        buffer.rows = copies.rows.clone()
        final_row = np.flatnonzero(ended)
        if final is not None and len(final_row) == last.shape[0] * last.shape[1]:
            final_observation = last.reshape(-1, words)
        else:
            final_observation = observation.reshape(-1, words)[final_row]
            if final is not None:
                # Of several humans one can have arrived while the episode goes on.
                env = final.env.numpy()
                is_over = np.isin(final_row // agents, env)
                final_observation[is_over] = last[ended[env]]
        return TimeStep(
            block=block,
            observation=observation.reshape(-1, words),
            reward=self._of_agents(copies.reward),
            terminated=self._of_agents(copies.terminated),
            truncated=self._of_agents(copies.truncated),
            starts=self._of_agents(copies.starts),
            acts=self._of_agents(copies.acts),
            final_row=final_row,
            final_observation=final_observation,
            mask=self._sight.options(copies.available).reshape(len(ended) * agents, -1).numpy(),
            reason=self._of_agents(copies.reason),
        )

    def _of_agents(self, values: Shaped[Tensor, "env learner"]) -> Shaped[np.ndarray, " agent"]:
        """Values of all agents in a row; those of a joint agent are those of its first robot."""
        return values[:, : self._shape[1]].numpy().reshape(-1)

    def _unheld(self, block: int) -> _ObservationBuffer:
        """Observations to write to: the newest that nobody holds, or else a copy.

        Callers who drop observations once there are newer ones cost no copies: two take turns.
        """
        newest = self._buffers[block]
        unheld = [buffer for buffer in newest if buffer.references == UNHELD]
        if unheld:
            buffer = unheld[0]
        else:
            buffer = _ObservationBuffer(self._shape)
            if newest:
                buffer.observations[:] = newest[0].observations
                buffer.rows = newest[0].rows
        self._buffers[block] = [buffer, *(other for other in newest if other is not buffer)][:2]
        return buffer

    def _observe(
        self,
        out: Float32[np.ndarray, "env agent feature"],
        rows: Int[Tensor, "env word"],
        left: Int[Tensor, " env"],
        goals: Int[Tensor, "env human"] | None,
        shown_rows: Int[Tensor, "env word"] | None = None,
    ) -> None:
        """Write observations to ``out``, which has those of the states ``shown_rows`` or none."""
        sight = self._sight
        if shown_rows is not None and self._featurizer is not None:
            self._featurizer.update(out, shown_rows, rows)
        else:
            features = torch.from_numpy(out)[:, :, : sight.num_features]
            self._features(rows, left, features[:, 0])
            features[:, 1:] = features[:, :1]
        for learner in range(out.shape[1]):
            goal = goals[:, learner] if goals is not None and sight.learners == "humans" else None
            sight.annotate(out[:, learner], left, learner, goal)


def world_spec(
    observation: WorldObservation, copies: int, blocks: int = 1, *, pays_goals: bool
) -> EnvSpec:
    """Constants of so many copies of a world."""
    return EnvSpec(
        observations=observation.observations,
        actions=observation.actions,
        agents=observation.names,
        num_envs=copies,
        num_blocks=blocks,
        masks=True,
        reasons=REASONS if pays_goals else REASONS[:GOAL],
    )


def check_learners(spec: WorldSpec, learners: Learners, *, pays_goals: bool) -> None:
    """Refuse worlds in which no agent learns, or nothing says how some agent acts.

    Raises:
        ConfigError: if no agent learns, or no human has goals that could pay.
        UnsuitableWorldError: if an agent has no role.
    """
    check_roles(spec)
    if not (spec.robots if learners == "robots" else spec.humans):
        other = "humans" if learners == "robots" else "robots"
        raise ConfigError(
            f"algorithm.params.environment.learners: {spec.name!r} has no {learners} that could "
            f"learn; take a world that has some, or let its {other} learn"
        )
    if pays_goals and not spec.humans:
        raise ConfigError(
            f"algorithm.params.environment.reward: {spec.name!r} has no human whose goals could "
            "pay; take a world that has one"
        )
