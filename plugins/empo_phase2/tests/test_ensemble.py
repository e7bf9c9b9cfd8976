"""Several worlds as one: each world's own answers, whatever else is in the batch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
import torch
from doors import DoorWorld
from torch import Tensor
from walks import favours_first

from empo_core.errors import ConfigError, SolveError, WorldError
from empo_core.features import Features, FeatureShape, RowFeatures
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_phase2.goal_index import GoalIndex
from empo_phase2.state_recorder import learner_spec
from empo_testing.exploration import as_mappings, reachable_states
from empo_testing.world_model import WorldModelTests
from empo_testing.worlds import Street, TinyWorld
from empo_worlds.ensemble import EnsemblePrior, EnsembleWorld


class Picture:
    """A featurizer with a grid of its own width."""

    def __init__(self, width: int) -> None:
        self.shape = FeatureShape(channels=1, height=1, width=width, globals=1)

    def __call__(self, states: Tensor) -> Features:
        own = RowFeatures(0)(states[:, :0])
        grid = states.float()[:, None, None, :1].repeat(1, 1, 1, self.shape.width)
        return replace(own, grid=grid, globals=states.float()[:, 1:2])


class Varied(DoorWorld):
    """A door world with some fields of its spec replaced."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.spec = replace(self.spec, **changes)


class CompactDoors(DoorWorld):
    """A door world with compact rows of some width, the layout's number last."""

    def __init__(self, number: int, width: int = 3) -> None:
        super().__init__()
        self._number, self._width = number, width

    @property
    def compact_features(self) -> RowFeatures:
        return RowFeatures(self._width)

    def compact(self, states: Tensor) -> Tensor:
        rows = torch.full((len(states), self._width), self._number, dtype=torch.int32)
        rows[:, :2] = states
        return rows


def longer(world: TinyWorld) -> WorldModel:
    """The same world with a word more in each row, and a wider type."""

    class Longer(WorldModel):
        spec = replace(world.spec, state_words=3, state_dtype=torch.int32)

        def initial_state(self) -> Tensor:
            return self.wide(world.initial_state()[None])[0]

        def wide(self, rows: Tensor) -> Tensor:
            return torch.cat([rows, rows[:, :1]], 1).to(torch.int32)

        def short(self, rows: Tensor) -> Tensor:
            return rows[:, :2].to(torch.int16)

        def transitions(self, states: Tensor, actions: Tensor | None = None) -> Any:
            found = world.transitions(self.short(states), actions)
            ones = torch.ones_like(found.prob)
            return replace(found, states=self.wide(found.states), duration=ones)

        def available(self, states: Tensor) -> Tensor:
            return world.available(self.short(states))

        def achieved(self, states: Tensor) -> Tensor:
            return world.achieved(self.short(states))

        def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
            return self.wide(world.step(self.short(states), actions, generator))

        def describe(self, state: Tensor) -> str:
            return world.describe(self.short(state[None])[0])

    return Longer()


@pytest.fixture(name="both")
def _both() -> EnsembleWorld:
    """Two worlds with different goals and rows."""
    return EnsembleWorld([TinyWorld(4), longer(DoorWorld(4))])


@pytest.mark.parametrize("layouts", [1, 3])
class TestEnsembleWorld(WorldModelTests):
    @pytest.fixture
    def world(self, layouts: int) -> WorldModel:
        return EnsembleWorld([TinyWorld(4), DoorWorld(4), TinyWorld(4)][:layouts])


def mixed(both: EnsembleWorld) -> Tensor:
    """Rows of both worlds in turn."""
    starts = torch.cat([initial.states for initial in both.starts()])
    rows = reachable_states(both)
    other = both.transitions(starts[1:].repeat(2, 1)).states
    return torch.cat([rows, other])[torch.randperm(len(rows) + len(other))]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_every_row_gets_the_answers_of_its_own_world(both: EnsembleWorld) -> None:
    rows = mixed(both)
    layout = both.layout_of(rows)
    assert layout.bincount().min() > 2
    joint = both.spec.num_joint_actions
    pairs = as_mappings(both.transitions(rows))
    available, achieved = both.available(rows), both.achieved(rows)
    starts = (0, len(both.worlds[0].spec.goals))
    for index, row in enumerate(rows):
        number = int(layout[index])
        world = both.worlds[number]
        own = row[None, 1 : 1 + world.spec.state_words].to(world.spec.state_dtype)
        padding = (0,) * (both.spec.state_words - 1 - world.spec.state_words)
        expected = [
            {(number, *state, *padding): outcome for state, outcome in pair.items()}
            for pair in as_mappings(world.transitions(own))
        ]
        assert pairs[index * joint : (index + 1) * joint] == expected
        assert torch.equal(available[index], world.available(own)[0])
        goals = torch.zeros(len(both.spec.goals), dtype=torch.bool)
        goals[starts[number] : starts[number] + len(world.spec.goals)] = world.achieved(own)[0]
        assert torch.equal(achieved[index], goals)


def test_given_actions_are_those_of_their_rows(both: EnsembleWorld) -> None:
    rows = mixed(both)
    every = both.transitions(rows)
    joint = torch.arange(len(rows)) % both.spec.num_joint_actions
    counts = torch.tensor(both.spec.num_actions)
    actions = joint[:, None] // torch.tensor(both.spec.strides) % counts
    found = as_mappings(both.transitions(rows, actions))
    expected = as_mappings(every)
    each = both.spec.num_joint_actions
    assert found == [expected[i * each + int(j)] for i, j in enumerate(joint)]


def test_episodes_start_where_those_of_each_world_do(both: EnsembleWorld) -> None:
    starts = torch.cat([initial.states for initial in both.starts()])
    assert starts.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
    assert torch.equal(both.initial_state(), starts[0])
    assert "layout 1" in both.describe(starts[1])


