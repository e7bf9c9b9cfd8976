"""Episodes played by keys, and links to states."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pages import Open, Solved, solved_page, world_of

from empo_core.runs.atomic import digest
from empo_exact.plugin import ExactParams
from empo_exact.policies import SolvedHumans, SolvedRobots
from empo_inspector.game import Game
from empo_inspector.game_record import record_of
from empo_inspector.pcg32 import Pcg32
from empo_theory.parameters import theory_data

KEYS = {"still": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight", "forward": "ArrowUp"}


def test_random_numbers_are_the_same_in_the_page(open_page: Open, free_the_human: Solved) -> None:
    asked = """seeds => seeds.map((seed) => {
      const episode = new Episode(seed);
      return Array.from({length: 50}, () => episode.next());
    })"""
    seeds = [0, 1, 42, 2**32 - 1, 2**53 - 1]
    numbers = [Pcg32(seed) for seed in seeds]
    found = open_page(free_the_human.file).ask(asked, seeds)
    drawn = len(free_the_human.result.spec.humans)  # Goals, before the first step.
    expected = [[random.next() for _ in range(drawn + 50)][drawn:] for random in numbers]
    assert found == expected


@pytest.fixture(scope="module")
def long_walk(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    world = world_of("multigrid/small_trolley", max_steps=50)
    return solved_page(world, params, tmp_path_factory.mktemp("walk"))


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(20), marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "player",
    [pytest.param(0, id="a human", marks=pytest.mark.slow), pytest.param(2, id="the robot")],
)
def test_a_walk_by_keys_is_that_of_python(
    open_page: Open, long_walk: Solved, player: int, seeds: range
) -> None:
    opened, result = open_page(long_walk.file), long_walk.result
    policies, agents = (SolvedRobots(result), SolvedHumans(result)), result.spec.agents
    for seed in seeds:
        draw, game = (
            np.random.default_rng(seed),
            Game(result.problem.world, policies, [player], seed=seed),
        )
        opened.ask(
            "([first, seed]) => { inspector.draft = {first, second: -1, seed, goals: {}, "
            "guess: false}; inspector.startGame(); }",
            [player, seed],
        )
        for _ in range(50):
            action = int(draw.integers(len(agents[player].actions)))
            opened.tab.keyboard.press(KEYS[agents[player].actions[action]])
            game.step({player: action})
        record = json.loads(opened.tab.input_value("#record"))
        theory = digest(theory_data(result.params.theory))
        assert record == record_of(game, theory).model_dump()


def test_undo_takes_back_a_step_and_its_random_numbers(open_page: Open, long_walk: Solved) -> None:
    opened = open_page(long_walk.file)
    opened.ask("() => { inspector.startGame(); }")
    for key in ("ArrowUp", "ArrowLeft"):
        opened.tab.keyboard.press(key)
    record = opened.tab.input_value("#record")
    opened.tab.keyboard.press("Backspace")
    opened.tab.keyboard.press("ArrowLeft")
    assert opened.tab.input_value("#record") == record


def test_buttons_act_as_keys_do(open_page: Open, long_walk: Solved) -> None:
    opened = open_page(long_walk.file)
    opened.ask("() => { inspector.startGame(); }")
    opened.tab.get_by_role("button", name="↑ forward").click()
    record = opened.tab.input_value("#record")
    opened.tab.keyboard.press("Backspace")
    opened.tab.keyboard.press("ArrowUp")
    assert opened.tab.input_value("#record") == record


def test_a_hidden_policy_is_shown_after_the_move(open_page: Open, long_walk: Solved) -> None:
    opened = open_page(long_walk.file)
    opened.ask("() => { inspector.draft.guess = true; inspector.startGame(); }")
    opened.show(view="robot")
    assert "Hidden" in opened.tab.inner_text("#panel")
    opened.show(view="play")
    opened.tab.keyboard.press("ArrowUp")
    assert "robots' policy before" in opened.tab.inner_text("#panel").lower()


LOST = """() => {
  const lost = (s) => [...m.transitions(s)].some(([, next]) => next === NOT_KEPT);
  const time = (s) => m.header.kept.times.find((t) => m.known(s, t));
  const s = range(m.S).find((each) => lost(each) && time(each) !== undefined);
  return [s, time(s)];
}"""


def test_where_successors_are_not_kept_a_game_says_so(open_page: Open, tmp_path: Path) -> None:
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    world = world_of("multigrid/free_the_human", max_steps=8)
    opened = open_page(solved_page(world, params, tmp_path, max_bytes=200_000).file)
    opened.ask("place => { inspector.startGame(place); }", opened.ask(LOST))
    opened.tab.keyboard.press("ArrowUp")
    assert "not kept in this file" in opened.tab.inner_text("#panel [role=status]")
    assert opened.said == []


PLACE = "() => [inspector.s, inspector.t, inspector.goal, inspector.view]"


def test_links_and_the_history_restore_the_selection(
    open_page: Open, free_the_human: Solved
) -> None:
    number = int(free_the_human.inspection.number[3])
    opened = open_page(free_the_human.file, f"#s={number}&t=1&g=2&v=human")
    first = opened.ask(PLACE)
    assert first == [3, 1, 2, "human"]
    opened.tab.press("#pause", "ArrowRight")
    second = opened.ask(PLACE)
    assert second[1] == 2
    opened.tab.press("[data-view=next]", "3")
    assert opened.ask(PLACE)[3] == "why"
    opened.tab.go_back()
    assert opened.ask(PLACE) == second
    opened.tab.go_back()
    assert opened.ask(PLACE) == first
    opened.tab.go_forward()
    assert opened.ask(PLACE) == second


@pytest.mark.parametrize(
    "fragment", ["#s=999999&t=0", "#s=0&t=99", "#v=nothing&s=x", "#t=-1&g=1e9"]
)
def test_a_link_to_nothing_shows_the_start(
    open_page: Open, free_the_human: Solved, fragment: str
) -> None:
    opened = open_page(free_the_human.file, fragment)
    assert opened.ask(PLACE) == [0, 0, 0, "robot"]
    assert not opened.said


def test_keys_act_in_their_row_only_and_can_be_switched_off(
    open_page: Open, free_the_human: Solved
) -> None:
    opened = open_page(free_the_human.file)
    before = opened.ask(PLACE)
    for place, key in (("body", "ArrowRight"), ("#pause", "3"), ("[data-view=next]", "ArrowRight")):
        opened.tab.press(place, key)
        assert opened.ask(PLACE) == before
    opened.tab.uncheck("#keys")
    opened.tab.press("#pause", "ArrowRight")
    opened.tab.press("[data-view=next]", "3")
    opened.ask("() => inspector.startGame()")
    begun = opened.ask(PLACE)
    opened.tab.keyboard.press("ArrowUp")
    assert opened.ask(PLACE) == begun
    assert begun[:2] == before[:2]


def test_a_game_begun_by_its_button_is_played_by_keys(
    open_page: Open, free_the_human: Solved
) -> None:
    opened = open_page(free_the_human.file)
    opened.show(view="play")
    opened.tab.press("[data-key=replay]", "Enter")
    opened.tab.keyboard.press("ArrowUp")
    assert opened.ask(PLACE)[1] == 1


def test_the_live_region_is_silent_while_time_plays(
    open_page: Open, free_the_human: Solved
) -> None:
    opened = open_page(free_the_human.file)
    live = "() => document.getElementById('status').getAttribute('aria-live')"
    opened.tab.click("#pause")
    assert opened.ask(live) == "off"
    opened.tab.click("#pause")
    assert opened.ask(live) == "polite"
