"""Many copies of a world model, of which all take their steps at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import CollectError
from empo_core.protocols import HumanPrior, IntrinsicReward, WorldModel
from empo_core.trees import StateDict
from empo_learning.state_cache import StateCache
from empo_world_environments.goals import Goals, arrived, draw
from empo_world_environments.observation import WorldObservation
from empo_worlds.contract import available_in, initial_states_of
from empo_worlds.policy_checks import checked_human_policy

REASONS = ("terminal", "horizon", "cut", "goal")
TERMINAL, HORIZON, CUT, GOAL = range(4)
"""No agent can act any more; no steps are left; the episode was cut off; a human arrived."""

STATE = (
    "rows", "left", "available", "cut", "acts", "has_arrived", "starts", "reward", "terminated",
    "truncated", "reason",
)  # fmt: skip
"""Parts of the copies besides goals and generator."""

MOST_STEPS = 1000
"""Up to so many steps the first episode is cut at, where a world has no horizon."""


class Stage:
    """A world model with the learners' observations, the others' policies and the reward.

    Attributes:
        world: The world.
        sight: What learners see.
        goals: Those that humans pursue; None where no prior and no learner needs one.
        pays_goals: Whether learners are paid when humans arrive at the goals they pursue.
        goal_resample_prob: Chance per step that a human pursues another goal.
        steps_per_episode: Steps after which episodes are cut off; None cuts none.
        terminal_observations: Whether ``WorldCopies.final`` has terminated episodes, too.
        initial: The states that episodes start in.
        available: Which actions everybody has there.
    """

    def __init__(
        self,
        world: WorldModel,
        sight: WorldObservation,
        prior: HumanPrior | None,
        reward: IntrinsicReward | None,
        goal_resample_prob: float = 0.0,
        steps_per_episode: int | None = None,
        terminal_observations: bool = False,
    ) -> None:
        self.world, self.sight = world, sight
        self.terminal_observations = terminal_observations
        self.steps_per_episode = steps_per_episode
        self.goal_resample_prob = goal_resample_prob
        self.pays_goals = reward is None
        self.goals = Goals(world.spec) if self.pays_goals or prior is not None else None
        self.initial = initial_states_of(world)
        self.available = available_in(world, self.initial.states)
        self._reward = reward
        words = world.spec.state_words
        self._prior = None
        if prior is not None:

            def policies(rows: Tensor, left: Tensor) -> Tensor:
                return checked_human_policy(world, rows, prior.policy(rows, left))

            self._prior = StateCache(policies, words)
        learners = set(sight.agents)
        self._others = [i for i in range(len(world.spec.agents)) if i not in learners]

    @property
    def episode_steps(self) -> int:
        """Steps left when an episode begins; 1 throughout where the world has no horizon."""
        return self.world.spec.horizon or 1

    def joint(
        self, copies: WorldCopies, options: Int[Tensor, "env learner"], generator: torch.Generator
    ) -> Int[Tensor, "env agent"]:
        """Actions of all agents: the given ones of learners, sampled ones of the others."""
        spec = self.world.spec
        actions = torch.zeros((len(copies.rows), len(spec.agents)), dtype=torch.int64)
        actions[:, list(self.sight.agents)] = options
        chances = copies.available[:, self._others].to(torch.float64)
        if self._prior is not None and copies.goals is not None:
            policy = self._prior(copies.rows, copies.left)
            for position, human in enumerate(spec.humans):
                goal_policy = policy[torch.arange(len(policy)), copies.goals[:, position]]
                place = self._others.index(human)
                chances[:, place] = 0.0
                chances[:, place, : goal_policy.shape[1]] = goal_policy.to(torch.float64)
        actions[:, self._others] = draw(chances, generator)
        if not copies.acts.all():  # Whoever has arrived goes on, but not on purpose.
            idle = (~copies.acts).nonzero()
            agents = torch.tensor(self.sight.agents)[idle[:, 1]]
            even = copies.available[idle[:, 0], agents].to(torch.float64)
            actions[idle[:, 0], agents] = draw(even, generator)
        return actions

    def pay(
        self, rows: Int[Tensor, "env word"], left: Int[Tensor, " env"]
    ) -> Float[Tensor, " env"]:
        """Rewards of the robots for states that episodes go on from.

        Raises:
            CollectError: if the reward is no number.
        """
        assert self._reward is not None
        reward = self._reward(rows, left).to(torch.float32)
        wrong = ~reward.isfinite()
        if wrong.any():
            at = int(wrong.int().argmax())
            raise CollectError(
                f"the reward of a state of {self.world.spec.name!r} with {int(left[at])} steps "
                f"left is {float(reward[at])}; the state is:\n{self.world.describe(rows[at])}"
            )
        return reward


@dataclass(slots=True)
class FinalStates:
    """Final states of episodes that a step cut off, or ended in any way.

    Attributes:
        env: Which copies they were in, ascending.
        rows: Their last states.
        left: The steps that they would still have had.
        goals: What humans pursued.
    """

    env: Int[Tensor, " final"]
    rows: Int[Tensor, "final word"]
    left: Int[Tensor, " final"]
    goals: Int[Tensor, "final human"] | None


class WorldCopies:
    """Copies of a world, in the middle of their episodes.

    Everything about them is public and what its name says; ``reward``, ``terminated``,
    ``truncated`` and ``reason`` are what the last step led to, as ``TimeStep`` says, and
    ``final`` is where the episodes stood that it cut off (or ended in any way, with
    ``Stage.terminal_observations``). ``has_arrived`` says which humans have
    reached the goal they pursue in this episode, where robots are paid for that.
    """

    def __init__(self, stage: Stage, count: int, generator: torch.Generator, cut: bool) -> None:
        """Begin an episode in each copy; ``cut`` cuts these off, each at another length."""
        self._stage, self._generator = stage, generator
        agents = len(stage.sight.agents)
        begin = stage.initial.draw(count, generator)
        self.rows = stage.initial.states[begin]
        self.left = torch.full((count,), stage.episode_steps)
        self.available = stage.available[begin]
        self.goals = None if stage.goals is None else stage.goals.draw(count, generator)
        self.cut = torch.full((count,), stage.steps_per_episode or 0)
        if cut:
            longest = stage.steps_per_episode or stage.world.spec.horizon or MOST_STEPS
            self.cut = torch.randint(1, longest + 1, (count,), generator=generator)
        self.acts = torch.ones((count, agents), dtype=torch.bool)
        humans = len(stage.world.spec.humans)
        self.has_arrived = torch.zeros((count, humans), dtype=torch.bool)
        self.starts = torch.ones((count, agents), dtype=torch.bool)
        self.reward = torch.zeros((count, agents))
        self.terminated = torch.zeros((count, agents), dtype=torch.bool)
        self.truncated = torch.zeros((count, agents), dtype=torch.bool)
        self.reason = torch.full((count, agents), -1)
        self.final: FinalStates | None = None

    def step(self, options: Int[Tensor, "env agent"]) -> None:
        """Let everybody act; episodes that end are followed by the next ones at once.

        Raises:
            WorldError: if an action is out of range.
            CollectError: if the reward is no number.
        """
        stage, acted = self._stage, self.acts
        actions = stage.joint(self, options, self._generator)
        self.rows = stage.world.step(self.rows, actions, self._generator)
        self.available = available_in(stage.world, self.rows)
        if stage.world.spec.horizon is not None:
            self.left = self.left - 1
        terminal = ~self.available.flatten(1).any(1)
        over = terminal | (self.left == 0)
        why = torch.where(terminal, TERMINAL, torch.where(over, HORIZON, -1))
        self.reason = why[:, None].expand_as(acted)
        if not stage.pays_goals:
            self._pay_power(over)
        elif stage.sight.learners == "humans":
            over = self._pay_humans(acted, over)
        else:
            over = self._pay_helpers(over)
        over = self._cut_off(acted, over)
        self.final = self._final(over if stage.terminal_observations else self.truncated.any(1))
        self.reason = self.reason.masked_fill(~(self.terminated | self.truncated), -1)
        self._begin(over)
        if stage.goal_resample_prob:
            self._change_minds()

    def _pay_power(self, over: Bool[Tensor, " env"]) -> None:
        paid, going = torch.zeros(len(over)), ~over
        if going.any():
            paid[going] = self._stage.pay(self.rows[going], self.left[going])
        self.reward = paid[:, None].repeat(1, self.acts.shape[1])
        self.terminated = over[:, None].expand_as(self.acts)

    def _pay_humans(
        self, acted: Bool[Tensor, "env agent"], over: Bool[Tensor, " env"]
    ) -> Bool[Tensor, " env"]:
        """Pay who has arrived, which ends its part; who is over then."""
        assert self.goals is not None
        reached = arrived(self._stage.world, self.rows, self.goals) & acted
        self.reward = reached.to(torch.float32)
        self.reason = self.reason.masked_fill(reached, GOAL)
        self.terminated = acted & (over[:, None] | reached)
        self.acts = acted & ~reached
        return over | ~self.acts.any(1)

    def _pay_helpers(self, over: Bool[Tensor, " env"]) -> Bool[Tensor, " env"]:
        """Pay robots for each human that arrives; who is over then."""
        assert self.goals is not None
        reached = arrived(self._stage.world, self.rows, self.goals) & ~self.has_arrived
        self.has_arrived = self.has_arrived | reached
        done = self.has_arrived.all(1)
        self.reward = reached.sum(1, dtype=torch.float32)[:, None].repeat(1, self.acts.shape[1])
        self.reason = self.reason.masked_fill(done[:, None], GOAL)
        over = over | done
        self.terminated = over[:, None].expand_as(self.acts)
        return over

    def _cut_off(
        self, acted: Bool[Tensor, "env agent"], over: Bool[Tensor, " env"]
    ) -> Bool[Tensor, " env"]:
        """Cut episodes off where it is time; who is over then."""
        self.truncated = torch.zeros_like(acted)
        if not self.cut.any():
            return over
        due = (self.cut == 1) & ~over
        self.cut = (self.cut - 1).clamp(min=0).masked_fill(over, 0)
        self.truncated = acted & ~self.terminated & due[:, None]
        self.reason = self.reason.masked_fill(self.truncated, CUT)
        return over | due

    def _final(self, ended: Bool[Tensor, " env"]) -> FinalStates | None:
        env = ended.nonzero()[:, 0]
        if not len(env):
            return None
        goals = None if self.goals is None else self.goals[env]
        return FinalStates(env, self.rows[env], self.left[env], goals)

    def _begin(self, over: Bool[Tensor, " env"]) -> None:
        """Begin the next episode of each copy that is over."""
        stage = self._stage
        self.starts = over[:, None].expand_as(self.acts)
        if not over.any():
            return
        begin = stage.initial.draw(int(over.sum()), self._generator)
        self.rows[over] = stage.initial.states[begin]
        self.left[over] = stage.episode_steps
        self.cut[over] = stage.steps_per_episode or 0
        self.available[over] = stage.available[begin]
        self.acts = self.acts | over[:, None]
        self.has_arrived[over] = False
        if stage.goals is not None:
            assert self.goals is not None
            self.goals[over] = stage.goals.draw(int(over.sum()), self._generator)

    def _change_minds(self) -> None:
        """Let some humans pursue other goals."""
        stage = self._stage
        assert stage.goals is not None
        assert self.goals is not None
        goals = stage.goals.draw(len(self.goals), self._generator)
        bored = torch.rand(goals.shape, generator=self._generator) < stage.goal_resample_prob
        self.goals = torch.where(bored, goals, self.goals)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        state = {name: getattr(self, name).clone() for name in STATE}
        goals = None if self.goals is None else self.goals.clone()
        final = (
            None
            if self.final is None
            else {f.name: getattr(self.final, f.name) for f in fields(FinalStates)}
        )
        return state | {"goals": goals, "final": final, "generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name in STATE:
            setattr(self, name, state_dict[name].clone())
        goals, final = state_dict["goals"], state_dict["final"]
        self.goals = None if goals is None else goals.clone()
        self.final = None if final is None else FinalStates(**final)
        self._generator.set_state(state_dict["generator"])
