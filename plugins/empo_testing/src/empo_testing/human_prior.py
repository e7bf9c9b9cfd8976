"""Conformance kit of human priors: proper policies, the same in every batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from empo_core.protocols import HumanPrior, WorldModel
from empo_testing.exploration import global_randomness_untouched, reachable_states
from empo_testing.worlds import TinyWorld
from empo_worlds.queries import is_terminal


class HumanPriorTests:
    """Subclass this in your plugin's tests and override ``prior``, and ``world`` if need be.

    ``states`` are the non-terminal rows it is asked about.
    """

    @pytest.fixture
    def world(self) -> WorldModel:
        """The world the humans live in; two humans with different actions by default."""
        return TinyWorld()

    @pytest.fixture
    def prior(self, world: WorldModel) -> HumanPrior:
        """The human prior under test, made for ``world``."""
        raise NotImplementedError("override the fixture 'prior'")

    @pytest.fixture
    def states(self, world: WorldModel) -> Tensor:
        """Distinct non-terminal rows."""
        states = reachable_states(world)
        return states[~is_terminal(world, states)]

    @pytest.fixture
    def steps_left(self, world: WorldModel, states: Tensor) -> list[Tensor]:
        """Remaining steps of the states: equal ones, from one step to the whole episode; mixed."""
        horizon = world.spec.horizon or 3
        equal = [torch.full((len(states),), n) for n in sorted({1, (horizon + 1) // 2, horizon})]
        return [*equal, 1 + torch.arange(len(states)) % horizon]

    def test_it_fits_the_protocol(self, prior: HumanPrior) -> None:
        assert isinstance(prior, HumanPrior)

    def test_there_is_one_policy_per_state_and_goal(
        self, prior: HumanPrior, world: WorldModel, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        spec = world.spec
        width = max(spec.num_actions[human] for human in spec.humans)
        for steps in steps_left:
            policy = prior.policy(states, steps)
            assert policy.shape == (len(states), len(spec.goals), width)
            assert policy.is_floating_point()
            assert not policy.requires_grad

    def test_every_policy_is_a_distribution(
        self, prior: HumanPrior, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        for steps in steps_left:
            policy = prior.policy(states, steps)
            assert bool(policy.isfinite().all())
            assert bool((policy >= 0).all())
            slack = 8 * torch.finfo(policy.dtype).eps
            torch.testing.assert_close(
                policy.sum(-1), torch.ones_like(policy[..., 0]), rtol=0, atol=slack
            )

    def test_nobody_does_what_is_not_available(
        self, prior: HumanPrior, world: WorldModel, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        available = world.available(states)
        for steps in steps_left:
            policy = prior.policy(states, steps)
            for index, goal in enumerate(world.spec.goals):
                forbidden = ~available[:, goal.human, : policy.shape[2]]
                assert bool((policy[:, index][forbidden] == 0).all()), f"goal {goal}"

    def test_padding_has_no_probability(
        self, prior: HumanPrior, world: WorldModel, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        for steps in steps_left:
            policy = prior.policy(states, steps)
            for index, goal in enumerate(world.spec.goals):
                num_actions = world.spec.num_actions[goal.human]
                assert bool((policy[:, index, num_actions:] == 0).all()), f"goal {goal}"

    def test_a_batch_gives_what_its_rows_give_alone(
        self, prior: HumanPrior, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        for steps in steps_left:
            pairs = zip(states, steps, strict=True)
            alone = torch.cat([prior.policy(row[None], left[None]) for row, left in pairs])
            torch.testing.assert_close(prior.policy(states, steps), alone)

    def test_order_and_repetition_in_a_batch_do_not_matter(
        self, prior: HumanPrior, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        order = torch.arange(len(states)).flip(0).repeat(2)
        for steps in steps_left:
            expected = prior.policy(states, steps)[order]
            torch.testing.assert_close(prior.policy(states[order], steps[order]), expected)

    def test_asking_changes_nothing(
        self, prior: HumanPrior, states: Tensor, steps_left: list[Tensor]
    ) -> None:
        rows = states.clone()
        with global_randomness_untouched():
            first = [prior.policy(states, steps).clone() for steps in steps_left]
            # Backwards and written to, so that neither order nor a lent buffer can matter.
            for steps in reversed(steps_left):
                prior.policy(states, steps).zero_()
            for steps, expected in zip(reversed(steps_left), reversed(first), strict=True):
                assert torch.equal(prior.policy(states, steps), expected)
        assert torch.equal(states, rows), "the rows asked about were written to"

    def test_an_empty_batch_gives_an_empty_answer(
        self, prior: HumanPrior, world: WorldModel, states: Tensor
    ) -> None:
        assert prior.policy(states[:0], torch.ones(0, dtype=torch.int64)).shape[:2] == (
            0,
            len(world.spec.goals),
        )
