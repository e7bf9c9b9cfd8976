"""Small Python models become worlds, and models that contradict themselves are told so."""

from __future__ import annotations

import enum
import itertools
import os
import subprocess
import sys
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import WorkerError, WorldError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_worlds.enumeration import EnumeratedWorld, ParallelMap, enumerate_world
from empo_worlds.queries import is_terminal, transition_probabilities

# Workers cannot import a test module, so what it defines reaches them by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Answer = list[tuple[float, Hashable]] | None


class Walk:
    """Two agents on a line; the second may be pushed, and the end is the end."""

    name = "walk"
    agents = (
        AgentSpec(name="ann", role="human", actions=("stay", "right")),
        AgentSpec(name="bot", role="robot", actions=("stay", "left", "right")),
    )
    goals = {  # noqa: RUF012
        0: [("end", lambda state: state[0] == 4, 0.5), ("meet", lambda s: s[0] == s[1], 2)]
    }

    def initial_state(self) -> Hashable:
        return 0, 2

    def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Answer:
        ann, bot = state
        if ann == 4:
            return None
        position = min(4, max(0, bot + (0, -1, 1)[actions[1]]))
        if actions[0] == 0:
            return [(1.0, (ann, position))]
        return [(0.25, (ann, position)), (0.5, (ann + 1, position)), (0.25, (ann + 1, bot))]


class Words(Walk):
    """Walk with states whose hash depends on the hash seed."""

    def initial_state(self) -> Hashable:
        return frozenset({("ann", 0), ("bot", 2)})

    goals = {0: [("end", lambda state: ("ann", 4) in state)]}  # noqa: RUF012

    def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Answer:
        places = dict(state)
        transitions = super().transition_probabilities((places["ann"], places["bot"]), actions)
        if transitions is None:
            return None
        return [(p, frozenset(zip(("ann", "bot"), s, strict=True))) for p, s in transitions]  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def walk() -> EnumeratedWorld:
    return enumerate_world(Walk())


def rows(numbers: Iterable[int]) -> torch.Tensor:
    return torch.tensor(list(numbers), dtype=torch.int32)[:, None]


def everything(world: EnumeratedWorld) -> list[Any]:
    states = rows(range(world.num_states))
    successors = world.transitions(states)
    labels = [repr(world.state_of(row)) for row in states]
    return [
        labels if "frozenset" not in labels[0] else len(labels),
        successors.offsets.tolist(),
        successors.states.tolist(),
        successors.prob.tolist(),
        world.available(states).tolist(),
        world.achieved(states).tolist(),
    ]


def test_the_world_says_what_the_model_says(walk: EnumeratedWorld) -> None:
    model = Walk()
    assert isinstance(walk, WorldModel)
    assert walk.describe(walk.initial_state()) == "(0, 2)"
    for number in range(walk.num_states):
        state = walk.state_of(rows([number])[0])
        assert walk.index_of(state) == number
        for actions in itertools.product(range(2), range(3)):
            expected: dict[Hashable, float] = {}
            for p, successor in model.transition_probabilities(state, actions) or ():
                expected[successor] = expected.get(successor, 0) + p
            transitions = {
                walk.state_of(torch.tensor(row)): p
                for p, row in transition_probabilities(walk, [number], actions) or ()
            }
            assert transitions == expected


def test_states_are_numbered_in_the_order_of_discovery(walk: EnumeratedWorld) -> None:
    labels = [walk.state_of(row) for row in rows(range(5))]
    # Joint actions count agent 0 fastest; successors keep the order in which they are listed.
    assert labels == [(0, 2), (1, 2), (0, 1), (1, 1), (0, 3)]


