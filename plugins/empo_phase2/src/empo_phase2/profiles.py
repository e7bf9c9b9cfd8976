"""How likely it is that the humans do one thing or another together."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.types import WorldSpec
from empo_phase2.experience import Transitions
from empo_phase2.goal_index import GoalIndex


class HumanProfiles:
    """How likely the humans' joint actions are, from the policy of each slot."""

    def __init__(self, spec: WorldSpec, slots: GoalIndex) -> None:
        self._counts = [spec.num_actions[human] for human in spec.humans]
        self._position = torch.arange(len(self._counts), device=slots.human.device)
        # Share of each slot among those of its human, in each world.
        share = slots.weight[:, :, None] * (slots.human[:, None] == self._position)
        self._share = share / share.sum(1, keepdim=True).clamp(min=1e-38)
        self._human = slots.human

    @cached_property
    def action(self) -> Int[Tensor, "profile human"]:
        """The action of each human in each profile.

        Made where it is needed: many humans together have more actions than fit into memory.
        """
        # The first human counts fastest, as everywhere.
        grid = torch.cartesian_prod(*(torch.arange(count) for count in reversed(self._counts)))
        return grid.view(-1, len(self._counts)).flip(1).to(self._position.device)

    def of(
        self, batch: Transitions, layout: Int[Tensor, " state"]
    ) -> tuple[Float[Tensor, "state profile"], Float[Tensor, "state profile column"]]:
        """Chances of the recorded profiles: on average, and for each slot (or human).

        Args:
            batch: Transitions, with the humans' policies where all profiles are recorded.
            layout: The world in which each starts.
        """
        if batch.human_policy.shape[1]:
            return self.chances(batch.human_policy, layout)
        # One profile, drawn while each human pursued a goal: it stands for all of them.
        sampled = batch.prob.new_ones(len(batch), 1)
        return sampled, sampled[..., None].expand(-1, 1, batch.goal.shape[1])

    def chances(
        self, policy: Float[Tensor, "state slot action"], layout: Int[Tensor, " state"]
    ) -> tuple[Float[Tensor, "state profile"], Float[Tensor, "state profile slot"]]:
        """Chance of each profile on average over goals, and given each slot's goal.

        Args:
            policy: What each slot's human would do.
            layout: The world of each state.
        """
        share = self._share.to(policy.dtype)[layout]
        mean = torch.einsum("nsa,nsh->nha", policy, share)
        taken = mean[:, self._position, self.action]  # [state profile human]
        own = policy.gather(2, self.action.T[self._human].expand(policy.shape[0], -1, -1))
        others = _product_of_others(taken)[:, :, self._human]
        return taken.prod(-1), own.transpose(1, 2) * others


def _product_of_others(
    factors: Float[Tensor, "state profile human"],
) -> Float[Tensor, "state profile human"]:
    """The product over all humans but one, without dividing by what may be 0."""
    ones = torch.ones_like(factors[..., :1])
    before = torch.cat([ones, factors[..., :-1]], -1).cumprod(-1)
    after = torch.cat([factors[..., 1:], ones], -1).flip(-1).cumprod(-1).flip(-1)
    return before * after