def test_a_layout_that_does_not_exist_is_refused(both: EnsembleWorld) -> None:
    with pytest.raises(WorldError, match="names layout 2"):
        both.available(torch.tensor([[2, 0, 0, 0]], dtype=torch.int32))


def test_no_rows_get_no_answers(both: EnsembleWorld) -> None:
    nothing = torch.cat([initial.states for initial in both.starts()])[:0]
    assert both.transitions(nothing).num_pairs == 0
    assert both.available(nothing).shape == (0, 3, 3)
    assert both.achieved(nothing).shape == (0, 8)


def test_goals_follow_world_by_world_and_slots_pad_them_human_by_human(
    both: EnsembleWorld,
) -> None:
    names = [goal.name for goal in both.spec.goals]
    assert names[2] == "inside in layout 0"
    assert names[3] == "shut in layout 1"
    assert len({(goal.human, goal.name) for goal in both.spec.goals}) == len(names)
    slots = GoalIndex.of(both.spec, [world.spec for world in both.worlds])
    assert slots.human.tolist() == [0, 0, 0, 1, 1]
    assert slots.goal.tolist() == [[0, 1, -1, 2, -1], [4, 6, 7, 3, 5]]
    assert slots.weight.tolist() == [[1, 2, 0, 0.5, 0], [1, 0.25, 1, 0.5, 2]]


def test_the_slots_of_one_world_are_its_goals_human_by_human() -> None:
    slots = GoalIndex.of(DoorWorld().spec)
    assert slots.human.tolist() == [0, 0, 0, 1, 1]
    assert slots.goal.tolist() == [[1, 3, 4, 0, 2]]
    assert slots.weight.tolist() == [[1.0, 0.25, 1.0, 0.5, 2.0]]


def test_the_prior_of_each_world_is_asked_about_its_own_rows(both: EnsembleWorld) -> None:
    prior = EnsemblePrior(both, favours_first)
    rows = mixed(both)
    alive = both.available(rows).flatten(1).any(1)
    rows = rows[alive]
    found = prior.policy(rows, torch.full((len(rows),), 3))
    for row, policy in zip(rows, found, strict=True):
        ((layout, _, own),) = both.split(row[None])
        goals = both.goals_of(layout)
        expected = favours_first(both.worlds[layout]).policy(own, torch.full((len(own),), 3))[0]
        assert torch.equal(policy[goals], expected)
        others = torch.ones(len(policy), dtype=torch.bool)
        others[goals] = False
        assert not policy[others].any()


def test_features_of_each_world_are_padded_to_the_largest() -> None:
    worlds = [Varied(features=Picture(2)), Varied(features=Picture(3))]
    both = EnsembleWorld(worlds)
    reader = cloudpickle.loads(cloudpickle.dumps(both.spec.featurizer))
    assert reader.shape == FeatureShape(channels=1, height=1, width=3, globals=1)
    rows = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=torch.int16)
    found = reader(rows)
    assert found.grid[:, 0, 0].tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert found.globals[:, 0].tolist() == [0, 1, 0]
    assert found.flat().shape == (3, reader.shape.flat)


def test_worlds_that_only_have_words_are_told_apart_by_the_layout(both: EnsembleWorld) -> None:
    found = both.spec.featurizer(torch.cat([initial.states for initial in both.starts()]))
    assert found.globals.tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert both.spec.featurizer.shape.flat == 5


def test_compact_rows_of_equal_size_need_no_layout() -> None:
    both = EnsembleWorld([CompactDoors(5), CompactDoors(8)])
    assert both.compact_features is not None
    rows = torch.cat([initial.states for initial in both.starts()])[[1, 0, 1]]
    assert both.compact(rows).tolist() == [[0, 0, 8], [0, 0, 5], [0, 0, 8]]
    assert both.compact(rows[:0]).shape == (0, 3)
    spec = learner_spec(both, "compact")
    assert (spec.state_words, spec.state_dtype) == (3, torch.int32)
    assert spec.features == RowFeatures(3)
    assert spec.goals == both.spec.goals


@pytest.mark.parametrize(
    "worlds",
    [[CompactDoors(1), CompactDoors(2, width=4)], [CompactDoors(1), DoorWorld()], [DoorWorld()]],
)
def test_without_common_compact_rows_they_cannot_be_stored(worlds: list[WorldModel]) -> None:
    world = EnsembleWorld(worlds)
    assert world.compact_features is None
    with pytest.raises(ConfigError, match=r"replay\.store:"):
        learner_spec(world, "compact")
    assert learner_spec(world, "rows") is world.spec


SPEC = DoorWorld().spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 5}, "has horizon 5, but 'door' has 4"),
        ({"agents": SPEC.agents[::-1]}, r"has actions \[\('wait', 'go', 'shout'\)"),
        (
            {"agents": tuple(replace(agent, role="robot") for agent in SPEC.agents)},
            r"has roles \['robot'",
        ),
        (
            {"goals": tuple(replace(goal, features=(1.0, 2.0)) for goal in SPEC.goals)},
            r"goals .*\[2\].*'door' .*\[0\]",
        ),
    ],
)
def test_worlds_that_do_not_fit_together_are_refused(
    changes: Mapping[str, Any], message: str
) -> None:
    odd = Varied(name="odd", **changes)
    with pytest.raises(SolveError, match=rf"world 1 .*'odd', .*{message}"):
        EnsembleWorld([DoorWorld(), odd])


def test_one_street_alone_is_an_ensemble_too() -> None:
    spec: WorldSpec = EnsembleWorld([Street(2)]).spec
    assert spec.num_joint_actions == 64
    assert spec.state_dtype == torch.int16
