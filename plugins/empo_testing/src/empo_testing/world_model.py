"""Conformance kit of world models: pure, exact, batched, consistent between methods."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import cloudpickle  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.protocols import WorldModel
from empo_core.types import Successors
from empo_core.world_content import world_digest
from empo_testing.exploration import (
    as_mappings,
    chance_of_worse_fit,
    global_randomness_untouched,
    joint_actions,
    reachable_states,
)
from empo_testing.world_structure import StructureTests
from empo_worlds.contract import initial_states_of
from empo_worlds.queries import is_terminal

SAMPLES = 4000
UNLIKELY = 1e-6
"""Below this p-value samples contradict the probabilities; seeds are fixed, so no flakiness."""


class _WorldModelCase:
    """The world model under test, and rows of it."""

    @pytest.fixture
    def world(self) -> WorldModel:
        """The world model under test."""
        raise NotImplementedError("override the fixture 'world'")

    @pytest.fixture
    def states(self, world: WorldModel) -> Tensor:
        """Distinct rows of the world; a terminal one and random successors help."""
        return reachable_states(world)

    @pytest.fixture
    def malformed(self, world: WorldModel) -> Tensor:
        """Rows of the right length that the world must refuse, each on its own."""
        limits = torch.iinfo(world.spec.state_dtype)
        return torch.tensor(
            [[limits.max] * world.spec.state_words, [limits.min] * world.spec.state_words],
            dtype=world.spec.state_dtype,
        )


class _TransitionTests(_WorldModelCase):
    """Successors, availability and achieved goals, in batches of any kind."""

    def test_successors_are_well_formed(self, world: WorldModel, states: Tensor) -> None:
        answer = world.transitions(states)
        offsets = answer.offsets.tolist()
        items = offsets[-1]
        assert answer.num_pairs == len(states) * world.spec.num_joint_actions
        assert offsets[0] == 0
        assert offsets == sorted(offsets)
        assert answer.states.shape == (items, world.spec.state_words)
        assert answer.states.dtype == world.spec.state_dtype
        assert answer.prob.shape == (items,)
        assert items > 0, "no state has a successor; give states that do"
        if answer.duration is not None:
            assert answer.duration.shape == (items,)
            assert bool((answer.duration > 0).all() and answer.duration.isfinite().all())

    def test_probabilities_are_positive_and_sum_to_one(
        self, world: WorldModel, states: Tensor
    ) -> None:
        answer = world.transitions(states)
        assert str(answer.prob.dtype) == "torch.float64", "probabilities are float64"
        low, high = float(answer.prob.min()), float(answer.prob.max())
        assert low > 0, f"a successor has probability {low}; leave it out"
        assert high <= 1 + 1e-12, f"a successor has probability {high}"
        total = torch.segment_reduce(answer.prob, "sum", offsets=answer.offsets.long())
        happens = answer.offsets.diff() > 0
        error = (total[happens] - 1).abs().max()
        assert error <= 1e-12, f"the probabilities of a pair are {error:.2g} off 1"

    def test_successors_of_a_pair_are_distinct(self, world: WorldModel, states: Tensor) -> None:
        answer = world.transitions(states)
        for pair, successors in enumerate(as_mappings(answer)):
            items = int(answer.offsets[pair + 1] - answer.offsets[pair])
            assert len(successors) == items, f"pair {pair} lists a successor twice"

    def test_successors_are_states(self, world: WorldModel, states: Tensor) -> None:
        successors = torch.unique(world.transitions(states).states, dim=0)
        assert len(world.available(successors)) == len(successors)
        assert len(world.achieved(successors)) == len(successors)
        assert world.transitions(successors).num_pairs % len(successors) == 0

    def test_all_joint_actions_are_those_of_the_joint_index(
        self, world: WorldModel, states: Tensor
    ) -> None:
        joint = joint_actions(world.spec)
        at_once = world.transitions(states)
        one_by_one = world.transitions(
            states.repeat_interleave(len(joint), 0), joint.repeat(len(states), 1)
        )
        assert_same(at_once, one_by_one)

    def test_a_batch_gives_what_its_rows_give_alone(
        self, world: WorldModel, states: Tensor
    ) -> None:
        together = as_mappings(world.transitions(states))
        alone = [pair for row in states for pair in as_mappings(world.transitions(row[None]))]
        assert together == alone
        available, achieved = world.available(states), world.achieved(states)
        for index, row in enumerate(states):
            assert torch.equal(world.available(row[None])[0], available[index])
            assert torch.equal(world.achieved(row[None])[0], achieved[index])

    def test_order_and_repetition_in_a_batch_do_not_matter(
        self, world: WorldModel, states: Tensor
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        order = torch.randint(len(states), (2 * len(states) + 1,), generator=generator)
        number = world.spec.num_joint_actions
        expected = as_mappings(world.transitions(states))
        mappings = as_mappings(world.transitions(states[order]))
        for place, original in enumerate(order.tolist()):
            mine = mappings[place * number : (place + 1) * number]
            assert mine == expected[original * number : (original + 1) * number]
        assert torch.equal(world.available(states[order]), world.available(states)[order])
        assert torch.equal(world.achieved(states[order]), world.achieved(states)[order])

    def test_expanding_says_what_transitions_say(self, world: WorldModel, states: Tensor) -> None:
        expansion, expected = world.expand(states), world.transitions(states)
        if expansion is None:
            pytest.skip("the world lists each successor by itself")
        assert expansion.offsets.tolist() == expected.offsets.tolist()
        assert torch.equal(expansion.states[expansion.index], expected.states)
        assert torch.equal(expansion.prob[expansion.index], expected.prob)
        first = torch.unique(expansion.index, return_inverse=False).tolist()
        assert first == list(range(len(expansion.states))), "each outcome is that of some item"
        newest = torch.cummax(expansion.index, 0).values.diff(prepend=torch.tensor([-1]))
        assert newest.max() <= 1, "outcomes are numbered in the order in which items name them"

    def test_an_empty_batch_gives_an_empty_answer(self, world: WorldModel, states: Tensor) -> None:
        nothing = states[:0]
        no_actions = torch.zeros((0, len(world.spec.agents)), dtype=torch.int64)
        for answer in (world.transitions(nothing), world.transitions(nothing, no_actions)):
            assert answer.offsets.tolist() == [0]
            assert answer.states.shape == (0, world.spec.state_words)
            assert answer.prob.shape == (0,)
        assert world.achieved(nothing).shape == (0, len(world.spec.goals))
        assert world.available(nothing).shape[:2] == (0, len(world.spec.agents))
        stepped = world.step(nothing, no_actions, torch.Generator())
        assert stepped.shape == (0, world.spec.state_words)

    def test_availability_has_its_shape_and_padding(
        self, world: WorldModel, states: Tensor
    ) -> None:
        counts = world.spec.num_actions
        available = world.available(states)
        assert available.dtype == torch.bool
        assert available.shape == (len(states), len(counts), max(counts))
        for agent, count in enumerate(counts):
            assert not bool(available[:, agent, count:].any()), "padding must be False"

    def test_exactly_the_available_actions_have_successors(
        self, world: WorldModel, states: Tensor
    ) -> None:
        joint = joint_actions(world.spec)
        available = world.available(states)
        agents = torch.arange(joint.shape[1])
        happens = available[:, agents, joint].all(-1)
        has_items = world.transitions(states).offsets.diff() > 0
        assert torch.equal(has_items.reshape(happens.shape), happens)
        acting = available.any(2)
        assert torch.equal(acting.any(1), acting.all(1)), (
            "where one agent can act all must; an idle agent has an action that does nothing"
        )

    def test_achieved_has_its_shape_and_dtype(self, world: WorldModel, states: Tensor) -> None:
        achieved = world.achieved(states)
        assert achieved.dtype == torch.bool
        assert achieved.shape == (len(states), len(world.spec.goals))


class _StepTests(_WorldModelCase):
    """Sampled successors."""

    def test_a_terminal_state_stays(self, world: WorldModel, states: Tensor) -> None:
        ends = states[is_terminal(world, states)]
        if not len(ends):
            pytest.skip("none of the states is terminal")
        actions = torch.zeros((len(ends), len(world.spec.agents)), dtype=torch.int64)
        after = world.step(ends, actions, torch.Generator().manual_seed(0))
        assert torch.equal(after, ends)

    def test_a_step_leads_to_a_successor(self, world: WorldModel, states: Tensor) -> None:
        answer = world.transitions(states)
        actions, starts = possible(answer, world, states)
        for seed in range(3):
            after = world.step(starts, actions, torch.Generator().manual_seed(seed))
            assert after.shape == starts.shape
            assert after.dtype == world.spec.state_dtype
            support = as_mappings(world.transitions(starts, actions))
            for row, successors in zip(after.tolist(), support, strict=True):
                assert tuple(row) in successors, f"{row} is not among {list(successors)}"

    def test_steps_are_distributed_as_transitions_say(
        self, world: WorldModel, states: Tensor
    ) -> None:
        answer = world.transitions(states)
        spread = answer.offsets.diff()
        joint, number = joint_actions(world.spec), world.spec.num_joint_actions
        generator = torch.Generator().manual_seed(1)
        for pair in spread.argsort(descending=True, stable=True)[:4].tolist():
            state, actions = states[pair // number], joint[pair % number]
            batch = state.repeat(SAMPLES, 1), actions.repeat(SAMPLES, 1)
            after = [tuple(row) for row in world.step(*batch, generator).tolist()]
            outcomes = as_mappings(world.transitions(state[None], actions[None]))[0]
            counts = [after.count(row) for row in outcomes]
            assert sum(counts) == SAMPLES, "a step leads to what is no successor"
            p = chance_of_worse_fit(counts, [prob for prob, _ in outcomes.values()])
            assert p > UNLIKELY, f"{counts} of {SAMPLES} do not fit {outcomes}: p = {p:.1g}"

    def test_the_generator_decides_every_step(self, world: WorldModel, states: Tensor) -> None:
        actions, starts = possible(world.transitions(states), world, states)
        starts, actions = starts.repeat(50, 1), actions.repeat(50, 1)
        generator = torch.Generator().manual_seed(7)
        first, second = (world.step(starts, actions, generator) for _ in range(2))
        torch.manual_seed(123)
        generator = torch.Generator().manual_seed(7)
        with global_randomness_untouched():
            assert torch.equal(world.step(starts, actions, generator), first)
            assert torch.equal(world.step(starts, actions, generator), second)


class WorldModelTests(_TransitionTests, _StepTests, StructureTests):
    """Subclass this in your plugin's tests and override ``world``.

    ``states`` are the rows it is tested on: by default the first ones reachable.
    ``malformed`` are rows that are no states: by default the extremes of the dtype.
    """

    def test_it_fits_the_protocol(self, world: WorldModel) -> None:
        assert isinstance(world, WorldModel)

    def test_the_spec_is_consistent_and_constant(self, world: WorldModel) -> None:
        spec = world.spec
        assert world.spec == spec
        assert spec.name
        assert len({agent.name for agent in spec.agents}) == len(spec.agents) > 0
        for agent in spec.agents:
            assert agent.role in ("human", "robot", "other")
            assert len(set(agent.actions)) == len(agent.actions) > 0
        for goal in spec.goals:
            assert goal.human in spec.humans, f"goal {goal.name!r} belongs to no human"
            assert 0 <= goal.weight < float("inf")
        assert len({(goal.human, goal.name) for goal in spec.goals}) == len(spec.goals)
        lengths = {len(goal.features) for goal in spec.goals}
        assert len(lengths) <= 1, f"goals have {lengths} features; give all of them as many"
        assert spec.state_words > 0
        assert not torch.empty(0, dtype=spec.state_dtype).is_floating_point()
        assert spec.horizon is None or spec.horizon >= 1

    def test_the_initial_state_is_a_row_of_its_own(self, world: WorldModel) -> None:
        is_one = len(world.initial_states().prob) == 1
        first = world.initial_state() if is_one else world.initial_states().states[0]
        assert first.shape == (world.spec.state_words,)
        assert first.dtype == world.spec.state_dtype
        copy = first.clone()
        first.zero_().sub_(1)
        again = world.initial_states().states[0]
        assert torch.equal(again, copy), "writing to the row changed the world"

    def test_initial_states_are_distinct_and_have_probabilities(self, world: WorldModel) -> None:
        initial = initial_states_of(world)
        if len(initial.prob) == 1:
            assert torch.equal(world.initial_state(), initial.states[0])
        else:
            with pytest.raises(WorldError):
                world.initial_state()

    def test_asking_changes_nothing(self, world: WorldModel, states: Tensor) -> None:
        rows = states.clone()
        first = world.transitions(states)
        before = as_mappings(first)
        actions, starts = possible(first, world, states)
        kept_actions = actions.clone()
        with global_randomness_untouched():
            world.step(starts, actions, torch.Generator().manual_seed(0))
            world.available(states)
            world.achieved(states)
            world.initial_states()
            world.describe(states[-1])
            again = world.transitions(states)
        assert_same(again, first)
        assert as_mappings(first) == before, "a later call changed an earlier answer"
        assert torch.equal(states, rows), "the rows asked about were written to"
        assert torch.equal(actions, kept_actions), "the actions asked about were written to"

    def test_answers_belong_to_whoever_asked(self, world: WorldModel, states: Tensor) -> None:
        expected = as_mappings(world.transitions(states))
        available, achieved = world.available(states).clone(), world.achieved(states).clone()
        answer = world.transitions(states)
        for tensor in (answer.offsets, answer.states, answer.prob):
            tensor.zero_()
        world.available(states).logical_not_()
        world.achieved(states).logical_not_()
        assert as_mappings(world.transitions(states)) == expected
        assert torch.equal(world.available(states), available)
        assert torch.equal(world.achieved(states), achieved)

    def test_rows_of_another_length_are_refused(self, world: WorldModel, states: Tensor) -> None:
        for rows in (states[:, :-1], torch.cat([states, states[:, :1]], dim=1)):
            with pytest.raises(WorldError):
                world.transitions(rows)

    def test_rows_that_are_no_states_are_refused(
        self, world: WorldModel, states: Tensor, malformed: Tensor
    ) -> None:
        for row in malformed:
            with pytest.raises(WorldError):
                world.transitions(torch.stack([states[0], row]))

    def test_actions_out_of_range_are_refused(self, world: WorldModel, states: Tensor) -> None:
        for agent, count in enumerate(world.spec.num_actions):
            for action in (-1, count):
                actions = torch.zeros((1, len(world.spec.agents)), dtype=torch.int64)
                actions[0, agent] = action
                with pytest.raises(WorldError):
                    world.transitions(states[:1], actions)

    def test_states_can_be_described(self, world: WorldModel, states: Tensor) -> None:
        for row in states:
            text = world.describe(row)
            assert isinstance(text, str)
            assert text.strip()
            assert world.describe(row) == text

    def test_a_copy_sent_to_another_process_answers_the_same(
        self, world: WorldModel, states: Tensor
    ) -> None:
        copy = cloudpickle.loads(cloudpickle.dumps(world))
        assert copy.spec == world.spec
        assert torch.equal(copy.initial_states().states, world.initial_states().states)
        assert torch.equal(copy.initial_states().prob, world.initial_states().prob)
        assert_same(copy.transitions(states), world.transitions(states))
        assert world_digest(copy) == world_digest(world), "content() of the copy differs"

    def test_threads_get_the_same_answers(self, world: WorldModel, states: Tensor) -> None:
        if not world.spec.releases_gil:
            pytest.skip("the world does not claim to release the global lock")
        batches = [states[offset:] for offset in range(min(8, len(states)))]
        expected = [as_mappings(world.transitions(batch)) for batch in batches]
        with ThreadPoolExecutor(4) as pool:
            answers = list(
                pool.map(lambda batch: as_mappings(world.transitions(batch)), batches * 4)
            )
        assert answers == expected * 4

    def test_pictures_have_one_size_and_repeat(self, world: WorldModel, states: Tensor) -> None:
        rendered = [world.render(row) for row in states[:4]]
        pictures = [picture for picture in rendered if picture is not None]
        if not pictures:
            pytest.skip("the world draws nothing")
        assert len(pictures) == len(rendered), "a world draws all of its states or none"
        assert len({picture.shape for picture in pictures}) == 1
        assert pictures[0].ndim == 3
        assert pictures[0].shape[2] == 3
        assert all(picture.dtype.name == "uint8" for picture in pictures)
        again = world.render(states[0])
        assert again is not None
        assert (again == pictures[0]).all()

    def test_a_picture_as_svg_has_the_size_of_the_pixels(
        self, world: WorldModel, states: Tensor
    ) -> None:
        pixels, vectors = world.render(states[0]), world.render_svg(states[0])
        if vectors is None:
            pytest.skip("the world draws no vectors")
        assert pixels is not None, "a world that draws vectors draws pixels"
        height, width = pixels.shape[:2]
        assert f' width="{width}" height="{height}" ' in vectors

    def test_positions_have_their_shape(self, world: WorldModel, states: Tensor) -> None:
        positions = world.positions(states)
        if positions is None:
            pytest.skip("the world has no grid")
        assert positions.shape == (len(states), len(world.spec.agents), 2)
        assert not positions.dtype.is_floating_point

    def test_headings_are_directions(self, world: WorldModel, states: Tensor) -> None:
        headings = world.headings(states)
        if headings is None:
            pytest.skip("the agents of the world look nowhere")
        assert headings.shape == (len(states), len(world.spec.agents))
        assert bool(((headings >= 0) & (headings < 4)).all()), "headings are 0, 1, 2 or 3"

    def test_views_have_a_row_per_agent(self, world: WorldModel, states: Tensor) -> None:
        views = world.views(states)
        if views is None:
            pytest.skip("the world has no views")
        assert views.shape[:2] == (len(states), len(world.spec.agents))
        assert views.dtype.is_floating_point
        assert bool(views.isfinite().all())

    def test_compact_rows_have_the_features_of_the_rows(
        self, world: WorldModel, states: Tensor
    ) -> None:
        compact, featurizer = world.compact(states), world.compact_features
        assert (compact is None) == (featurizer is None), "compact needs compact_features"
        if compact is None or featurizer is None:
            pytest.skip("the world has no compact rows")
        assert str(compact.dtype) == "torch.int32", "compact rows are int32"
        assert torch.equal(featurizer(compact).flat(), world.spec.featurizer(states).flat())

    def test_there_are_no_more_states_than_max_states(
        self, world: WorldModel, states: Tensor
    ) -> None:
        if world.max_states is None:
            pytest.skip("the world does not say how many states it has")
        assert len(torch.unique(states, dim=0)) <= world.max_states

    def test_features_have_their_shape(self, world: WorldModel, states: Tensor) -> None:
        featurizer = world.spec.featurizer
        features = featurizer(states).flat()
        assert features.shape == (len(states), featurizer.shape.flat)
        assert bool(features.isfinite().all())


def possible(successors: Successors, world: WorldModel, states: Tensor) -> tuple[Tensor, Tensor]:
    """The last possible joint action of each non-terminal state, and these states."""
    happens = (successors.offsets.diff() > 0).reshape(len(states), -1)
    can_act = happens.any(1)
    last = happens.shape[1] - 1 - happens.flip(1).int().argmax(1)
    return joint_actions(world.spec)[last[can_act]], states[can_act]


def assert_same(left: Successors, right: Successors) -> None:
    """Check that two answers agree, but for the order of items within a pair."""
    assert as_mappings(left) == as_mappings(right)
    for field in fields(Successors):
        mine, theirs = getattr(left, field.name), getattr(right, field.name)
        assert (mine is None) == (theirs is None)
        assert mine is None or mine.dtype == theirs.dtype
