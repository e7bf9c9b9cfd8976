"""The disempower world has the recorded transitions, and those of an independent simulator."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from disempower_simulator import STAY, Cell, Simulator, State

from empo_benchmarks.disempower.params import DisempowerParams, Layout
from empo_benchmarks.disempower.ranks import Ranks
from empo_benchmarks.disempower.world import DisempowerWorld, load_world

RECORDED = Path(__file__).with_name("disempower_transitions.json.gz")
DATA = json.loads(Path(__file__).with_name("disempower_layouts.json").read_text())
"""The published layouts and variations, as data."""
LAYOUTS = ("push_pull", "push_only", "move_any", "move_any_freeze")
WALK = 20
"""Steps of each random walk."""


class Pair(NamedTuple):
    """The world and the simulator of one layout."""

    world: DisempowerWorld
    simulator: Simulator


def pair_of(layout: dict[str, Any]) -> Pair:
    params = DisempowerParams(layout=Layout.model_validate(layout))
    return Pair(load_world(params), Simulator(layout))


def as_row(world: DisempowerWorld, state: State) -> list[int]:
    board = world.board
    helper = [] if state.helper is None else [state.helper]
    row = [board.cell(list(cell)) for cell in (*state.humans, *helper)]
    row += sorted(board.cell(list(cell)) for cell in state.boxes)
    row += [int(has) for has in state.has_key] * board.has_keys
    return row + [state.timer] * board.layout.freeze


def as_state(world: DisempowerWorld, row: list[int]) -> State:
    board = world.board
    cells = [(y, x) for x, y in (board.places[cell] for cell in row[: board.key_word])]
    keys = row[board.key_word :] if board.has_keys else [0, 0]
    return State(
        (cells[0], cells[1]),
        tuple(cells[board.first_box :]),
        cells[2] if board.is_embodied else None,
        (bool(keys[0]), bool(keys[1])),
        row[board.timer_word] if board.layout.freeze else 0,
    )


def as_actions(pair: Pair, state: State, actions: tuple[int, int, int]) -> list[int]:
    """The world's joint action: stay and nothing first, boxes by their cells."""
    humans = [0 if action == STAY else 1 + action for action in actions[:2]]
    action, last = actions[2], pair.simulator.num_actions - 1 - pair.simulator.freezes
    if action >= last:
        return [*humans, 0 if action == last else last + 1]
    if not pair.world.board.is_embodied:
        box, direction = divmod(action, 4)
        action = 4 * sorted(state.boxes).index(state.boxes[box]) + direction
    return [*humans, 1 + action]


def stepped(
    pair: Pair, states: list[State], actions: list[tuple[int, int, int]]
) -> list[list[int]]:
    rows = torch.tensor([as_row(pair.world, state) for state in states], dtype=torch.int16)
    joint = [as_actions(pair, *both) for both in zip(states, actions, strict=True)]
    return pair.world.transitions(rows, torch.tensor(joint)).states.tolist()


def cells_of(words: list[int]) -> list[Cell]:
    return list(zip(words[::2], words[1::2], strict=True))


def recorded_state(layout: dict[str, Any], words: list[int]) -> State:
    embodied, boxes = layout["assistant"] == "embodied", len(layout["box_pos"])
    cells = cells_of(words[: 4 + 2 * boxes])
    *others, timer = words[4 + 2 * boxes :]
    return State(
        (cells[0], cells[1]),
        tuple(cells[2:]),
        (others[0], others[1]) if embodied else None,
        (bool(others[2]), bool(others[3])) if embodied else (False, False),
        timer,
    )


@cache
def recordings(name: str) -> list[Any]:
    rows: list[Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))["variants"][name]["rows"]
    return rows


