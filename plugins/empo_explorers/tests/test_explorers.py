"""Explorers do what they promise, besides what their kit asks of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from empo_core import Config
from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import Explorer, WorldModel
from empo_core.types import Successors, WorldSpec
from empo_explorers.counts import CountBonus
from empo_explorers.params import (
    ActionSequencesParams,
    CountBonusParams,
    RndParams,
)
from empo_explorers.rnd import Rnd
from empo_explorers.sequences import ActionSequences
from empo_testing.explorer import ExplorerTests, Game, ask, scene_of
from empo_testing.worlds import Street, TinyWorld

STILL, LEFT, RIGHT, FORWARD = range(4)
SMALL = RndParams(feature_dim=8, hidden_dim=16, lr=1e-2)


@pytest.mark.parametrize("ucb", [False, True])
class TestCountBonus(ExplorerTests):
    @pytest.fixture
    def make_explorer(
        self, spec: WorldSpec, agents: tuple[int, ...], ucb: bool
    ) -> Callable[[], Explorer]:
        return lambda: CountBonus(CountBonusParams(coefficient=2.0, ucb=ucb), spec, agents)


@pytest.mark.parametrize("normalize", [False, True])
class TestRnd(ExplorerTests):
    @pytest.fixture
    def make_explorer(
        self, spec: WorldSpec, agents: tuple[int, ...], normalize: bool
    ) -> Callable[[], Explorer]:
        params = SMALL.model_copy(update={"normalize": normalize})
        return lambda: Rnd(params, spec, agents)


@pytest.mark.parametrize("robots", [1, 2])
class TestActionSequences(ExplorerTests):
    @pytest.fixture
    def world(self, robots: int) -> WorldModel:
        return Street(robots)

    @pytest.fixture
    def make_explorer(self, spec: WorldSpec, agents: tuple[int, ...]) -> Callable[[], Explorer]:
        return lambda: ActionSequences(ActionSequencesParams(prob=0.5), spec, agents)


DOORS = TinyWorld()
CLOSED = DOORS.initial_state()
OPEN = torch.tensor([1, 0], dtype=torch.int16)


@pytest.mark.parametrize("ucb", [False, True])
def test_the_bonus_of_a_state_follows_its_visits(ucb: bool) -> None:
    params = CountBonusParams(coefficient=1.0, scale=3.0, ucb=ucb)
    explorer = CountBonus(params, DOORS.spec, (1,))
    for rows in (CLOSED.repeat(5, 1), OPEN[None], CLOSED.repeat(2, 1)):
        explorer.observe(scene_of(rows), torch.zeros(len(rows), dtype=torch.int64))
    # Doing nothing stays where seven visits were; opening leads to one visit, three times in four.
    successors = Successors(
        torch.tensor([0, 1, 3]),
        torch.stack([CLOSED, CLOSED, OPEN]),
        torch.tensor([1.0, 0.25, 0.75]).double(),
    )
    even = torch.tensor([[0.5, 0.5]])
    found = ask(explorer, even, scene_of(CLOSED[None], successors=successors))
    factor = torch.tensor(8.0).log().sqrt() if ucb else torch.tensor(1.0)
    often, rarely = 3 * factor / 8**0.5, 3 * factor / 2**0.5
    expected = torch.stack([often, 0.25 * often + 0.75 * rarely]).softmax(0)
    torch.testing.assert_close(found[0], expected)


def test_without_successors_choices_are_counted_by_state() -> None:
    explorer = CountBonus(CountBonusParams(coefficient=1.0), DOORS.spec, (0,))
    rows = torch.stack([CLOSED, CLOSED, CLOSED, OPEN])
    explorer.observe(scene_of(rows), torch.tensor([1, 1, 1, 0]))
    even = torch.full((2, 2), 0.5)
    found = ask(explorer, even, scene_of(torch.stack([CLOSED, OPEN])))
    closed = torch.tensor([1.0, 0.5]).softmax(0)
    opened = torch.tensor([0.5**0.5, 1.0]).softmax(0)
    torch.testing.assert_close(found, torch.stack([closed, opened]))


def test_a_bonus_never_vanishes() -> None:
    explorer = CountBonus(CountBonusParams(scale=1e-9), DOORS.spec, (1,))
    assert explorer._bonus(torch.tensor([0, 10**12])).tolist() == [1e-6, 1e-6]


def test_states_beyond_the_limit_stay_new_and_the_others_go_on_counting() -> None:
    explorer = CountBonus(CountBonusParams(max_states=1), DOORS.spec, (0,))
    for rows in ([CLOSED], [CLOSED, OPEN, CLOSED], [OPEN, CLOSED, CLOSED]):
        choice = torch.arange(len(rows)) % 2
        explorer.observe(scene_of(torch.stack(rows)), choice)
    assert explorer.state_dict()["rows"].tolist() == [CLOSED.tolist()]
    assert explorer.state_dict()["visits"].tolist() == [[4, 1]]


def test_counting_many_states_grows_the_table() -> None:
    spec = replace(DOORS.spec, state_words=1, state_dtype=torch.int32)
    explorer = CountBonus(CountBonusParams(), spec, (0,))
    rows = torch.arange(5000, dtype=torch.int32)[:, None]
    for _ in range(2):
        explorer.observe(scene_of(rows), torch.ones(5000, dtype=torch.int64))
    kept = explorer.state_dict()
    assert kept["rows"].shape == (5000, 1)
    assert kept["visits"].tolist() == [[0, 2]] * 5000


def test_novelty_of_states_falls_where_they_are_learned_and_draws_robots_elsewhere() -> None:
    explorer = Rnd(SMALL.model_copy(update={"decay": 0.9}), DOORS.spec, (1,))
    closed = CLOSED.repeat(16, 1)
    for _ in range(200):
        explorer.learn(closed, torch.zeros(16, dtype=torch.int64))
    known, new = explorer.novelty(torch.stack([CLOSED, OPEN]))[:, 0].tolist()
    assert new > known
    successors = Successors(
        torch.tensor([0, 1, 2]), torch.stack([CLOSED, OPEN]), torch.ones(2).double()
    )
    scene = scene_of(CLOSED[None], successors=successors)
    explored = ask(explorer, torch.full((1, 2), 0.5), scene)
    assert explored[0, 1] > 0.9


def test_training_improves_the_prediction_for_the_action_that_was_taken() -> None:
    params = SMALL.model_copy(update={"normalize": False, "coefficient": 20.0})
    explorer = Rnd(params, DOORS.spec, (2,))
    before = explorer.novelty(CLOSED[None])
    for _ in range(300):
        explorer.learn(CLOSED.repeat(8, 1), torch.ones(8, dtype=torch.int64))
    after = explorer.novelty(CLOSED[None])
    assert before.shape == (1, 3)
    assert after[0, 1] < 0.05 * before[0, 1]
    # The last layer of the others got no gradient; they only share what lies below it.
    assert bool((after[0, [0, 2]] > 0.3 * before[0, [0, 2]]).all())
    explored = ask(explorer, torch.full((1, 3), 1 / 3), scene_of(CLOSED[None], 3))
    assert explored[0].argmin() == 1


def test_only_the_output_of_the_taken_action_gets_a_gradient() -> None:
    explorer = Rnd(SMALL.model_copy(update={"weight_decay": 0.0}), DOORS.spec, (2,))
    name = "predictor.6.weight"
    before = explorer.weights()[name].clone()
    explorer.learn(CLOSED.repeat(4, 1), torch.full((4,), 2))
    changed = (explorer.weights()[name] != before).any(1).view(3, SMALL.feature_dim).any(1)
    assert changed.tolist() == [False, False, True]


def test_novelty_is_measured_by_a_running_mean_and_deviation() -> None:
    explorer = Rnd(SMALL.model_copy(update={"decay": 0.5, "lr": 1e-9}), DOORS.spec, (1,))
    raw = explorer.novelty(torch.stack([CLOSED, OPEN]))[:, 0]
    choice = torch.zeros(1, dtype=torch.int64)
    explorer.learn(CLOSED[None], choice)
    explorer.learn(OPEN[None], choice)
    mean = raw.mean()
    variance = 0.5 * (raw[1] - mean) ** 2
    found = explorer.novelty(torch.stack([CLOSED, OPEN]))[:, 0]
    torch.testing.assert_close(found, (raw - mean) / variance.sqrt(), rtol=1e-3, atol=1e-3)


def test_networks_have_the_layers_of_the_specification() -> None:
    explorer = Rnd(RndParams(), DOORS.spec, (1,))
    shapes = [list(t.shape) for name, t in explorer.weights().items() if name.endswith("weight")]
    assert shapes == [[256, 2], [256, 256], [256, 256], [64, 256]]
    target = explorer.state_dict()["target"]
    assert [list(t.shape) for name, t in target.items() if name.endswith("weight")] == [
        [256, 2],
        [256, 256],
        [64, 256],
    ]


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    explorer = Rnd(SMALL, DOORS.spec, (1,))
    weights = {name: t.clone() for name, t in explorer.weights().items()}
    poisoned = {name: t * torch.nan for name, t in weights.items()}
    explorer.load_weights(poisoned)
    with pytest.raises(NonFiniteError, match="rnd"):
        explorer.learn(CLOSED[None], torch.zeros(1, dtype=torch.int64))
    explorer.load_weights(weights)
    explorer.learn(CLOSED[None], torch.zeros(1, dtype=torch.int64))
    assert all(bool(t.isfinite().all()) for t in explorer.weights().values())


def follow(params: ActionSequencesParams, *, robots: int = 1, role: str = "robots") -> Any:
    """Plays of the street: for every environment the pairs of choice and whether it was forced."""
    world = Street(robots, horizon=None)
    agents = world.spec.robots if role == "robots" else world.spec.humans
    game = Game(world, agents)
    explorer = ActionSequences(params, world.spec, agents)
    return [
        (moment.choice, moment.explored.max(1).values > 0.9999, moment.scene)
        for moment in game.play(explorer, 60)
    ]


def test_a_sequence_turns_first_and_then_goes_forward() -> None:
    params = ActionSequencesParams(prob=1.0, weights={"back_forward": 1.0}, expected_length=1.0)
    moments = follow(params, role="human")
    choices = torch.stack([choice for choice, _, _ in moments])
    assert bool(torch.stack([forced for _, forced, _ in moments]).all())
    expected = torch.tensor([LEFT, LEFT, FORWARD]).repeat(20)
    assert torch.equal(choices, expected[:, None].expand_as(choices))


def test_a_blocked_step_cancels_the_sequence_and_the_robot_stays_still() -> None:
    params = ActionSequencesParams(prob=1.0, weights={"right_forward": 1.0}, expected_length=100.0)
    choices = torch.stack([choice for choice, _, _ in follow(params)])
    # Heading east it turns south, where there is a wall, so that it cannot go forward.
    assert choices[:2, 0].tolist() == [RIGHT, STILL]
    # After the next turn it heads west, and walks to the end of the street and no further.
    assert choices[2:6, 0].tolist() == [RIGHT, FORWARD, FORWARD, STILL]


def test_only_what_can_be_begun_is_begun() -> None:
    params = ActionSequencesParams(prob=1.0, weights={"forward": 1.0, "still": 1e-9})
    for choice, _, scene in follow(params):
        ends = scene.successors
        assert ends is not None
        pair = torch.arange(len(choice)) * 4
        goes = (ends.states[pair + FORWARD] != ends.states[pair + STILL]).any(1)
        assert torch.equal(choice == FORWARD, goes)


@pytest.mark.parametrize("lengths", [3.0, {"still": 3.0}])
def test_lengths_are_geometric_around_their_mean(lengths: Any) -> None:
    params = ActionSequencesParams(prob=1.0, weights={"still": 1.0}, expected_length=lengths)
    explorer = ActionSequences(params, Street().spec, (0,))
    rows = Street().initial_state().repeat(20_000, 1)
    ask(explorer, torch.full((20_000, 4), 0.25), scene_of(rows, 4))
    counts = Counter(explorer.state_dict()["length"].flatten().tolist())
    mean = sum(length * count for length, count in counts.items()) / 20_000
    assert mean == pytest.approx(3.0, abs=0.1)
    assert min(counts) == 1
    assert counts[2] / counts[1] == pytest.approx(2 / 3, abs=0.05)


def test_types_are_begun_as_often_as_their_weights_say() -> None:
    explorer = ActionSequences(ActionSequencesParams(prob=0.5), Street().spec, (0,))
    rows = Street().initial_state().repeat(20_000, 1)
    ask(explorer, torch.full((20_000, 4), 0.25), scene_of(rows, 4))
    kinds = torch.bincount(explorer.state_dict()["kind"].flatten() + 1) / 20_000
    expected = torch.tensor([0.5, 0.025, 0.25, 0.09, 0.09, 0.045])
    torch.testing.assert_close(kinds, expected, rtol=0, atol=0.015)


def test_a_new_episode_ends_a_sequence() -> None:
    params = ActionSequencesParams(prob=1.0, weights={"still": 1.0}, expected_length=1e6)
    explorer = ActionSequences(params, Street().spec, (0,))
    rows, even = Street().initial_state()[None], torch.full((1, 4), 0.25)
    ask(explorer, even, scene_of(rows, 4))
    length = explorer.state_dict()["length"]
    ask(explorer, even, scene_of(rows, 4))
    assert torch.equal(explorer.state_dict()["length"], length)
    explorer.explore(
        even, scene_of(rows, 4, started=torch.tensor([True])), torch.Generator().manual_seed(5)
    )
    assert not torch.equal(explorer.state_dict()["length"], length)


def test_a_step_that_was_not_taken_ends_the_sequence() -> None:
    params = ActionSequencesParams(prob=1.0, weights={"forward": 1.0}, expected_length=1e6)
    explorer = ActionSequences(params, Street().spec, (0,))
    scene = scene_of(Street().initial_state().repeat(2, 1), 4)
    ask(explorer, torch.full((2, 4), 0.25), scene)
    explorer.observe(scene, torch.tensor([FORWARD, LEFT]))
    assert explorer.state_dict()["kind"].flatten().tolist() == [1, -1]


def test_two_robots_follow_sequences_of_their_own() -> None:
    params = ActionSequencesParams(prob=0.3, expected_length=3.0)
    moments = follow(params, robots=2)
    policies = torch.stack([forced for _, forced, _ in moments])
    assert policies.any()
    assert not policies.all()
    world = Street(2)
    explorer = ActionSequences(params, world.spec, world.spec.robots)
    policy = torch.arange(1.0, 17.0)[None] / 136
    fixed = explorer._certain(policy, torch.tensor([[-1, FORWARD]])).view(4, 4)
    assert fixed[:FORWARD].sum() == 0
    torch.testing.assert_close(fixed[FORWARD], policy.view(4, 4).sum(0))


def test_agents_without_the_movements_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'door' .*'still' or 'left'"):
        ActionSequences(ActionSequencesParams(), DOORS.spec, (1,))


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        (ActionSequencesParams, {"expected_length": 0.5}, "at least 1 step"),
        (ActionSequencesParams, {"weights": {"still": 0.0}}, "weights are"),
        (ActionSequencesParams, {"weights": {"jump": 1.0}}, "forward"),
        (RndParams, {"decay": 1.0}, "less_than,"),
        (CountBonusParams, {"scale": 0.0}, "greater_than,"),
    ],
)
def test_senseless_params_are_refused(
    model: type[Config], params: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model.model_validate(params)
