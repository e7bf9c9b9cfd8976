"""Probabilities of human profiles: joint actions of all humans."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.types import WorldSpec
from empo_phase2.experience import Transitions
from empo_phase2.goal_index import GoalIndex
from empo_worlds.queries import sample_actions


class HumanProfiles:
    """Probabilities of the humans' joint actions, from the policy of each goal slot.

    Attributes:
        human: Position of each slot's human.
        share: Share of each slot in its human's behaviour in each world, 0 for other humans'.
    """

    human: Int[Tensor, " slot"]
    share: Float[Tensor, "layout slot human"]

    def __init__(self, spec: WorldSpec, goals: GoalIndex) -> None:
        self._counts = [spec.num_actions[human] for human in spec.humans]
        self._position = torch.arange(len(self._counts), device=goals.human.device)
        # Share of each slot among those of its human, in each world.
        share = goals.weight[:, :, None] * goals.belongs(len(self._counts))
        self.share = share / share.sum(1, keepdim=True).clamp(min=1e-38)
        self.human = goals.human
        self._is_same = self._position[:, None] == self._position

    @cached_property
    def action(self) -> Int[Tensor, "profile human"]:
        """The action of each human in each profile.

        Computed on first use: many humans together have more actions than fit into RAM.
        """
        # The first human counts fastest, as everywhere.
        grid = torch.cartesian_prod(*(torch.arange(count) for count in reversed(self._counts)))
        return grid.view(-1, len(self._counts)).flip(1).to(self._position.device)

    def of(
        self, batch: Transitions, layout: Int[Tensor, " transition"]
    ) -> tuple[Float[Tensor, "transition profile"], Float[Tensor, "transition profile slot"]]:
        """Probability of each recorded profile on average over goals, and given each slot's goal.

        Args:
            batch: The transitions.
            layout: Which world of the ensemble each of them belongs to.
        """
        if not batch.covers_profiles:
            # One profile that was drawn by ``sample``: it counts 1 in both averages.
            sampled = batch.prob.new_ones(len(batch), 1)
            return sampled, sampled[..., None].expand(-1, 1, batch.acts_for.shape[1])
        policy = batch.human_policy
        share = self.share.to(policy.dtype)[layout]
        mean = share.transpose(1, 2) @ policy  # [transition human action]
        chosen_mean = mean[:, self._position, self.action]  # [transition profile human]
        chosen_policy = policy.gather(2, self.action.T[self.human].expand(policy.shape[0], -1, -1))
        # The product over all humans but one, without dividing by what may be 0.
        others = torch.where(self._is_same, 1.0, chosen_mean[:, :, None]).prod(-1)
        return chosen_mean.prod(-1), chosen_policy.transpose(1, 2) * others[:, :, self.human]

    def sample(
        self,
        policy: Float[Tensor, "state slot action"],
        layout: Int[Tensor, " state"],
        action_uniform: Float[Tensor, "state human"],
        slot_uniform: Float[Tensor, "state slot"],
    ) -> tuple[Int[Tensor, "state human"], Bool[Tensor, "state slot"]]:
        """One profile a_H for each state, and the slots for whose goals it is a sample.

        Each human's goal is drawn anew in each state, by weight, and its action for this goal:
        a_h ~ mean_h = E_g pi_h(s, g), so that f(a_H) is an unbiased estimate of the average over
        goals and actions in (4). V_h^e(s, g) in (6) has human h act for g instead, and all others
        as in (4). The same a_h is a sample of pi_h(s, g) wherever it passes a rejection test:

            u max_a [pi_h(s, g)(a) / mean_h(a)] < pi_h(s, g)(a_h) / mean_h(a_h),  u ~ U[0, 1)

        A goal passes at least as often as it would be drawn itself.

        Args:
            policy: Policy of each slot's human for the slot's goal.
            layout: Which world of the ensemble each state belongs to.
            action_uniform: Numbers in [0, 1) that decide on actions.
            slot_uniform: Numbers u.
        """
        policy = policy.double()
        mean = self.share[layout].transpose(1, 2) @ policy  # [state human action]
        action = sample_actions(mean, action_uniform)
        ratio = policy / mean[:, self.human].clamp(min=1e-300)
        chosen_ratio = ratio.gather(2, action[:, self.human, None])[..., 0]
        return action, slot_uniform * ratio.amax(2) < chosen_ratio