@pytest.mark.parametrize("name", LAYOUTS)
def test_world_and_simulator_have_the_recorded_transitions_and_rewards(name: str) -> None:
    pairs: dict[str, Pair] = {}
    rows = recordings(name)
    assert len(rows) == 2000
    for goals, keys, before, actions, after, rewards in rows:
        key = f"{goals} {keys}"
        if key not in pairs:
            places = {"goal_pos": cells_of(goals), "key_pos": cells_of(keys)}
            layout = DATA["canonical"][name] | json.loads(json.dumps(places))
            pairs[key] = pair_of(layout)
        pair, layout = pairs[key], DATA["canonical"][name]
        state, expected = recorded_state(layout, before), recorded_state(layout, after)
        assert pair.simulator.step(state, tuple(actions)) == (expected, tuple(rewards))
        assert stepped(pair, [state], [tuple(actions)]) == [as_row(pair.world, expected)]


def random_layouts(name: str, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """The layout, with keys and goals of three variations where it has any."""
    layout = DATA["canonical"][name]
    if name not in DATA["variations_of"]:
        yield layout
        return
    for number in rng.choice(len(DATA["variations"]), 3, replace=False).tolist():
        cells = DATA["variations"][number]
        yield layout | {"key_pos": [cells["key"]], "goal_pos": [cells["goal"]]}


def random_rows(world: DisempowerWorld, count: int, rng: np.random.Generator) -> list[list[int]]:
    """Rows of states, reachable or not; some with both humans on the goal."""
    ranks, board, rows = Ranks(world.board), world.board, []
    barred = np.flatnonzero(board.rules.is_barred)
    while len(rows) < count:
        row = ranks.unrank(rng.integers(ranks.count, size=1))[0].tolist()
        cells = row[: board.key_word]
        if board.rules.shared_goal >= 0 and rng.random() < 0.05:
            cells[:2] = [board.rules.shared_goal] * 2
        distinct = len(set(cells)) == len(cells) - (cells[0] == cells[1])
        shares = cells[0] != cells[1] or cells[0] == board.rules.shared_goal
        if distinct and shares and not np.isin(cells[board.first_box :], barred).any():
            rows.append(cells + row[board.key_word :])
    return rows


def check_random_steps(layout: dict[str, Any], steps: int, rng: np.random.Generator) -> int:
    """Compare so many steps; returns how many of them moved a box."""
    pair, copies, boxes_moved = pair_of(layout), -(-steps // WALK), 0
    states = [as_state(pair.world, row) for row in random_rows(pair.world, copies, rng)]
    for _ in range(WALK):
        choices = (5, 5, pair.simulator.num_actions)
        actions = [tuple(joint) for joint in rng.integers(choices, size=(copies, 3)).tolist()]
        after = [pair.simulator.step(*both)[0] for both in zip(states, actions, strict=True)]
        assert stepped(pair, states, actions) == [as_row(pair.world, state) for state in after]
        boxes_moved += sum(a.boxes != b.boxes for a, b in zip(after, states, strict=True))
        states = after
    return boxes_moved


@pytest.mark.parametrize(
    "steps", [20_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
@pytest.mark.parametrize("name", LAYOUTS)
def test_random_steps_are_the_simulators(name: str, steps: int) -> None:
    rng = np.random.default_rng(0)
    layouts = list(random_layouts(name, rng))
    boxes_moved = sum(
        check_random_steps(layout, -(-steps // len(layouts)), rng) for layout in layouts
    )
    assert boxes_moved > steps / 100


def test_random_steps_are_the_simulators_with_a_trap_two_keys_and_an_embodied_freeze() -> None:
    layout = {
        "height": 3, "width": 4, "agent_pos": [[0, 0], [2, 3]], "box_pos": [[1, 1], [1, 2]],
        "helper_pos": [[2, 0]], "goal_pos": [[0, 3], [2, 1]], "key_pos": [[0, 2], [2, 2]],
        "trap_pos": [[1, 3]], "wall_pos": [[0, 1]], "assistant": "embodied", "pull": True,
        "freeze": True, "boxes_can_cover_goal": False,
    }  # fmt: skip
    assert check_random_steps(layout, 10_000, np.random.default_rng(1)) > 100
