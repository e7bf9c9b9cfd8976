"""The world model kit passes a tiny right world and fails each one broken on purpose."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from empo_core.features import FeatureShape, Featurizer, RowFeatures
from empo_core.protocols import WorldModel
from empo_core.types import Expansion, InitialStates, Successors, WorldSpec
from empo_core.world_structure import Reads, Symmetry
from empo_testing.world_model import WorldModelTests
from empo_testing.worlds import TinyWorld

Runner = Callable[..., set[str]]


class Right(TinyWorld):
    """A right world that also draws, locates its agents and allows threads."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, releases_gil=True)

    def render(self, state: Tensor, overlay: object = None) -> np.ndarray:
        return np.full((4, 6, 3), int(state.sum()) * 100, dtype=np.uint8)

    def positions(self, states: Tensor) -> Tensor:
        return torch.zeros((len(states), 3, 2), dtype=torch.int64)

    def headings(self, states: Tensor) -> Tensor:
        return torch.zeros((len(states), 3), dtype=torch.int64)

    def views(self, states: Tensor) -> Tensor:
        return states[:, None].expand(-1, 3, -1).float()

    def compact(self, states: Tensor) -> Tensor:
        return states.int()

    @property
    def compact_features(self) -> Featurizer:
        return self.spec.featurizer

    @property
    def max_states(self) -> int:
        return 6


class LooksEverywhere(Right):
    def headings(self, states: Tensor) -> Tensor:
        return super().headings(states) + 4


class SharesOneView(Right):
    def views(self, states: Tensor) -> Tensor:
        return super().views(states)[:, 0]


class CompactsTooMuch(Right):
    def compact(self, states: Tensor) -> Tensor:
        return 0 * super().compact(states)


class LosesTheCompactFeatures(Right):
    compact_features = None  # type: ignore[assignment]


class CountsTooFewStates(Right):
    max_states = 2  # type: ignore[assignment]


class FeaturesWithoutShape(RowFeatures):
    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(globals=7)


class ReadsMoreThanItHas(Right):
    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, features=FeaturesWithoutShape(2))


class GoalsOfManyFeatures(Right):
    def __init__(self) -> None:
        super().__init__()
        first, *others = self.spec.goals
        first = dataclasses.replace(first, features=(1.0, 2.0, 3.0, 4.0, 5.0))
        self.spec = dataclasses.replace(self.spec, goals=(first, *others))


class ContentOfThisProcess(Right):
    def content(self) -> object:
        return id(self)


class LacksAMethod:
    spec = TinyWorld().spec


class TwoAgentsOfOneName(Right):
    def __init__(self) -> None:
        super().__init__()
        first, *others = self.spec.agents
        others[0] = dataclasses.replace(others[0], name=first.name)
        self.spec = dataclasses.replace(self.spec, agents=(first, *others))


class GoalOfTheRobot(Right):
    def __init__(self) -> None:
        super().__init__()
        goals = tuple(dataclasses.replace(goal, human=1) for goal in self.spec.goals)
        self.spec = dataclasses.replace(self.spec, goals=goals)


class LendsItsInitialState(Right):
    def initial_state(self) -> Tensor:
        return self._rows[0]


class StartsWithHalfAChance(Right):
    def initial_states(self) -> InitialStates:
        return InitialStates(self._rows[:1].clone(), torch.tensor([0.5]))


class Altered(Right):
    """Breaks what ``transitions`` returns."""

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        return self.altered(super().transitions(states, actions), actions)

    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        raise NotImplementedError


class ForgetsTheFirstOffset(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, offsets=successors.offsets[1:])


class WidensItsRows(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, states=successors.states.long())


class NegativeDuration(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, duration=-torch.ones_like(successors.prob))


class LosesProbability(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, prob=successors.prob * (1 - 1e-11))


class SinglePrecision(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, prob=successors.prob.float())


