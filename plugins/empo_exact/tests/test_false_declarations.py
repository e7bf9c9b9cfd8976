"""A wrong declaration of a world is refused, or at least changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from cells_world import Cells, exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from random_games import Item, Table, TableWorld
from symmetric_games import Renaming, SymmetricWorld, symmetric_worlds
from test_cone import CONE, Noted
from test_symmetric_games import SYMMETRY, compare
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_core.world_structure import Reads, Symmetry
from empo_exact.assumptions import Assumptions
from empo_exact.reductions.declarations import questions
from empo_exact.solve import solve
from empo_testing.world_structure import StructureTests
from empo_theory.parameters import CompleteTheory
from empo_worlds.cone_checks import word_that_matters
from empo_worlds.queries import sample_successors

Profile = tuple[int, ...]
Outcome = dict[Profile, tuple[Item, ...]]


def outcome(*by_action: tuple[Item, ...]) -> Outcome:
    """The successors of each action of the human, whatever the robot does."""
    return {(a, robot): items for a, items in enumerate(by_action) for robot in (0, 1)}


def game(outcomes: list[Outcome], labels: tuple[int, ...], goal: int, **more: Any) -> Table:
    """A human and a robot of two actions; the human's goals are all states, and one of them."""
    goals = ((0, 1.0, frozenset(range(len(outcomes)))), (0, 1.0, frozenset([goal])))
    actions = 1 + max(human for human, _ in outcomes[0])
    return Table(("human", "robot"), (actions, 2), tuple(outcomes), goals, labels, **more)


def renaming(states: tuple[int, ...], actions: tuple[int, ...]) -> Renaming:
    return Renaming(states, (0, 1), (actions, (0, 1)), (0, 1))


def false_in_an_image() -> SymmetricWorld:
    """States 1, 2 and 3 become each other in turn. The start is 1, and only 3 is unlike them."""
    outcomes = [outcome(((1.0, 1, 1.0),), ((1.0, 1, 1.0),))]
    for state, chance in ((1, 0.9), (2, 0.9), (3, 0.1)):
        goes = ((chance, 4, 1.0), (1 - chance, state, 1.0))
        outcomes.append(outcome(((0.5, 4, 1.0), (0.5, state, 1.0)), goes))
    outcomes.append(outcome(((1.0, 4, 1.0),), ((1.0, 4, 1.0),)))
    table = game(outcomes, (50, 31, 20, 9, 40), 4, horizon=4, start=1)
    return SymmetricWorld(table, [renaming((0, 2, 3, 1, 4), (0, 1))])


def test_a_symmetry_that_is_false_in_an_image_of_an_image_is_refused() -> None:
    with pytest.raises(SolveError, match="images"):
        solve(false_in_an_image(), SYMMETRY)


def test_the_kit_tries_images_of_images() -> None:
    world = false_in_an_image()
    start = world.initial_state()[None]
    with pytest.raises(AssertionError, match="'renaming 0'"):
        StructureTests().test_declared_symmetries_change_nothing(world, start)


def test_two_actions_that_become_the_same_are_refused() -> None:
    stays: list[tuple[Item, ...]] = [((1.0, s, 1.0),) for s in range(5)]
    outcomes = [
        outcome(stays[1], stays[1], stays[1]),
        outcome(stays[1], stays[3], stays[3]),
        outcome(stays[2], stays[3], stays[4]),
        outcome(stays[3], stays[3], stays[3]),
        outcome(stays[4], stays[4], stays[4]),
    ]
    table = game(outcomes, (50, 20, 31, 9, 40), 3, horizon=4, start=1)
    with pytest.raises(SolveError, match=r"human 0 to \[0, 1, 1\]"):
        solve(SymmetricWorld(table, [renaming((0, 2, 1, 3, 4), (0, 1, 1))]), SYMMETRY)


