"""One world written by three roads, state by state, in batches and compiled, is one world."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from empo_core.errors import WorldError
from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Successors
from empo_core.world_structure import Symmetry
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_testing.world_model import WorldModelTests
from empo_worlds.batches import number_rows, precise_sums
from empo_worlds.compiled import CompiledWorld, compiled_world
from empo_worlds.enumeration import EnumeratedWorld, enumerate_world
from empo_worlds.expansion import precise_sum

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from blocks_in_python import Blocks, BlocksInBatches, compiled_blocks

AGENTS = (
    AgentSpec(name="passenger", role="human", actions=("wait", "enter or leave")),
    AgentSpec(name="lift", role="robot", actions=("stay", "up", "down")),
)
INSIDE, FLOORS = 3, 3


class Lift:
    """A human on one of three floors; the robot runs the lift, which sometimes sticks."""

    name, horizon, agents = "lift", 4, AGENTS
    goals = {0: [(f"floor {n}", lambda s, n=n: s[0] == n) for n in range(FLOORS)]}  # noqa: RUF012

    def initial_state(self) -> Hashable:
        return 0, 0

    def transition_probabilities(self, state: Any, actions: Any) -> list[tuple[float, Hashable]]:
        human, lift = state
        if actions[0] == 1:
            human = lift if human == INSIDE else INSIDE if human == lift else human
        target = min(2, max(0, lift + (0, 1, -1)[actions[1]]))
        return [(0.9, (human, target)), (0.1, (human, lift))]


class LiftInBatches(Lift):
    """Equal successors and all, as the plain one writes them."""

    def transitions_batch(self, states: Any) -> tuple[Any, ...]:
        human, lift = states[:, :1], states[:, 1:]
        toggled = np.where(human == INSIDE, lift, np.where(human == lift, INSIDE, human))
        humans = np.concatenate([human, toggled], 1)[:, None, :, None]
        targets = np.clip(lift + np.array([0, 1, -1]), 0, 2)[:, :, None, None]
        successors = np.empty((len(states), 3, 2, 2, 2), dtype=int)
        successors[..., 0] = humans
        successors[..., :1, 1], successors[..., 1:, 1] = targets, lift[:, :, None, None]
        prob = np.broadcast_to([0.9, 0.1], successors.shape[:-1])
        return np.full(successors.shape[:3], 2), successors.reshape(-1, 2), prob.ravel()


def upside_down(states: Any) -> Any:
    human = states[:, 0]
    return torch.stack([torch.where(human == INSIDE, human, 2 - human), 2 - states[:, 1]], 1)


UPSIDE_DOWN = Symmetry(
    name="upside down",
    rows=upside_down,
    agents=(0, 1),
    actions=lambda states: torch.tensor([[0, 1, 2], [0, 2, 1]]).expand(len(states), -1, -1),
    goals=(2, 1, 0),
)


@compiled_world(
    agents=AGENTS,
    values=(4, 3),
    initial_state=(0, 0),
    goals={0: [(f"floor {n}", lambda s, n=n: s[:, 0] == n) for n in range(FLOORS)]},
    horizon=4,
    max_successors=2,
    symmetries=[UPSIDE_DOWN],
)
def lift(state: Any, actions: Any, successors: Any, prob: Any) -> int:
    """The same, written into arrays."""
    human, floor = state
    if actions[0] == 1:
        human = floor if human == INSIDE else INSIDE if human == floor else human
    target = floor + (0, 1, -1)[actions[1]]
    successors[:, 0] = human
    successors[0, 1] = min(2, max(0, target))
    prob[0], prob[1] = 0.9, 0.1
    return 2


class RandomGame:
    """Up to three successors, some of them twice or without a chance, and states that end it."""

    name, horizon, states, width = "random game", 6, 40, 3
    agents = (
        AgentSpec(name="ann", role="human", actions=("a", "b", "c")),
        AgentSpec(name="bot", role="robot", actions=("x", "y")),
    )
    goals = {0: [(f"goal {n}", lambda s, n=n: s[0] % 4 == n) for n in range(4)]}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.table = np.array(
            [
                [rng.randrange(self.states) for _ in range(6 * self.width)]
                for _ in range(self.states)
            ]
        ).reshape(self.states, 6, self.width)
        weights = np.array([rng.choice([0, 1, 2, 3]) for _ in range(self.table.size)], dtype=float)
        weights = weights.reshape(self.table.shape) + np.array([1e-9, 0, 0])
        self.prob = weights / weights.sum(2, keepdims=True)
        self.has = np.array([[rng.random() < 0.7 for _ in range(3)] for _ in range(self.states)])
        self.has[:, 0] = True
        self.ends = np.array([state > 0 and rng.random() < 0.15 for state in range(self.states)])

    def initial_state(self) -> Hashable:
        return (0, 0)

    def available_actions(self, state: Any, agent: int) -> list[int]:
        return [0, 1] if agent else [a for a in range(3) if self.has[state[0], a]]

    def transition_durations(self, state: Any, actions: Any, transitions: Any) -> list[float]:
        return [1 + (state[0] + successor[0]) % 3 + actions[0] for _, successor in transitions]

    def transition_probabilities(
        self, state: Any, actions: Any
    ) -> list[tuple[float, Hashable]] | None:
        if self.ends[state[0]]:
            return None
        pair = state[0], actions[0] + 3 * actions[1]
        follow = [(int(successor), int(successor) % 2) for successor in self.table[pair]]
        return list(zip(self.prob[pair].tolist(), follow, strict=True))


class RandomGameInBatches(RandomGame):
    """All of it by look-ups."""

    def transitions_batch(self, states: Any) -> tuple[Any, ...]:
        at = states[:, 0]
        possible = np.tile(self.has[at], 2) & ~self.ends[at][:, None]
        after = self.table[at][possible].ravel()
        counts = np.where(possible, self.width, 0)
        row, pair = (place.repeat(self.width) for place in possible.nonzero())
        duration = 1.0 + (at[row] + after) % 3 + pair % 3
        chance = self.prob[at][possible].ravel()
        return counts, np.stack([after, after % 2], 1), chance, duration


def compiled_game(seed: int) -> CompiledWorld:
    game = RandomGame(seed)
    table, chance, has, ends = game.table, game.prob, game.has, game.ends
    goals = {0: [(f"goal {n}", lambda s, n=n: s[:, 0] % 4 == n) for n in range(4)]}

    def available(state: Any, agent: int, action: int) -> bool:
        return bool(agent == 1 or has[state[0], action])

    @compiled_world(
        name=game.name,
        agents=game.agents,
        values=(game.states, 2),
        initial_state=(0, 0),
        goals=goals,
        horizon=6,
        max_successors=3,
        available=available,
        duration=lambda state, actions, successor: 1.0 + (state[0] + successor[0]) % 3 + actions[0],
    )
    def write(state: Any, actions: Any, successors: Any, prob: Any) -> int:
        if ends[state[0]]:
            return 0
        pair = actions[0] + 3 * actions[1]
        successors[:, 0] = table[state[0], pair]
        successors[:, 1] = table[state[0], pair] % 2
        prob[:] = chance[state[0], pair]
        return 3

    return write


GAME = compiled_game(3)


def blocks() -> tuple[WorldModel, ...]:
    size = {"size": 3, "boxes": 2, "horizon": 8}
    return (
        enumerate_world(Blocks(**size)),
        enumerate_world(BlocksInBatches(**size)),
        compiled_blocks(**size),
    )


ROADS: dict[str, Callable[[], tuple[WorldModel, ...]]] = {
    "blocks": blocks,
    "lift": lambda: (enumerate_world(Lift()), enumerate_world(LiftInBatches()), lift),
    "random game": lambda: (
        enumerate_world(RandomGame(3)),
        enumerate_world(RandomGameInBatches(3)),
        GAME,
    ),
}


@pytest.fixture(
    scope="module",
    params=[
        "random game",  # Compiled for the kit, too.
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("lift", "blocks")),
    ],
)
def roads(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    return ROADS[request.param]()


def same(first: Successors, second: Successors) -> bool:
    durations = [
        torch.ones(len(part.prob)) if part.duration is None else part.duration.float()
        for part in (first, second)
    ]
    return (
        torch.equal(first.offsets, second.offsets)
        and torch.equal(first.prob, second.prob)
        and torch.equal(*durations)
    )


def test_successors_are_equal_bit_for_bit(roads: tuple[Any, ...]) -> None:
    plain, batched, compiled = roads
    numbers = torch.arange(plain.num_states, dtype=torch.int32)[:, None]
    states = [plain.state_of(number) for number in numbers]
    assert states == [batched.state_of(number) for number in numbers]
    rows = torch.tensor(states, dtype=compiled.spec.state_dtype)
    last = plain.available(numbers).flatten(1).any(1).logical_not()
    successors = plain.transitions(numbers)
    assert same(successors, batched.transitions(numbers))
    assert torch.equal(successors.states, batched.transitions(numbers).states)
    # States first met at the horizon are not asked for successors where all are listed.
    numbers_before = numbers[~last]
    successors, rows = plain.transitions(numbers_before), rows[~last]
    direct = compiled.transitions(rows)
    assert same(successors, direct)
    assert [plain.state_of(row) for row in successors.states] == list(
        map(tuple, direct.states.tolist())
    )
    assert torch.equal(plain.available(numbers_before), compiled.available(rows))
    assert torch.equal(plain.achieved(numbers_before), compiled.achieved(rows))
    actions = plain.available(numbers_before).int().argmax(2)
    assert same(plain.transitions(numbers_before, actions), compiled.transitions(rows, actions))


def values_of(result: ExactResult, steps_left: int) -> torch.Tensor:
    """V_r of all states that are possible then, in the order in which they were found."""
    time = result.time_of(steps_left)
    numbers = result.reachable(time)
    rows = result.graph.states[numbers[result.alive(numbers, time)]]
    return result.robot_values(torch.from_numpy(rows), steps_left)


def test_solutions_are_equal_bit_for_bit(roads: tuple[Any, ...]) -> None:
    plain, batched, compiled = (solve(road, ExactParams(preset="paper")) for road in roads)
    for other in (batched, compiled):
        assert plain.graph.num_states == other.graph.num_states
        for steps_left in range(1, (plain.horizon or 1) + 1):
            assert torch.equal(*(values_of(road, steps_left) for road in (plain, other)))


class TestCompiledWorld(WorldModelTests):
    """A compiled world is a world model."""

    @pytest.fixture
    def world(self) -> WorldModel:
        return GAME


@given(st.lists(st.lists(st.floats(0, 1), max_size=6), max_size=8))
def test_arrays_are_summed_as_lists_are(parts: list[list[float]]) -> None:
    counts = np.array([len(part) for part in parts], dtype=np.int64)
    values = np.array([value for part in parts for value in part])
    sums = [precise_sum(part) for part in parts]
    assert precise_sums(values, counts).tolist() == sums
    exact = [math.fsum(part) for part in parts]
    assert all(abs(s - e) <= math.ulp(e) for s, e in zip(sums, exact, strict=True))


@given(st.lists(st.tuples(*[st.integers(-(2**62), 2**62) | st.integers(0, 2)] * 3), max_size=30))
def test_rows_are_numbered_in_the_order_in_which_they_appear(rows: list[tuple[int, ...]]) -> None:
    first, index = number_rows(np.array(rows, dtype=np.int64).reshape(-1, 3))
    distinct = list(dict.fromkeys(rows))
    assert [rows[place] for place in first] == distinct
    assert [distinct[place] for place in index] == rows


class Wrong(LiftInBatches):
    """A lift whose batches are spoilt."""

    def __init__(self, spoil: Callable[..., tuple[Any, ...]]) -> None:
        self.spoil = spoil

    def transitions_batch(self, states: Any) -> tuple[Any, ...]:
        return self.spoil(*super().transitions_batch(states))


def at(array: Any, place: int, value: object) -> Any:
    changed = np.array(array)
    changed[place] = value
    return changed


MISTAKES: dict[str, tuple[Callable[..., tuple[Any, ...]], str]] = {
    "no tuple": (lambda c, s, p: 3, "returned 3, not (counts, successors, prob)"),
    "shape": (lambda c, s, p: (c, s[:-1], p), "arrays of shapes (1, 3, 2), (11, 2) and (12,)"),
    "prob": (
        lambda c, s, p: (c, s, at(p, 4, -1)),
        "transitions_batch((0, 0), (0, 1)) [wait, up] gives a probability of -1.0",
    ),
    "sum": (
        lambda c, s, p: (c, s, at(p, 11, 0.2)),
        "transitions_batch((0, 0), (1, 2)) [enter or leave, down]: the probabilities sum to 1.1",
    ),
    "nothing": (
        lambda c, s, p: (at(c, (0, 0, 1), 0), s[2:], p[2:]),
        "transitions_batch((0, 0), (1, 0)) [enter or leave, stay] has no successors, but these "
        "actions are available",
    ),
    "duration": (
        lambda c, s, p: (c, s, p, np.zeros_like(p)),
        "transitions_batch((0, 0), (0, 0)) [wait, stay] gives a duration of 0.0",
    ),
    "two durations": (
        lambda c, s, p: (c, s, p, np.arange(1.0, 13.0)),
        "gives one state two durations, one 2.0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_batches_are_told_with_state_and_actions(name: str) -> None:
    spoil, message = MISTAKES[name]
    with pytest.raises(WorldError) as caught:
        enumerate_world(Wrong(spoil))
    assert message in str(caught.value)


def test_durations_of_batches_are_those_of_the_world() -> None:
    world = enumerate_world(Wrong(lambda c, s, p: (c, s, p, 1.0 + s[:, 0])))
    assert isinstance(world, EnumeratedWorld)
    successors = world.transitions(world.initial_state()[None])
    assert successors.duration is not None
    humans = [world.state_of(row)[0] for row in successors.states]  # type: ignore[index]
    assert successors.duration.tolist() == [1.0 + human for human in humans]


def test_batches_need_states_of_integers() -> None:
    class Named(LiftInBatches):
        def initial_state(self) -> Hashable:
            return "ground floor", 0

    with pytest.raises(WorldError, match="tuples"):
        enumerate_world(Named())


@pytest.mark.slow
def test_a_solver_uses_the_symmetries_of_a_compiled_world() -> None:
    whole, reduced = (solve(lift, ExactParams(reduce=reduce)) for reduce in ([], ["symmetry"]))
    (reduction,) = reduced.reductions
    assert reduction.after < whole.graph.num_states
    assert reduced.at(0).V_r == pytest.approx(whole.at(0).V_r, rel=1e-12)
    assert reduced.at(0).V_e == pytest.approx(whole.at(0).V_e, rel=1e-12)


def test_a_compiled_world_may_start_in_several_states() -> None:
    world = spoilt(mistaken, initial_state={(0, 0): 0.25, (1, 2): 0.75})
    assert world.initial_states().states.tolist() == [[0, 0], [1, 2]]
    assert world.initial_states().prob.tolist() == [0.25, 0.75]
    with pytest.raises(WorldError, match="one of 2"):
        world.initial_state()
    with pytest.raises(WorldError, match="dict"):
        spoilt(mistaken, initial_state={(0, 0): 0.25, (1, 2): 0.25})
    half = np.float32(0.5)
    world = spoilt(mistaken, initial_state={(0, 0): half, (1, 2): half})
    assert world.initial_states().prob.tolist() == [0.5, 0.5]
    coarse = {(0, 0): np.float32(0.1), (1, 2): np.float32(0.9)}
    with pytest.raises(WorldError, match=r"sum to 0\.99999\d+|sum to 1\.0000\d+"):
        spoilt(mistaken, initial_state=coarse)
    for start in ({(0, 0): 0.5, (0.5, 0): 0.5}, {0: 1.0}, (0.5, 0)):
        with pytest.raises(WorldError, match="tuple"):
            spoilt(mistaken, initial_state=start)


def spoilt(write: Callable[..., int], **changes: Any) -> CompiledWorld:
    described: dict[str, Any] = {
        "agents": AGENTS,
        "values": (4, 3),
        "initial_state": (0, 0),
        "goals": {0: [("anywhere", lambda s: s[:, 0] >= 0)]},
        "horizon": 2,
    }
    return compiled_world(**(described | changes))(write)


def mistaken(state: Any, actions: Any, successors: Any, prob: Any) -> int:
    """The first word says which mistake is made."""
    if state[0] == 0:
        return 2
    if state[0] == 1:
        successors[0, 1] = 3
    if state[0] == 2:
        prob[0] = -0.5
    if state[0] == 3:
        prob[0] = 0.5
    return 1 if state[0] != 4 else int(actions[1] == 0)


def test_mistakes_of_a_compiled_function_are_told_with_state_and_actions() -> None:
    world = spoilt(
        mistaken, values=(6, 3), duration=lambda state, actions, successor: 5.0 - state[0]
    )
    messages = [
        "mistaken((0, 0), (0, 0), ...) [wait, stay] returned 2; it may write at most 1 successors",
        "mistaken((1, 0), (0, 0), ...) [wait, stay] wrote successor 0, which is no state",
        "wrote successor 0 with something that is no probability",
        "mistaken((3, 0), (0, 0), ...) [wait, stay]: the probabilities sum to 0.5, not to 1",
        "mistaken((4, 0), (0, 1), ...) [wait, up] wrote successors, or none, unlike",
        "[wait, stay] wrote successor 0, for which 'duration' gives no positive, finite number",
    ]
    for mistake, message in enumerate(messages):
        with pytest.raises(WorldError) as caught:
            world.transitions(torch.tensor([[mistake, 0]], dtype=torch.int16))
        assert message in str(caught.value)


def only_waits(state: Any, agent: int, action: int) -> bool:
    return bool(agent == 0)


def test_what_a_compiled_world_contradicts_itself_in_is_told() -> None:
    with pytest.raises(WorldError, match="initial_state"):
        spoilt(mistaken, initial_state=(0,))
    with pytest.raises(WorldError, match="beyond"):
        spoilt(mistaken, initial_state=(4, 0))
    with pytest.raises(WorldError, match="max_successors"):
        spoilt(mistaken, max_successors=0)
    start = lift.initial_state()[None]
    with pytest.raises(WorldError, match="some agents"):
        spoilt(mistaken, available=only_waits).available(start)
    with pytest.raises(WorldError, match="goal 'here'"):
        spoilt(mistaken, goals={0: [("here", lambda s: s)]}).achieved(start)
    with pytest.raises(WorldError, match=r"\(0, 3\) .*lift"):
        lift.available(torch.tensor([[0, 3]]))