def test_all_joint_actions_agree_with_given_ones(walk: EnumeratedWorld) -> None:
    states = rows(range(walk.num_states))
    all_successors = walk.transitions(states)
    for joint in range(6):
        actions = torch.tensor([[joint % 2, joint // 2]]).expand(len(states), 2)
        successors = walk.transitions(states, actions)
        for number in range(walk.num_states):
            a = slice(*all_successors.offsets[number * 6 + joint :][:2].tolist())
            b = slice(*successors.offsets[number:][:2].tolist())
            assert torch.equal(all_successors.states[a], successors.states[b])
            assert torch.equal(all_successors.prob[a], successors.prob[b])


def test_terminal_states_have_no_actions_and_keep_themselves(walk: EnumeratedWorld) -> None:
    states = rows(range(walk.num_states))
    ends = torch.tensor([walk.state_of(row)[0] == 4 for row in states])  # type: ignore[index]
    assert torch.equal(is_terminal(walk, states), ends)
    assert torch.equal(walk.achieved(states)[:, 0], ends)
    generator = torch.Generator().manual_seed(0)
    actions = torch.ones(len(states), 2, dtype=torch.long)
    stepped = walk.step(states, actions, generator)
    assert torch.equal(stepped[ends], states[ends])
    assert stepped.dtype == torch.int32


def test_goals_come_in_order_with_their_weights(walk: EnumeratedWorld) -> None:
    assert walk.spec.goals == (
        Goal(human=0, name="end", weight=0.5),
        Goal(human=0, name="meet", weight=2.0),
    )
    assert enumerate_world(Words()).spec.goals[0].weight == 1.0


def test_sampled_successors_follow_the_probabilities(walk: EnumeratedWorld) -> None:
    draws = 4000
    generator = torch.Generator().manual_seed(1)
    actions = torch.tensor([[1, 1]]).expand(draws, 2)
    stepped = walk.step(rows([0] * draws), actions, generator)[:, 0]
    for p, row in transition_probabilities(walk, [0], (1, 1)) or ():
        share = (stepped == row[0]).double().mean().item()
        assert share == pytest.approx(p, abs=5 * (p * (1 - p) / draws) ** 0.5)


def test_the_horizon_bounds_the_search() -> None:
    short = enumerate_world(Walk(), max_steps=1)
    assert short.spec.horizon == 1
    assert {short.state_of(row) for row in rows(range(short.num_states))} == {
        (0, 2), (1, 2), (0, 1), (1, 1), (0, 3), (1, 3)
    }  # fmt: skip
    assert short.transitions(rows([1])).prob.numel() == 0
    with pytest.raises(WorldError, match="horizon is 0"):
        enumerate_world(Walk(), max_steps=0)


def test_durations_travel_with_the_transitions() -> None:
    class Slow(Walk):
        def transition_durations(self, state: Any, actions: Any, transitions: Any) -> list[float]:
            return [1.0 if actions[0] == 0 else 2.5] * len(transitions)

    world = enumerate_world(Slow())
    successors = world.transitions(rows([0, 0]), torch.tensor([[0, 0], [1, 0]]))
    assert successors.duration is not None
    assert successors.duration.tolist() == [1.0, 2.5, 2.5]


def test_unavailable_actions_have_no_successors_and_are_never_asked_for() -> None:
    class Tied(Walk):
        def available_actions(self, state: Any, agent: int) -> Iterable[int]:
            return () if state[0] == 4 else (0, 2) if agent == 1 else range(2)

        def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Answer:
            assert actions[1] != 1
            return super().transition_probabilities(state, actions)

    world = enumerate_world(Tied())
    assert world.available(rows([0])).tolist() == [[[True, True, False], [True, False, True]]]
    assert world.transitions(rows([0]), torch.tensor([[0, 1]])).prob.numel() == 0
    assert transition_probabilities(world, [0], (0, 1)) is None


def processes(workers: int, method: Any = None) -> ParallelMap | None:
    """Worker processes of the foundation, where it is installed; None: this process."""
    if not workers:
        return None
    executors = pytest.importorskip("empo_executors.worker_pool")
    parallel: ParallelMap = executors.worker_processes(workers, method)
    return parallel


@pytest.mark.parametrize(
    ("workers", "method", "seed"),
    [
        pytest.param(2, "forkserver", "1", marks=pytest.mark.slow),
        (0, None, "2"),
        pytest.param(3, "forkserver", "3", marks=pytest.mark.slow),
        pytest.param(2, "spawn", "4", marks=pytest.mark.slow),
    ],
)
def test_nothing_changes_the_result(workers: int, method: str | None, seed: str) -> None:
    if workers:
        pytest.importorskip("empo_executors")
    script = f"""
if __name__ == "__main__":
    from test_enumeration import Words, enumerate_world, everything, processes
    print(everything(enumerate_world(Words(), parallel=processes({workers}, {method!r}))))
"""
    root = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=root,
    )
    assert done.stdout.strip() == str(everything(enumerate_world(Words())))


def test_a_lambda_in_a_local_model_reaches_the_workers(walk: EnumeratedWorld) -> None:
    class Local(Walk):
        goals = {  # noqa: RUF012
            0: [("end", lambda s: s[0] == 4, 0.5), ("meet", lambda s: s[0] == s[1], 2)]
        }

    assert everything(enumerate_world(Local(), parallel=processes(2))) == everything(walk)


class Broken(Walk):
    """Says whatever a test wants it to say of state (0, 1)."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Any:
        if state == (0, 1) and actions == (1, 2):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        return super().transition_probabilities(state, actions)


class Opaque:
    """Compares by identity."""


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([(0.5, (0, 1))], "sum to 0.5, not to 1"),
        ([(1.5, (0, 1)), (-0.5, (0, 2))], "the probability -0.5"),
        ([(float("nan"), (0, 1))], "the probability nan"),
        ([(1.0, [0, 1])], "not hashable"),
        ([(1.0, Opaque())], "compares by identity"),
        ([(0, 1)], "sum to 0.0, not to 1"),
        ([], "sum to 0.0, not to 1"),
        (7, "not a list of"),
        ([("half", (0, 1))], "not a list of"),
        (None, "terminal, but"),
        (KeyError("door"), "raised KeyError: 'door'"),
    ],
)
def test_a_model_that_makes_no_sense_is_told_where(answer: object, complaint: str) -> None:
    with pytest.raises(WorldError) as caught:
        enumerate_world(Broken(answer))
    assert complaint in str(caught.value)
    assert "transition_probabilities((0, 1), (1, 2)) [right, right]" in str(caught.value)


@pytest.mark.parametrize("answer", [[(0.5, (0, 1))], KeyError("door")])
def test_workers_report_what_this_process_would(answer: object) -> None:
    complaints = []
    for workers in (0, 1):
        with pytest.raises(WorldError) as caught:
            enumerate_world(Broken(answer), parallel=processes(workers))
        complaints.append(str(caught.value))
        if isinstance(answer, Exception):
            assert "in transition_probabilities" in caught.value.__notes__[0]
    assert complaints[0] == complaints[1]


def test_small_errors_of_rounding_are_removed_and_equal_successors_merged() -> None:
    third = 1 / 3 + 1e-11
    world = enumerate_world(
        Broken([(third, (0, 1)), (third, (1, 1)), (third, (0, 1)), (0.0, (9, 9))])
    )
    transitions = transition_probabilities(world, [world.index_of((0, 1))], (1, 2))
    assert transitions is not None
    assert [world.state_of(torch.tensor(row)) for _, row in transitions] == [(0, 1), (1, 1)]
    assert sum(p for p, _ in transitions) == pytest.approx(1, abs=1e-15)
    with pytest.raises(WorldError, match="no state"):
        world.index_of((9, 9))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("initial_state", lambda self: [0], "initial_state() returned the state [0]"),
        ("available_actions", lambda s, state, agent: [5], "ann has actions 0 to 1"),
        ("available_actions", lambda s, state, agent: 5, "'int' object is not iterable"),
        ("available_actions", lambda s, state, agent: [0] * agent, "ann has no available action"),
        ("transition_durations", lambda s, state, a, t: [0.0] * len(t), "positive duration"),
        ("transition_durations", lambda s, state, a, t: [1.0], "positive duration"),
        ("goals", {1: []}, "agent 1, which is not a human"),
        ("goals", {0: [("end",)]}, "is not (name, predicate on states)"),
        ("goals", {0: [("end", bool, -1)]}, "has the weight -1"),
        ("goals", {0: [("end", lambda state: 1 / 0)]}, "predicate of goal 'end' at state (0, 2)"),
    ],
)
def test_other_parts_of_a_model_are_checked_too(name: str, value: object, complaint: str) -> None:
    with pytest.raises(WorldError) as caught:
        enumerate_world(type("Odd", (Walk,), {name: value})())
    assert complaint in str(caught.value)


def test_equal_successors_of_different_duration_are_refused() -> None:
    class Twice(Walk):
        def transition_probabilities(self, state: Any, actions: Any) -> Answer:
            return [(0.5, state), (0.5, state)]

        def transition_durations(self, state: Any, actions: Any, transitions: Any) -> list[float]:
            return [1.0, 2.0]

    with pytest.raises(WorldError, match="two durations"):
        enumerate_world(Twice())


def test_an_endless_world_is_stopped_by_max_states() -> None:
    class Endless(Walk):
        def transition_probabilities(self, state: Any, actions: Any) -> Answer:
            return [(1.0, (state[0] + 1, 0))]

    with pytest.raises(WorldError, match=r"more than 100 states \(max_states\)"):
        enumerate_world(Endless(), max_states=100)
    assert enumerate_world(Endless(), max_states=100, max_steps=99).num_states == 100


def test_enum_states_are_fine_and_lost_workers_are_reported() -> None:
    class Red(Walk):
        goals = {}  # noqa: RUF012

        def initial_state(self) -> Hashable:
            return Colour.RED

        def transition_probabilities(self, state: Any, actions: Any) -> Answer:
            return [(1.0, state)]

    assert enumerate_world(Red()).describe(torch.tensor([0])) == "<Colour.RED: 1>"

    class Deadly(Walk):
        def transition_probabilities(self, state: Any, actions: Any) -> Answer:
            os._exit(3)

    with pytest.raises(WorkerError, match="before item 0 was done"):
        enumerate_world(Deadly(), parallel=processes(1))


def test_malformed_rows_and_actions_are_refused(walk: EnumeratedWorld) -> None:
    with pytest.raises(WorldError, match="rows of 1 word"):
        walk.transitions(torch.zeros(2, 2, dtype=torch.int32))
    with pytest.raises(WorldError, match="state number 99"):
        walk.achieved(rows([0, 99]))
    with pytest.raises(WorldError, match=r"action 3 of bot .*row 1"):
        walk.transitions(rows([0, 0]), torch.tensor([[0, 0], [0, 3]]))
    with pytest.raises(WorldError, match=r"shape \(1, 2\)"):
        walk.transitions(rows([0]), torch.tensor([[0]]))


@pytest.mark.usefixtures("no_shape_checks")
def test_arrays_that_contradict_one_another_are_refused() -> None:
    spec = WorldSpec(
        name="two",
        agents=(AgentSpec(name="h", role="human", actions=("go",)),),
        goals=(),
        state_words=1,
        state_dtype=torch.int32,
        horizon=None,
    )
    achieved = torch.zeros(2, 0, dtype=torch.bool)
    available = torch.tensor([[[True]], [[False]]])
    offsets = torch.tensor([0, 1, 1])
    good = Successors(offsets, rows([1]), torch.ones(1, dtype=torch.float64))
    assert EnumeratedWorld(spec, "ab", good, available, achieved).num_states == 2
    for labels, bad, allowed, complaint in [
        ("aa", good, available, "same label"),
        ("ab", good, available[:1], "available .*booleans"),
        ("ab", good, ~available, "available .*offsets"),
        ("ab", Successors(offsets, rows([2]), good.prob), available, "no state"),
        ("ab", Successors(offsets, rows([1]), good.prob / 2), available, "sum to 1"),
        ("ab", Successors(offsets[:2], rows([1]), good.prob), available, "offsets must be"),
    ]:
        with pytest.raises(WorldError, match=complaint):
            EnumeratedWorld(spec, labels, bad, allowed, achieved)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=5, max_size=5))
def test_random_games_keep_their_probabilities(targets: list[list[int]]) -> None:
    class Random:
        agents = (AgentSpec(name="r", role="robot", actions=("a", "b")),)

        def initial_state(self) -> Hashable:
            return 0

        def transition_probabilities(self, state: Any, actions: tuple[int, ...]) -> Answer:
            transitions = targets[state][: 1 + actions[0] * 3]
            return [(1 / len(transitions), target) for target in transitions]

    world = enumerate_world(Random())
    for number in range(world.num_states):
        for action in range(2):
            chosen = targets[int(str(world.state_of(rows([number])[0])))][: 1 + action * 3]
            expected = {t: chosen.count(t) / len(chosen) for t in chosen}
            listed = transition_probabilities(world, [number], [action]) or []
            got = {world.state_of(torch.tensor(row)): p for p, row in listed}
            assert got == pytest.approx(expected)