def test_a_symmetry_that_is_false_where_few_walks_lead_is_refused() -> None:
    # A lock of six digits, and its mirror image; behind it, one of the two does something else.
    code, right = (2, 0, 3, 1, 2, 3), list[Outcome]()
    for side in (0, 7):
        for place, digit in enumerate(code):
            ends = [side + (place + 1 if a == digit else 0) for a in range(4)]
            both = [((0.5, end % 7, 1.0), (0.5, end % 7 + 7, 1.0)) for end in ends]
            one = [((1.0, end, 1.0),) for end in ends]
            right.append(outcome(*(both if place == 0 else one)))
        opened = [14, 14, 14, 14] if side == 0 else [15, 14, 14, 14]
        right.append(outcome(*(((1.0, end, 1.0),) for end in opened)))
    for end in (14, 15):
        right.append(outcome(*[((1.0, end, 1.0),)] * 4))
    table = game(right, tuple(range(16)), 14, horizon=9)
    states = (*(range(7, 14)), *range(7), 14, 15)
    with pytest.raises(SolveError, match=r"(?s)images.*state (6|13)\b"):
        solve(SymmetricWorld(table, [renaming(states, (0, 1, 2, 3))]), SYMMETRY)


@settings(max_examples=60)
@given(world=symmetric_worlds(), change=st.data())
def test_a_symmetry_with_two_images_exchanged_is_refused_or_changes_nothing(
    world: SymmetricWorld, change: st.DataObject
) -> None:
    (right,) = world.renamings
    states = list(right.states)
    one, other = (change.draw(st.integers(0, len(states) - 1)) for _ in range(2))
    states[one], states[other] = states[other], states[one]
    wrong = SymmetricWorld(world.table, [replace(right, states=tuple(states))])
    try:
        compare(wrong, CompleteTheory(), ["symmetry"])
    except SolveError as error:
        assert "reduce: symmetry" in str(error)  # noqa: PT017