class ListsSuccessorsTwice(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return Successors(
            2 * successors.offsets,
            successors.states.repeat_interleave(2, 0),
            successors.prob.repeat_interleave(2) / 2,
        )


class LeadsNowhere(Altered):
    def altered(self, successors: Successors, actions: Tensor | None) -> Successors:
        return dataclasses.replace(successors, states=successors.states + 5)


class CountsTheLastAgentFastest(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            grid = torch.cartesian_prod(*map(torch.arange, self.spec.num_actions))
            actions = grid.repeat(len(states), 1)
            states = states.repeat_interleave(len(grid), 0)
        return super().transitions(states, actions)


class LooksAtTheFirstRow(Right):
    def achieved(self, states: Tensor) -> Tensor:
        return super().achieved(states[:1]).expand(len(states), -1).clone()


class SortsItsRows(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            states = states[states.sum(1).argsort()]
        return super().transitions(states, actions)


class Wears(Right):
    def available(self, states: Tensor) -> Tensor:
        self._prob = self._prob.flip(0)
        return super().available(states)


class DrawsGlobally(Right):
    def available(self, states: Tensor) -> Tensor:
        torch.rand(1)
        return super().available(states)


class WritesIntoItsInput(Right):
    def achieved(self, states: Tensor) -> Tensor:
        found = super().achieved(states)
        states.zero_()
        return found


class LendsItsTables(Right):
    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[Any, Successors] = {}

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        key = (str(states.tolist()), str(None if actions is None else actions.tolist()))
        if key not in self._cache:
            self._cache[key] = super().transitions(states, actions)
        return self._cache[key]


class NeedsRows(Right):
    def achieved(self, states: Tensor) -> Tensor:
        return torch.stack([super(NeedsRows, self).achieved(row[None])[0] for row in states])


class PadsWithTrue(Right):
    def available(self, states: Tensor) -> Tensor:
        found = super().available(states)
        found[:, :2, 2] = True
        return found


class AllowsEverything(Right):
    def available(self, states: Tensor) -> Tensor:
        found = super().available(states)
        found[states[:, 0] == 1] = super().available(self.initial_state()[None])
        return found


class RestsForTheEnd(Right):
    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        after = super().step(states, actions, generator)
        return torch.where((states == 1).all(1, keepdim=True), self.initial_state(), after)


class CountsAchievements(Right):
    def achieved(self, states: Tensor) -> Tensor:
        return super().achieved(states).int()


class StepsAnywhere(Right):
    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        choice = torch.randint(3, (len(states),), generator=generator)
        return self._rows[choice]


class StepsUniformly(Right):
    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        found = self.transitions(states, actions)
        return (
            super().step(states, actions, generator)
            if not len(found.prob)
            else _uniform(found, states, generator)
        )


def _uniform(successors: Successors, states: Tensor, generator: torch.Generator) -> Tensor:
    counts = successors.offsets.diff()
    draw = (torch.rand(len(states), generator=generator) * counts).long()
    return successors.states[(successors.offsets[:-1] + draw).clamp(max=len(successors.prob) - 1)]


class StepsByGlobalChance(Right):
    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return super().step(states, actions, torch.default_generator)


class CutsLongRows(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        return super().transitions(states[:, :2], actions)


class TakesAnyRow(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        return super().transitions(states.clamp(0, 0) if states.shape[1] == 2 else states, actions)


class WrapsActions(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is not None:
            actions = actions % torch.tensor(self.spec.num_actions)
        return super().transitions(states, actions)


class SaysNothing(Right):
    def describe(self, state: Tensor) -> str:
        return " "


class Unpicklable(Right):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()


class ForgetsItsTables(Right):
    def __reduce__(self) -> Any:
        return (_with_other_odds, ())


def _with_other_odds() -> Right:
    world = Right()
    world._prob = world._prob.flip(1)
    return world


class SharesABuffer(Right):
    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        self._buffer = super().transitions(states, actions)
        time.sleep(0.002)
        return self._buffer


class SizesDiffer(Right):
    def render(self, state: Tensor, overlay: object = None) -> np.ndarray:
        return np.zeros((4 + int(state.sum()), 6, 3), dtype=np.uint8)


class VectorsHaveAnotherSize(Right):
    def render_svg(self, state: Tensor, overlay: object = None) -> str:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="4"></svg>'


class LocatesTheFirstAgent(Right):
    def positions(self, states: Tensor) -> Tensor:
        return super().positions(states)[:, :1]


class ExpandsInAnotherOrder(Right):
    def expand(self, states: Tensor) -> Expansion:
        found = Expansion.of(self.transitions(states))
        return dataclasses.replace(
            found, states=found.states.flip(0), prob=found.prob.flip(0), index=found.index.flip(0)
        )


class NoHorizon(Right):
    def __init__(self) -> None:
        super().__init__()
        self.spec: WorldSpec = dataclasses.replace(self.spec, horizon=0)


class ConfusesTheRobotsActions(Right):
    def symmetries(self) -> list[Symmetry]:
        exchanged = torch.tensor([[0, 1, 2], [1, 0, 2], [0, 1, 2]])
        return [
            Symmetry(
                name="wait and open",
                rows=lambda states: states,
                agents=(0, 1, 2),
                actions=lambda states: exchanged.expand(len(states), -1, -1),
                goals=(0, 1, 2),
            )
        ]


class ForgetsTheDoor(Right):
    def reads(self) -> Reads:
        inside = torch.tensor([False, True])
        return Reads(
            words=torch.zeros(2, 2, dtype=torch.bool),
            available=inside,
            achieved=inside.expand(3, 2),
        )


FLAWS: list[tuple[type, list[str]]] = [
    (LacksAMethod, ["test_it_fits_the_protocol"]),
    (TwoAgentsOfOneName, ["test_the_spec_is_consistent_and_constant"]),
    (GoalOfTheRobot, ["test_the_spec_is_consistent_and_constant"]),
    (NoHorizon, ["test_the_spec_is_consistent_and_constant"]),
    (LendsItsInitialState, ["test_the_initial_state_is_a_row_of_its_own"]),
    (StartsWithHalfAChance, ["test_initial_states_are_distinct_and_have_probabilities"]),
    (ForgetsTheFirstOffset, ["test_successors_are_well_formed"]),
    (WidensItsRows, ["test_successors_are_well_formed"]),
    (NegativeDuration, ["test_successors_are_well_formed"]),
    (LosesProbability, ["test_probabilities_are_positive_and_sum_to_one"]),
    (SinglePrecision, ["test_probabilities_are_positive_and_sum_to_one"]),
    (ListsSuccessorsTwice, ["test_successors_of_a_pair_are_distinct"]),
    (LeadsNowhere, ["test_successors_are_states"]),
    (CountsTheLastAgentFastest, ["test_all_joint_actions_are_those_of_the_joint_index"]),
    (LooksAtTheFirstRow, ["test_a_batch_gives_what_its_rows_give_alone"]),
    (SortsItsRows, ["test_order_and_repetition_in_a_batch_do_not_matter"]),
    (Wears, ["test_asking_changes_nothing"]),
    (DrawsGlobally, ["test_asking_changes_nothing"]),
    (WritesIntoItsInput, ["test_asking_changes_nothing"]),
    (LendsItsTables, ["test_answers_belong_to_whoever_asked"]),
    (NeedsRows, ["test_an_empty_batch_gives_an_empty_answer"]),
    (PadsWithTrue, ["test_availability_has_its_shape_and_padding"]),
    (AllowsEverything, ["test_exactly_the_available_actions_have_successors"]),
    (RestsForTheEnd, ["test_a_terminal_state_stays"]),
    (CountsAchievements, ["test_achieved_has_its_shape_and_dtype"]),
    (
        StepsAnywhere,
        ["test_a_step_leads_to_a_successor", "test_steps_are_distributed_as_transitions_say"],
    ),
    (StepsUniformly, ["test_steps_are_distributed_as_transitions_say"]),
    (StepsByGlobalChance, ["test_the_generator_decides_every_step"]),
    (CutsLongRows, ["test_rows_of_another_length_are_refused"]),
    (TakesAnyRow, ["test_rows_that_are_no_states_are_refused"]),
    (WrapsActions, ["test_actions_out_of_range_are_refused"]),
    (SaysNothing, ["test_states_can_be_described"]),
    (Unpicklable, ["test_a_copy_sent_to_another_process_answers_the_same"]),
    (ForgetsItsTables, ["test_a_copy_sent_to_another_process_answers_the_same"]),
    (SharesABuffer, ["test_threads_get_the_same_answers"]),
    (SizesDiffer, ["test_pictures_have_one_size_and_repeat"]),
    (VectorsHaveAnotherSize, ["test_a_picture_as_svg_has_the_size_of_the_pixels"]),
    (ExpandsInAnotherOrder, ["test_expanding_says_what_transitions_say"]),
    (LocatesTheFirstAgent, ["test_positions_have_their_shape"]),
    (LooksEverywhere, ["test_headings_are_directions"]),
    (SharesOneView, ["test_views_have_a_row_per_agent"]),
    (CompactsTooMuch, ["test_compact_rows_have_the_features_of_the_rows"]),
    (LosesTheCompactFeatures, ["test_compact_rows_have_the_features_of_the_rows"]),
    (CountsTooFewStates, ["test_there_are_no_more_states_than_max_states"]),
    (ReadsMoreThanItHas, ["test_features_have_their_shape"]),
    (GoalsOfManyFeatures, ["test_the_spec_is_consistent_and_constant"]),
    (ContentOfThisProcess, ["test_a_copy_sent_to_another_process_answers_the_same"]),
    (ConfusesTheRobotsActions, ["test_declared_symmetries_change_nothing"]),
    (ForgetsTheDoor, ["test_words_outside_the_declared_cone_have_no_influence"]),
]


def subclass(make: type) -> type:
    class TestIt(WorldModelTests):
        @pytest.fixture
        def world(self) -> WorldModel:
            return make()  # type: ignore[no-any-return]

        @pytest.fixture
        def states(self) -> Tensor:
            # Given, so that a world too broken to be explored can be tested too.
            return torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.int16)

    return TestIt


@pytest.mark.parametrize("make", [Right, TinyWorld])
def test_a_right_world_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


def test_the_kit_finds_the_states_by_itself(kit_failures: Runner) -> None:
    class TestIt(WorldModelTests):
        @pytest.fixture
        def world(self) -> WorldModel:
            return TinyWorld()

    assert kit_failures(TestIt) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_world_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in dir(WorldModelTests) if name.startswith("test_")}
