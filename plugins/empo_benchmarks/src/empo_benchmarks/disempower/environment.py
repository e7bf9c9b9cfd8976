"""Environment ``disempower``: copies of the run's board, in which humans or the assistant learn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_benchmarks.disempower.board import ASSISTANT, HUMAN_ACTIONS, HUMANS, Board
from empo_benchmarks.disempower.objectives import objective
from empo_benchmarks.disempower.params import BoardsParams
from empo_benchmarks.disempower.world import DisempowerWorld
from empo_benchmarks.row_copies import RowCopies, steps_left
from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.protocols import Environment, HumanPrior
from empo_core.protocols.environments import (
    Action,
    ActionSpec,
    EnvironmentContext,
    EnvSpec,
    ObservationSpec,
    TimeStep,
    VectorEnv,
    VectorLayout,
)
from empo_environments.batched_copies import BatchedCopies
from empo_environments.block_schedule import check_action
from empo_learning.state_cache import StateCache
from empo_worlds.policy_checks import human_policy


class Boards(Environment):
    """Copies of the run's board; implements kind ``environment``."""

    uses_world = True

    def __init__(
        self, params: BoardsParams, context: EnvironmentContext, registry: Registry | None = None
    ) -> None:
        """Check the world.

        Args:
            params: Who learns, what it is paid, and how humans act beside an assistant.
            context: Has the world.
            registry: Where names are looked up; default: the installed plugins.

        Raises:
            ConfigError: if the world is another one.
        """
        world = context.world
        if not isinstance(world, DisempowerWorld):
            actual = "there is none" if world is None else f"it is {world.spec.name!r}"
            raise ConfigError(f"environment 'disempower' needs 'world_model: disempower'; {actual}")
        self.name, self._world, self._params = world.spec.name, world, params
        self._registry = registry

    def spec(self) -> EnvSpec:
        """Constants of one copy."""
        return env_spec(self._world, "assistant" if self._params.reward else "humans")

    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Copies, of which all of a block step in one call."""
        return BoardsVectorEnv(self._world, self._params.reward, self._humans, num_envs, layout)

    @cached_property
    def _humans(self) -> HumanPrior | None:
        reference = self._params.human_prior
        if reference is None:
            return None
        prior: HumanPrior = build(reference, self._world, registry=self._registry)
        return prior


class BoardsVectorEnv(BatchedCopies["_Copies"]):
    """Many copies of a board, in which both humans learn, or the assistant; a ``VectorEnv``.

    A human is paid 1 for each step that it ends on its true goal, with its key where there is one,
    and -1 on a trap; as in the publication, such a step ends an episode for the learner, while the
    board goes on. Meanwhile the assistant acts evenly at random. An assistant that learns is paid
    for the state after each step, beside humans who pursue their true goals as a prior says, or act
    evenly at random. Boards begin anew after their steps. Everybody sees the same, their view.

    Args:
        world: The board.
        reward: What the assistant is paid for; None: humans learn.
        humans: How humans act who do not learn; None: evenly at random.
        copies: How many copies there are.
        layout: Their division into blocks.
    """

    def __init__(
        self,
        world: DisempowerWorld,
        reward: str | None,
        humans: HumanPrior | None,
        copies: int,
        layout: VectorLayout,
    ) -> None:
        super().__init__(copies, layout.blocks, layout.first)
        self._world, self._desync = world, layout.desync
        learners = "humans" if reward is None else "assistant"
        self._spec = env_spec(world, learners, copies, layout.blocks)
        board, words = world.board, world.spec.state_words
        self._humans: StateCache | None = None
        self._paid: StateCache | None = None
        if humans is not None:
            truly = [human * board.cells + goal for human, goal in enumerate(true_goals(board))]
            self._humans = StateCache(
                lambda rows, _: human_policy(world, humans, rows.short(), 1)[:, truly],
                words,
                timeless=True,
            )
        if reward is not None:
            self._paid = StateCache(
                lambda rows, _: torch.from_numpy(
                    objective(reward, board, rows.to(torch.int16).numpy())
                ),
                words,
                timeless=True,
            )

    @property
    def spec(self) -> EnvSpec:
        """Constants of the copies."""
        return self._spec

    def begun(self, count: int, generator: torch.Generator) -> _Copies:
        """So many copies at the start of an episode."""
        left = steps_left(self._world.spec.horizon or 1, count, generator, desync=self._desync)
        rows = self._world.initial_state().repeat(count, 1)
        nothing = torch.zeros(count, len(self._spec.agents), dtype=torch.bool)
        return _Copies(
            rows,
            left,
            reward=torch.zeros(nothing.shape),
            over=nothing[:, 0].clone(),
            begins=~nothing,
            final=rows[:0],
            generator=generator,
            ended=nothing,
        )

    def act(self, copies: _Copies, action: Action) -> None:
        """Let everybody act; boards whose steps are over are followed by the next ones at once."""
        check_action(self._spec, action, np.ones(len(action), np.bool_))
        learned = torch.from_numpy(action).view(len(copies.rows), -1)
        joint = torch.cat(
            [learned, self._assistant(copies)]
            if self._paid is None
            else [self._human_actions(copies), learned],
            1,
        )
        rows = self._world.step(copies.rows, joint, copies.generator)
        if self._paid is None:
            copies.reward = pay(self._world.board, rows)
            copies.ended = copies.reward != 0
        else:
            copies.reward = self._paid(rows, copies.left).float()[:, None]
        copies.left = copies.left - 1
        copies.over = copies.left == 0
        copies.final = rows[copies.over]
        copies.rows = rows.clone()
        copies.rows[copies.over] = self._world.initial_state()
        copies.left[copies.over] = self._spec.max_episode_steps or 1
        copies.begins = copies.over[:, None] | copies.ended

    def time_step(self, block: int, copies: _Copies) -> TimeStep:
        """What the last step of a block led to."""
        agents = len(self._spec.agents)
        ended = copies.ended.flatten().numpy()
        over = copies.over.repeat_interleave(agents).numpy()
        cut = over & ~ended
        return TimeStep(
            block=block,
            observation=self._seen(copies.rows),
            reward=copies.reward.flatten().numpy(),
            terminated=ended,
            truncated=cut,
            starts=copies.begins.flatten().numpy(),
            acts=np.ones_like(ended),
            final_row=np.flatnonzero(cut),
            final_observation=self._seen(copies.final)[cut[over]],
        )

    def _assistant(self, copies: _Copies) -> Int[Tensor, "env 1"]:
        """An assistant at random."""
        choices = self._world.spec.num_robot_actions
        return torch.randint(choices, (len(copies.rows), 1), generator=copies.generator)

    def _human_actions(self, copies: _Copies) -> Int[Tensor, "env human"]:
        """Humans who pursue their true goals, or act at random."""
        if self._humans is None:
            shape = (len(copies.rows), HUMANS)
            return torch.randint(len(HUMAN_ACTIONS), shape, generator=copies.generator)
        policy = self._humans(copies.rows.long(), copies.left)
        drawn = [
            torch.multinomial(policy[:, human], 1, generator=copies.generator)
            for human in range(HUMANS)
        ]
        return torch.cat(drawn, 1)

    def _seen(self, rows: Int16[Tensor, "env word"]) -> Float[np.ndarray, "agent feature"]:
        """What the learners see, copy by copy."""
        agents = len(self._spec.agents)
        return self._world.views(rows)[:, :agents].flatten(0, 1).numpy()


def true_goals(board: Board) -> list[int]:
    """The cells that user and bystander really want to be in."""
    goals = [board.cell(goal) for goal in board.layout.goal_pos]
    return [goals[0], goals[-1]]


def pay(board: Board, rows: Int16[Tensor, "state word"]) -> Float[Tensor, "state human"]:
    """1 for each human on its true goal, with its key where there is one; -1 on a trap."""
    reward, goals = torch.zeros(len(rows), HUMANS), true_goals(board)
    traps = torch.from_numpy(board.rules.is_trap)
    for human in range(HUMANS):
        cell = rows[:, human].long()
        has_key = rows[:, board.key_word + human] > 0 if board.has_keys else True
        reward[:, human] = ((cell == goals[human]) & has_key).float()
        reward[:, human] -= traps[cell].float()
    return reward


@dataclass(slots=True)
class _Copies(RowCopies):
    """Boards; ``ended`` says whether a learner's episode ended, while the board goes on."""

    ended: Bool[Tensor, "env learner"]


def env_spec(world: DisempowerWorld, learners: str, copies: int = 1, blocks: int = 1) -> EnvSpec:
    """Constants of so many copies, in which the humans learn or the assistant."""
    names = tuple(agent.name for agent in world.spec.agents)
    is_human = learners == "humans"
    choices = len(HUMAN_ACTIONS) if is_human else world.spec.num_robot_actions
    return EnvSpec(
        observations=ObservationSpec(world.board.view_words),
        actions=ActionSpec(choices=(choices,)),
        agents=names[:ASSISTANT] if is_human else names[ASSISTANT:],
        num_envs=copies,
        num_blocks=blocks,
        max_episode_steps=world.spec.horizon,
    )