class Notes(WorldModel):
    """A place that the human leaves if it likes, and notes of what the robot did."""

    def __init__(self, *, is_read: bool = False) -> None:
        self.is_read = is_read
        self.spec = WorldSpec(
            name="notes",
            agents=(
                AgentSpec(name="ann", role="human", actions=("stay", "go")),
                AgentSpec(name="bot", role="robot", actions=("wait", "note")),
            ),
            goals=(
                Goal(human=0, name="anywhere", weight=1.0),
                Goal(human=0, name="far", weight=1.0),
            ),
            state_words=3,
            state_dtype=torch.int16,
            horizon=4,
        )

    def initial_state(self) -> Tensor:
        return torch.tensor([0, 3, 0], dtype=torch.int16)

    def available(self, states: Tensor) -> Tensor:
        return torch.ones(len(states), 2, 2, dtype=torch.bool)

    def achieved(self, states: Tensor) -> Tensor:
        return torch.stack([states[:, 0] >= 0, states[:, 0] >= 2], 1)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            joint = torch.arange(4).repeat(len(states))
            states = states.repeat_interleave(4, 0)
            actions = torch.stack([joint % 2, joint // 2], 1)
        rows, acts = states.clone(), actions.to(states.dtype)
        goes = acts[:, 0]
        if self.is_read:
            goes = goes * (states[:, 2] == 0)
        rows[:, 0] = (states[:, 0] + goes).clamp(max=2)
        rows[:, 1:] = (states[:, 1:] + acts[:, 1:]).clamp(max=4)
        offsets = torch.arange(len(rows) + 1)
        return Successors(offsets, rows, torch.ones(len(rows), dtype=torch.float64), None)

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return sample_successors(self.transitions(states, actions), states, generator)

    def describe(self, state: Tensor) -> str:
        return str(state.tolist())

    def reads(self) -> Reads:
        """The first note is named needlessly."""
        needed = torch.tensor([True, True, False])
        return Reads(words=torch.eye(3) > 0, available=needed, achieved=needed.expand(2, 3))

    def symmetries(self) -> list[Symmetry]:
        actions = torch.tensor([[0, 1], [0, 1]])
        return [
            Symmetry(
                name="exchange the notes",
                rows=lambda states: states[:, [0, 2, 1]],
                agents=(0, 1),
                actions=lambda states: actions.expand(len(states), -1, -1),
                goals=(0, 1),
            )
        ]


def test_a_symmetry_that_mixes_kept_and_dropped_words_is_refused_with_cone() -> None:
    world = Notes()
    for alone in (["symmetry"], ["cone"]):
        compare(world, CompleteTheory(), alone)
    with pytest.raises(SolveError, match=r"cone: .*\[2\].* word 1"):
        compare(world, CompleteTheory(), ["symmetry", "cone"])


def test_a_word_that_is_read_in_few_states_is_refused() -> None:
    with pytest.raises(SolveError, match=r"reads\(\) of 'notes'"):
        compare(Notes(is_read=True), CompleteTheory(), ["cone"])


class Lock(Notes):
    """A lock of six digits, behind which a note matters that is said not to."""

    CODE = torch.tensor([2, 0, 3, 1, 2, 3, 9])

    def __init__(self) -> None:
        super().__init__()
        ann, bot = self.spec.agents
        agents = (replace(ann, actions=("0", "1", "2", "3")), bot)
        self.spec = replace(self.spec, agents=agents, state_words=2, horizon=8)

    def initial_state(self) -> Tensor:
        return torch.zeros(2, dtype=torch.int16)

    def available(self, states: Tensor) -> Tensor:
        found = torch.ones(len(states), 2, 4, dtype=torch.bool)
        found[:, 1, 2:] = False
        return found

    def achieved(self, states: Tensor) -> Tensor:
        return torch.stack([states[:, 0] >= 0, states[:, 0] >= 7], 1)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            joint = torch.arange(8).repeat(len(states))
            states = states.repeat_interleave(8, 0)
            actions = torch.stack([joint % 4, joint // 4], 1)
        place, note = states[:, 0].long(), states[:, 1].long()
        is_right = self.CODE[place.clamp(max=6)] == actions[:, 0]
        later = torch.where(place < 6, (place + 1) * is_right, place + (place == 6) * note)
        rows = torch.stack([later, torch.maximum(note, actions[:, 1])], 1).to(states.dtype)
        offsets = torch.arange(len(rows) + 1)
        return Successors(offsets, rows, torch.ones(len(rows), dtype=torch.float64), None)

    def reads(self) -> Reads:
        needed = torch.tensor([True, False])
        return Reads(words=torch.eye(2) > 0, available=needed, achieved=needed.expand(2, 2))


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_word_that_is_read_where_few_walks_lead_is_refused(keep: str) -> None:
    params = CONE.model_copy(update={"keep": keep, "count_unrolled": False})
    with pytest.raises(SolveError, match=r"(?s)reads\(\) of 'notes' leaves .*\[6, 0\]"):
        solve(Lock(), params)


def test_no_state_has_words_to_change() -> None:
    world, none = Notes(), torch.zeros(0, 3, dtype=torch.int16)
    dropped = torch.tensor([False, False, True])
    assert word_that_matters(world, dropped, none, world.initial_state()[None]) is None
    assert questions(world, LopsidedOnce(0), none, torch.zeros(0, dtype=torch.long)) == []


class Mirrored(Noted):
    """A symmetric game whose notes get lost in the image."""

    def __init__(self, world: SymmetricWorld) -> None:
        super().__init__(world.table)
        self.inner = self.symmetric = world  # Lists what is available by state.

    def symmetries(self) -> list[Symmetry]:
        def of(symmetry: Symmetry) -> Symmetry:
            return replace(
                symmetry,
                rows=lambda rows: torch.cat(
                    [symmetry.rows(rows[:, :2]), torch.zeros_like(rows[:, 2:])], 1
                ),
                actions=lambda rows: symmetry.actions(rows[:, :2]),
            )

        return [of(symmetry) for symmetry in self.symmetric.symmetries()]


@settings(max_examples=25)
@given(world=symmetric_worlds())
def test_symmetries_count_as_true_if_they_are_without_the_words_that_cone_leaves_out(
    world: SymmetricWorld,
) -> None:
    found = compare(Mirrored(world), CompleteTheory(), ["symmetry", "cone"])
    cone, symmetry = found.reductions
    assert (cone.name, symmetry.name) == ("cone", "symmetry")
    assert cone.before == found.graph.num_states
    assert cone.before >= cone.after == symmetry.before >= symmetry.after


SWAP = Cells(5, [exchange(5, 0, 1)]).symmetries()[0]
FORMS: list[tuple[str, Any, str]] = [
    ("another type", {"rows": lambda s: SWAP.rows(s).long()}, r"torch\.int64, not .* torch\.int16"),
    ("fewer words", {"rows": lambda s: SWAP.rows(s)[:, :2]}, r"shape \[\d+, 2\] of"),
    ("fewer rows", {"rows": lambda s: SWAP.rows(s)[1:]}, "rows have"),
    ("its argument", {"rows": lambda s: s.copy_(SWAP.rows(s))}, "changes the rows"),
    ("no states", {"actions": lambda s: SWAP.actions(s)[0]}, r"actions .*\[2, 6\]"),
    ("too large", {"actions": lambda s: SWAP.actions(s) + 7}, "actions of ann"),
    ("negative", {"actions": lambda s: SWAP.actions(s) - 1}, "0 to 5 once"),
    ("agents", {"agents": (0,)}, r"agents are \[0\]"),
    ("goals", {"goals": (0, 1, 9, 3, 4)}, "goals are"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS]
)
def test_a_symmetry_of_the_wrong_form_is_refused_in_one_sentence(
    change: dict[str, Any], message: str
) -> None:
    world = Cells(5, [])
    world.symmetries = lambda: [replace(SWAP, **change)]  # type: ignore[method-assign]
    with pytest.raises(SolveError, match=message):
        solve(world, SYMMETRY)


@pytest.mark.parametrize("declaration", [None, 1, [1], ["left and right"]])
def test_what_is_no_list_of_symmetries_is_refused(declaration: Any) -> None:
    world = Cells(5, [])
    world.symmetries = lambda: declaration  # type: ignore[method-assign]
    with pytest.raises(SolveError, match=r"symmetries\(\) of 'cells'"):
        solve(world, SYMMETRY)


def test_what_is_no_declaration_of_reads_is_refused() -> None:
    world = Notes()
    world.reads = lambda: 1  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(SolveError, match=r"reads\(\) of 'notes'"):
        solve(world, CONE)


class LopsidedOnce:
    """Humans that act otherwise in one of two states that are alike, at one time only."""

    def __init__(self, steps_left: int) -> None:
        self.steps_left = steps_left

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        found = torch.full((len(states), 2, 2), 0.5, dtype=torch.float64)
        here = (states[:, 1] == 9) & (steps_left == self.steps_left)
        found[here] = torch.tensor([0.1, 0.9], dtype=torch.float64)
        return found


@pytest.mark.parametrize("steps_left", range(1, 6))
def test_a_prior_that_lacks_a_symmetry_at_one_time_is_refused(steps_left: int) -> None:
    outcomes = [
        outcome(*[((0.5, 1, 1.0), (0.5, 2, 1.0))] * 2),
        outcome(((1.0, 1, 1.0),), ((1.0, 3, 1.0),)),
        outcome(((1.0, 2, 1.0),), ((1.0, 3, 1.0),)),
        outcome(*[((1.0, 3, 1.0),)] * 2),
    ]
    table = game(outcomes, (5, 9, -7, 11), 3, horizon=6)
    world = SymmetricWorld(table, [renaming((0, 2, 1, 3), (0, 1))])
    with pytest.raises(SolveError, match=r"human_prior.* symmetry"):
        solve(world, SYMMETRY, Assumptions(human_prior=LopsidedOnce(steps_left)))


def staying(horizon: int) -> TableWorld:
    """A world of one state."""
    return TableWorld(game([outcome(*[((1.0, 0, 1.0),)] * 2)], (4,), 0, horizon=horizon))


@pytest.mark.parametrize(("horizon", "calls"), [(6, 6), (16, 16), (100, 32)])
def test_priors_are_asked_about_each_state_at_a_time_when_it_can_be_reached(
    horizon: int, calls: int
) -> None:
    world = staying(horizon)
    states = torch.stack([torch.tensor(world.row(0))] * 200).to(torch.int16)
    steps = torch.arange(200) % (horizon + 1)
    asked = questions(world, LopsidedOnce(0), states, steps)
    assert len(asked) <= calls
    assert {left for left, _ in asked} <= set(range(1, horizon + 1))
    times = sum(len(rows) for _, rows in asked)
    goes_on = int((steps < horizon).sum())
    assert times == (goes_on if horizon > 16 else int((horizon - steps).clamp(min=0).sum()))
    stationary = LopsidedOnce(0)
    stationary.is_stationary = True  # type: ignore[attr-defined]
    assert [(left, len(rows)) for left, rows in questions(world, stationary, states, steps)] == [
        (1, 200)
    ]


def test_no_prior_is_asked_about_a_time_when_a_state_cannot_be_reached() -> None:
    world = staying(20)
    states = torch.tensor([world.row(0)] * 21, dtype=torch.int16)
    states[:, 0] = torch.arange(21)
    world.available = lambda rows: torch.ones(len(rows), 2, 2, dtype=torch.bool)  # type: ignore[method-assign]
    for left, rows in questions(world, LopsidedOnce(0), states, torch.arange(21)):
        assert (rows[:, 0] <= 20 - left).all()
