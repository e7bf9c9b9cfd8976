"""Conformance kit of explorers: keep policies proper, be restorable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import Explorer, WorldModel
from empo_core.types import Scene, Successors, WorldSpec
from empo_learning.state_tree import flatten
from empo_testing.exploration import global_randomness_untouched, reachable_states, stored
from empo_testing.worlds import TinyWorld
from empo_worlds.queries import is_terminal, sample_successors

MakeExplorer = Callable[[], Explorer]
ENVIRONMENTS = 12
ROUNDS = 8
STAGES = {"v_h_e": 0, "x_h": 10, "u_r": 20, "q_r": 20, "v_r": 30, "ramp": 40, "full": 60}


@dataclass(frozen=True)
class Round:
    """One moment of a game: what the explorer was given, what it answered, what was done."""

    policy: Tensor
    scene: Scene
    explored: Tensor
    choice: Tensor


class ExplorerTests:
    """Subclass this in your plugin's tests and override ``make_explorer``.

    Everything runs for the robots, who know what can follow, and for one human, who does not.
    An explorer for only one of them overrides ``role`` with fewer params; one that needs a
    special world overrides ``world``.
    """

    @pytest.fixture
    def world(self) -> WorldModel:
        """The world that is explored; two humans with different actions by default."""
        return TinyWorld()

    @pytest.fixture
    def spec(self, world: WorldModel) -> WorldSpec:
        """The spec the explorer is made for."""
        return world.spec

    @pytest.fixture(params=["robots", "human"])
    def role(self, request: pytest.FixtureRequest) -> Literal["robots", "human"]:
        """Whose choices are changed."""
        role: Literal["robots", "human"] = request.param
        return role

    @pytest.fixture
    def agents(self, spec: WorldSpec, role: str) -> tuple[int, ...]:
        """The agents that choose: all robots, or the last human."""
        return spec.robots if role == "robots" else spec.humans[-1:]

    @pytest.fixture
    def make_explorer(self, spec: WorldSpec, agents: tuple[int, ...]) -> MakeExplorer:
        """A function that makes a fresh explorer for ``agents``, always the same one."""
        raise NotImplementedError("override the fixture 'make_explorer'")

    @pytest.fixture
    def game(self, world: WorldModel, agents: tuple[int, ...]) -> Game:
        """A game at its beginning."""
        return Game(world, agents)

    def test_it_fits_the_protocol(self, make_explorer: MakeExplorer) -> None:
        assert isinstance(make_explorer(), Explorer)

    def test_probabilities_stay_probabilities(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        for moment in game.play(make_explorer(), ROUNDS):
            assert moment.explored.shape == moment.policy.shape
            assert moment.explored.dtype == moment.policy.dtype
            assert not moment.explored.requires_grad
            assert bool(moment.explored.isfinite().all())
            assert bool((moment.explored >= 0).all())
            total = moment.explored.sum(1)
            torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)

    def test_nobody_does_what_is_not_available(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        for moment in game.play(make_explorer(), ROUNDS):
            assert bool((moment.explored[~moment.scene.available] == 0).all())

    def test_it_changes_something(self, make_explorer: MakeExplorer, game: Game) -> None:
        moments = list(game.play(make_explorer(), ROUNDS))
        assert any(not torch.equal(moment.explored, moment.policy) for moment in moments)

    def test_all_randomness_is_that_of_the_generator(
        self, make_explorer: MakeExplorer, world: WorldModel, agents: tuple[int, ...]
    ) -> None:
        with global_randomness_untouched():
            first = list(Game(world, agents).play(make_explorer(), ROUNDS))
        again = list(Game(world, agents).play(make_explorer(), ROUNDS))
        assert_same(first, again)

    def test_asking_leaves_its_arguments_alone(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        explorer = make_explorer()
        (moment,) = game.play(Bystander(), 1)
        policy, scene = moment.policy.clone(), copy.deepcopy(moment.scene)
        explorer.explore(policy, scene, game.generator)
        explorer.observe(scene, moment.choice)
        assert torch.equal(policy, moment.policy)
        assert torch.equal(scene.states, moment.scene.states)
        assert torch.equal(scene.available, moment.scene.available)
        if scene.successors is not None and moment.scene.successors is not None:
            assert torch.equal(scene.successors.states, moment.scene.successors.states)
            assert torch.equal(scene.successors.prob, moment.scene.successors.prob)

    def test_a_restored_copy_goes_on_in_the_same_way(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        explorer = make_explorer()
        for _ in game.play(explorer, ROUNDS):
            pass
        state = stored(explorer.state_dict())
        copied = game.copy()
        goes_on = list(game.play(explorer, ROUNDS))
        restored = make_explorer()
        restored.load_state_dict(state)
        assert_same(goes_on, list(copied.play(restored, ROUNDS)))

    def test_what_it_remembered_does_not_change_afterwards(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        explorer = make_explorer()
        for _ in game.play(explorer, ROUNDS):
            pass
        state = explorer.state_dict()
        before = copy.deepcopy(state)
        for _ in game.play(explorer, ROUNDS):
            pass
        data, tensors = flatten(state)
        data_before, tensors_before = flatten(before)
        assert data == data_before
        assert all(torch.equal(tensors[name], tensors_before[name]) for name in tensors_before)

    def test_the_order_of_environments_does_not_matter_to_one_without_memory(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        explorer = make_explorer()
        moments = list(game.play(explorer, ROUNDS))
        if explorer.state_dict():
            pytest.skip("it has a memory")
        for moment in moments:
            order = torch.arange(len(moment.policy)).flip(0)
            scene = in_order(moment.scene, order)
            answers = [
                explorer.explore(moment.policy[order], scene, torch.Generator().manual_seed(seed))
                for seed in (0, 1)
            ]
            if not torch.equal(*answers):
                pytest.skip("it draws random numbers, one environment after the other")
            torch.testing.assert_close(answers[0], moment.explored[order])

    def test_learning_makes_what_was_learned_less_new(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        explorer = make_explorer()
        if not explorer.learns:
            pytest.skip("it does not learn")
        (moment,) = game.play(explorer, 1)
        before = {name: tensor.clone() for name, tensor in explorer.weights().items()}
        numbers = [explorer.learn(moment.scene.states, moment.choice) for _ in range(50)]
        assert all(isinstance(n, float) and n == n for metrics in numbers for n in metrics.values())
        after = explorer.weights()
        assert any(not torch.equal(before[name], after[name]) for name in before), "not trained"
        if "loss" in numbers[0]:
            assert numbers[-1]["loss"] < numbers[0]["loss"]

    def test_what_was_learned_can_be_passed_on(
        self, make_explorer: MakeExplorer, game: Game
    ) -> None:
        learner, actor = make_explorer(), make_explorer()
        if not learner.learns:
            pytest.skip("it does not learn")
        (moment,) = game.play(learner, 1)
        for _ in range(20):
            learner.learn(moment.scene.states, moment.choice)
        weights = {name: tensor.clone() for name, tensor in learner.weights().items()}
        actor.load_weights(weights)
        answers = [
            explorer.explore(moment.policy, moment.scene, torch.Generator().manual_seed(0))
            for explorer in (learner, actor)
        ]
        assert torch.equal(*answers)
        learner.learn(moment.scene.states, moment.choice)
        again = actor.explore(moment.policy, moment.scene, torch.Generator().manual_seed(0))
        assert torch.equal(again, answers[1]), "it goes on using tensors of the other copy"


class Bystander(Explorer):
    """An explorer that changes nothing."""

    def explore(self, policy: Tensor, scene: Scene, generator: torch.Generator) -> Tensor:
        return policy.clone()


class Game:
    """Environments that are played for a few rounds, with all randomness from one seed.

    Attributes:
        generator: Where all randomness comes from.
    """

    def __init__(self, world: WorldModel, agents: tuple[int, ...]) -> None:
        self._world, self._agents = world, agents
        self.generator = torch.Generator().manual_seed(7)
        states = reachable_states(world)
        states = states[~is_terminal(world, states)]
        self._starts = states[torch.arange(ENVIRONMENTS) % len(states)]
        self._rows = self._starts
        self._left = torch.full((ENVIRONMENTS,), world.spec.horizon or 1)
        self._started = torch.ones(ENVIRONMENTS, dtype=torch.bool)
        self._round = 0

    def play(self, explorer: Explorer, rounds: int) -> Iterator[Round]:
        """Play on; the training step grows by 5 per round."""
        for _ in range(rounds):
            scene = self._scene()
            policy = torch.rand(scene.available.shape, generator=self.generator)
            policy = policy.masked_fill(~scene.available, 0.0)
            policy = policy / policy.sum(1, keepdim=True)
            explored = explorer.explore(policy, scene, self.generator)
            weights = torch.nan_to_num(explored).clamp(min=0) + 1e-9 * scene.available
            choice = torch.multinomial(weights, 1, generator=self.generator)[:, 0]
            explorer.observe(scene, choice)
            self._move(choice)
            yield Round(policy, scene, explored, choice)

    def copy(self) -> Game:
        """The same game at the same moment, to be played apart."""
        same = copy.copy(self)
        same.generator = torch.Generator()
        same.generator.set_state(self.generator.get_state())
        return same

    def _scene(self) -> Scene:
        world, spec = self._world, self._world.spec
        count = 1
        for agent in self._agents:
            count *= spec.num_actions[agent]
        actions = torch.stack(
            [self._actions(torch.full((ENVIRONMENTS,), c)) for c in range(count)], 1
        )
        available = world.available(self._rows)
        possible = torch.stack(
            [
                available[torch.arange(ENVIRONMENTS)[:, None], k, actions[:, :, k]]
                for k in self._agents
            ]
        ).all(0)
        successors: Successors | None = None
        if spec.agents[self._agents[0]].role == "robot":
            rows = self._rows.repeat_interleave(count, 0)
            successors = world.transitions(rows, actions.flatten(0, 1))
        return Scene(
            states=self._rows,
            steps_left=self._left,
            available=possible,
            started=self._started,
            successors=successors,
            training_step=5 * self._round,
            milestones=STAGES,
        )

    def _actions(self, choice: Tensor) -> Tensor:
        """One action per agent: the first available one for those who do not choose."""
        actions = self._world.available(self._rows).int().argmax(2)
        for agent in self._agents:
            number = self._world.spec.num_actions[agent]
            actions[:, agent] = choice % number
            choice = choice // number
        return actions

    def _move(self, choice: Tensor) -> None:
        successors = self._world.transitions(self._rows, self._actions(choice))
        rows = sample_successors(successors, self._rows, self.generator)
        self._round += 1
        if self._world.spec.horizon is not None:
            self._left = self._left - 1
        self._started = is_terminal(self._world, rows) | (self._left == 0)
        self._rows = torch.where(self._started[:, None], self._starts, rows)
        self._left = torch.where(self._started, self._world.spec.horizon or 1, self._left)


def in_order(scene: Scene, order: Tensor) -> Scene:
    """The same scene with its environments in another order."""
    successors = scene.successors
    if successors is not None:
        choices = scene.available.shape[1]
        pairs = (order[:, None] * choices + torch.arange(choices)).flatten()
        counts = successors.offsets.diff()[pairs]
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        first = successors.offsets[:-1][pairs] - offsets[:-1]
        items = torch.repeat_interleave(first, counts) + torch.arange(int(offsets[-1]))
        successors = Successors(offsets, successors.states[items], successors.prob[items])
    rows = {name: getattr(scene, name)[order] for name in _PER_ENVIRONMENT}
    return replace(scene, successors=successors, **rows)


_PER_ENVIRONMENT = ("states", "steps_left", "available", "started")


def assert_same(first: list[Round], second: list[Round]) -> None:
    """Check that two games went the same way, bit for bit."""
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left.explored, right.explored)
        assert torch.equal(left.choice, right.choice)
        assert torch.equal(left.scene.states, right.scene.states)


def scene_of(rows: Int[Tensor, "env word"], choices: int = 2, **others: Any) -> Scene:
    """A scene in these states, one step before the end, in which every choice is available.

    Args:
        rows: State rows.
        choices: Number of choices.
        others: Fields of the scene that are otherwise.
    """
    usual = {
        "steps_left": torch.ones(len(rows), dtype=torch.int64),
        "available": torch.ones(len(rows), choices, dtype=torch.bool),
        "started": torch.zeros(len(rows), dtype=torch.bool),
    }
    return Scene(states=rows, **(usual | others))


def ask(
    explorer: Explorer, policy: Float[Tensor, "env choice"], scene: Scene
) -> Float[Tensor, "env choice"]:
    """The explorer's probabilities, by a generator with seed 0."""
    return explorer.explore(policy, scene, torch.Generator().manual_seed(0))
