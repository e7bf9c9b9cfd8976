"""Random steps by the package ``overcooked`` itself, as rows of a world and events.

Its rules need numpy only, but importing it as usual would need OpenCV, pygame and more, to draw:
``pip install --no-deps overcooked==0.2.1`` is enough for these tests.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from empo_benchmarks.overcooked.kitchen import ACTIONS, DISH, NOTHING, ONION, Kitchen

VERSION = "0.2.1"
MOVES = ((0, 0), (0, -1), (0, 1), (1, 0), (-1, 0), "interact")
"""The package's names of our actions."""
PAID = (0, 3, 3, 5, 0)
"""What the package pays for our events, beside soups that are served."""
SOUP = 20
"""What it pays for those."""
EPISODE = 10


def is_installed() -> bool:
    return find_spec("overcooked") is not None


def rules() -> ModuleType:
    """The package's rules, without what draws them."""
    if "overcooked.mdp" not in sys.modules:
        spec = find_spec("overcooked")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        for name, path in (("overcooked", folder), ("overcooked.mdp", folder / "mdp")):
            module = ModuleType(name)
            module.__spec__, module.__path__ = spec, [str(path)]
            sys.modules[name] = module
    return import_module("overcooked.mdp.overcooked_mdp")


def random_row(kitchen: Kitchen, rng: np.random.Generator) -> list[int]:
    """A state with things here and there, from which soups are not far."""
    row = kitchen.start()
    places = rng.choice(len(kitchen.floor), 2, replace=False)
    items = DISH + 1 + kitchen.onions
    for cook in range(2):
        row[3 * cook : 3 * cook + 3] = [places[cook], rng.integers(4), rng.integers(items)]
    for cell in kitchen.counters:
        row[kitchen.word[cell]] = rng.integers(items) * rng.integers(2)
    for cell in kitchen.pots:
        onions, word = int(rng.integers(kitchen.onions + 1)), kitchen.word[cell]
        row[word] = onions
        row[word + 1] = rng.choice([0, rng.integers(kitchen.cook_time + 1), kitchen.cook_time])
        row[word + 1] *= onions > 0
    return [int(word) for word in row]


def as_state(kitchen: Kitchen, game: Any, row: list[int]) -> Any:
    """A row as a state of the package."""
    package = rules()

    def thing(item: int, at: tuple[int, int], cooked: int | None = None) -> Any:
        if item <= DISH:
            return package.ObjectState({ONION: "onion", DISH: "dish"}[item], at)
        tick = {"finished": True} if cooked is None else {"cooking_tick": cooked or -1}
        return package.SoupState.get_soup(at, num_onions=item - DISH, num_tomatoes=0, **tick)

    state = game.get_standard_start_state()
    for cook, player in enumerate(state.players):
        place, facing, held = row[3 * cook : 3 * cook + 3]
        at = kitchen.at(int(kitchen.floor[place]))
        player.update_pos_and_or(at, MOVES[1 + facing])
        if held != NOTHING:
            player.set_object(thing(held, at))
    for cell in kitchen.counters:
        if (item := row[kitchen.word[cell]]) != NOTHING:
            state.add_object(thing(item, kitchen.at(cell)))
    for cell in kitchen.pots:
        onions, cooked = row[kitchen.word[cell] :][:2]
        if onions:
            state.add_object(thing(DISH + onions, kitchen.at(cell), cooked))
    return state


def as_row(kitchen: Kitchen, state: Any, served: int) -> list[int]:
    """A state of the package as a row."""
    row = [0] * len(kitchen.values)
    for cook, player in enumerate(state.players):
        x, y = player.position
        facing = MOVES.index(player.orientation) - 1
        held = NOTHING if player.held_object is None else item(player.held_object)
        row[3 * cook : 3 * cook + 3] = [int(kitchen.place[y * kitchen.width + x]), facing, held]
    for (x, y), thing in state.objects.items():
        cell = y * kitchen.width + x
        word = int(kitchen.word[cell])
        if cell in kitchen.pots:
            row[word : word + 2] = [len(thing.ingredients), max(0, thing._cooking_tick)]
        else:
            row[word] = item(thing)
    row[-1] = min(served, kitchen.soups)
    return row


def item(thing: Any) -> int:
    if thing.name == "soup":
        return DISH + len(thing.ingredients)
    return {"onion": ONION, "dish": DISH}[thing.name]


class Steps(NamedTuple):
    """States, joint actions, successors, and what each cook is paid, shaped and for soups."""

    before: np.ndarray
    actions: np.ndarray
    after: np.ndarray
    shaped: np.ndarray
    paid: np.ndarray

    @classmethod
    def of(cls, steps: Sequence[Sequence[Sequence[int]]]) -> Steps:
        """Steps from lists of numbers."""
        before, actions, after, shaped, paid = map(np.array, zip(*steps, strict=True))
        return cls(before.astype(np.int16), actions, after, shaped, paid)


def walk(kitchen: Kitchen, layout: str, steps: int, seed: int) -> Steps:
    """Random steps of the package.

    Every second episode begins with soups and other things here and there.
    """
    game = rules().OvercookedGridworld.from_layout_name(layout)
    rng = np.random.default_rng(seed)
    found: list[Sequence[Sequence[int]]] = []
    while len(found) < steps:
        is_plain = len(found) % (2 * EPISODE) == 0
        before = kitchen.start() if is_plain else random_row(kitchen, rng)
        state, served = as_state(kitchen, game, before), 0
        for _ in range(EPISODE):
            actions = np.where(rng.random(2) < 0.4, 5, rng.integers(len(ACTIONS), size=2)).tolist()
            state, info = game.get_state_transition(state, [MOVES[each] for each in actions])
            shaped, paid = info["shaped_reward_by_agent"], info["sparse_reward_by_agent"]
            served += sum(paid) // SOUP
            after = as_row(kitchen, state, served)
            found.append((before, actions, after, shaped, paid))
            before = after
    return Steps.of(found[:steps])
