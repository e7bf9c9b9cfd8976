"""What ``simultaneity`` decides, in every way in which transitions are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from drawn_worlds import CONTROL, KILL, PAUSE, D, F, L, R, S, T, World, bush, button, door, wall
from reference_scene import Scene
from reference_transition import transition

from empo_multigrid.law import kernel
from empo_multigrid.layout import (
    ANY_SIDE,
    DISABLING_SWITCH,
    DOOR_OPEN,
    GREY,
    KEY,
    PAUSE_SWITCH,
    RED,
    UNSTEADY,
    YELLOW,
    Layout,
)

Row = tuple[int, ...]
Law = Callable[[Layout, Row, Sequence[int]], dict[Row, float]]

PAUSED_, ON = 2, {**PAUSE, "word": 3}
BOTH = pytest.mark.parametrize("reference", [False, True], ids=["exact", "reference"])


def by_readable_law(layout: Layout, row: Row, actions: Sequence[int]) -> dict[Row, float]:
    return {successor: p for p, successor in transition(layout, row, actions)}


def by_pair(layout: Layout, row: Row, actions: Sequence[int]) -> dict[Row, float]:
    states, chosen = np.array([row], np.int16), np.array([actions], np.int64)
    _, successors, prob = kernel.transitions(layout, states, chosen)
    return {tuple(s): p for s, p in zip(successors.tolist(), prob.tolist(), strict=True)}


def by_all_pairs(layout: Layout, row: Row, actions: Sequence[int]) -> dict[Row, float]:
    offsets, successors, prob = kernel.transitions(layout, np.array([row], np.int16), None)
    pair = sum(action * len(layout.actions) ** i for i, action in enumerate(actions))
    items = slice(*offsets[pair : pair + 2].tolist())
    found = zip(successors[items].tolist(), prob[items].tolist(), strict=True)
    return {tuple(s): p for s, p in found}


def by_drawing(layout: Layout, row: Row, actions: Sequence[int]) -> dict[Row, float]:
    draws = 1_000
    states = np.array([row] * draws, np.int16)
    chosen = np.array([actions] * draws, np.int64)
    drawn = kernel.step(layout, states, chosen, (np.arange(draws) + 0.5) / draws)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    return {tuple(s): n / draws for s, n in zip(found.tolist(), counts.tolist(), strict=True)}


LAWS: tuple[Law, ...] = (by_readable_law, by_pair, by_all_pairs, by_drawing)


def pictures(world: World, *actions: int) -> dict[str, float]:
    """The pictures that follow, and that all ways of computing agree on."""
    want = by_readable_law(world.layout, world.row, actions)
    for law in LAWS:
        found = law(world.layout, world.row, actions)
        assert found == pytest.approx(want, rel=0, abs=2e-3 if law is by_drawing else 1e-12)
    return world.next(*actions)


def state(world: World, *actions: int) -> Scene:
    """The only state that follows, and that all ways of computing agree on."""
    pictures(world, *actions)
    ((_, row),) = transition(world.layout, world.row, actions)
    return Scene.decode(world.layout, row)


def walked(world: World, *steps: Sequence[int]) -> World:
    """The world after some steps, each of which all ways of computing agree on."""
    for actions in steps:
        pictures(world, *actions)
        world.after(actions)
    return world


class TestReleasedWithinAStep:
    """In reference mode's shortcuts, whom a lower index releases acts at once."""

    def paused(self, picture: str, reference: bool, **kwargs: object) -> World:
        kwargs = {"colours": [YELLOW, GREY], "flags": {1: PAUSED_}, "a": ON, **kwargs}
        return World(picture, reference=reference, **kwargs)  # type: ignore[arg-type]

    @BOTH
    def test_the_robot_acts_after_a_human_of_lower_index(self, reference: bool) -> None:
        moved = ">q .>" if reference else ">q >."
        assert pictures(self.paused(">a >.", reference), T, F) == {moved: 1}
        turned = ">q ^." if reference else ">q >."
        assert pictures(self.paused(">a >.", reference), T, L) == {turned: 1}

    @BOTH
    def test_the_robot_stays_before_a_human_of_higher_index(self, reference: bool) -> None:
        world = self.paused(">. >a", reference, colours=[GREY, YELLOW], flags={0: PAUSED_})
        assert pictures(world, F, T) == {">. >q": 1}

    @BOTH
    def test_the_robot_stays_if_it_is_to_be_still_or_is_terminated(self, reference: bool) -> None:
        assert pictures(self.paused(">a >.", reference), T, S) == {">q >.": 1}
        dead = self.paused(">a >.", reference, flags={1: PAUSED_ | 1})
        assert pictures(dead, T, F) == {">q †.": 1}

    @BOTH
    def test_a_disabling_switch_releases_as_well(self, reference: bool) -> None:
        switch = button(DISABLING_SWITCH, YELLOW, PAUSE_SWITCH)
        world = self.paused(">d >. a.", reference, d=switch)
        assert pictures(world, T, F) == {">d .> p." if reference else ">d >. p.": 1}

    @BOTH
    def test_others_may_turn_meanwhile_but_not_more(self, reference: bool) -> None:
        colours = [YELLOW, GREY, YELLOW]
        world = self.paused(">a >. >.", reference, colours=colours)
        moved = ".>" if reference else ">."
        assert pictures(world, T, F, L) == {f">q {moved} ^.": 1}
        # Two agents do more than turn, so that no shortcut is taken.
        assert pictures(world, T, F, F) == {">q >. .>": 1}

    @BOTH
    def test_no_shortcut_is_taken_where_luck_is_involved(self, reference: bool) -> None:
        world = self.paused(
            ">a >. >.", reference, colours=[YELLOW, GREY, YELLOW], under={2: UNSTEADY}
        )
        assert all(picture[3:5] == ">." for picture in pictures(world, T, F, F))

    def test_it_neither_stumbles_nor_tries_a_wall_and_enters_a_bush(self) -> None:
        unsteady = self.paused(">a. >..", True, under={1: UNSTEADY})
        assert pictures(unsteady, T, F) == {">q. u>.": 1}
        magic = self.paused(">a. >b.", True, b=wall(ANY_SIDE, 1.0), magic=[1])
        assert pictures(magic, T, F) == {">q. >m.": 1}
        held = {**ON, "target": RED}
        human = self.paused(">a. >b.", True, a=held, b=bush(0.5), colours=[YELLOW, RED])
        assert pictures(human, T, F) == {">q. .>.": 1}

    @BOTH
    def test_what_it_does_is_recorded(self, reference: bool) -> None:
        waiting = {**CONTROL, "word": 1 | 2 | 2 << 2}
        world = self.paused(">a >. c.", reference, c=waiting)
        control = state(world, T, F).controls[1]
        assert (control.awaiting, control.recorded) == ((False, F) if reference else (True, None))

    @BOTH
    def test_a_forced_action_waits_for_the_release_or_is_done_or_lost(
        self, reference: bool
    ) -> None:
        world = self.paused(">a >.", reference, forced={1: L})
        assert pictures(world, T, F) == {">q ^." if reference else ">q >.": 1}
        assert state(world, T, F).agents[1].forced == (None if reference else L)
        assert state(world, S, F).agents[1].forced == (None if reference else L)


class TestControlButtons:
    @BOTH
    def test_toggling_a_button_that_waits(self, reference: bool) -> None:
        world = walked(World(">a", a=CONTROL, colours=[GREY], reference=reference), [T])
        control = state(world, T)
        (found,) = control.controls.values()
        assert (found.programmed, found.awaiting) == (0, not reference)
        assert found.recorded == (T if reference else None)

    @BOTH
    def test_a_third_toggle_begins_anew(self, reference: bool) -> None:
        world = walked(World(">a", a=CONTROL, colours=[GREY], reference=reference), [T], [T])
        (found,) = state(world, T).controls.values()
        assert (found.awaiting, found.recorded) == (True, T if reference else None)

    @BOTH
    def test_what_is_held_while_another_action_is_awaited(self, reference: bool) -> None:
        world = World(">a<", a=CONTROL, colours=[GREY, YELLOW], reference=reference)
        walked(world, [T, S], [L, S], [R, S], [T, S])
        (found,) = world.scene.controls.values()
        assert (found.awaiting, found.recorded) == (True, L if reference else None)
        assert state(world, S, T).agents[0].forced == (L if reference else None)
        (found,) = state(world, R, S).controls.values()
        assert (found.awaiting, found.recorded) == (False, R)

    @BOTH
    def test_another_robot_takes_the_button_over(self, reference: bool) -> None:
        colours = [GREY, GREY, YELLOW]
        world = World(">a< .^.", a=CONTROL, colours=colours, reference=reference)
        walked(world, [T, S, S], [L, S, S], [S, T, S])
        (found,) = world.scene.controls.values()
        held = L if reference else None
        assert (found.programmed, found.awaiting, found.recorded) == (1, True, held)
        forced = [agent.forced for agent in state(world, S, S, T).agents]
        assert forced == [None, held, None]

    @BOTH
    def test_a_disabled_button_still_waits(self, reference: bool) -> None:
        disabled = {**CONTROL, "word": 2 | 1 << 2}
        world = World(">a", a=disabled, colours=[GREY], reference=reference)
        (found,) = state(world, T).controls.values()
        assert (found.enabled, found.awaiting, found.recorded) == (False, False, T)


class TestOtherShortcutsOfReferenceMode:
    @BOTH
    def test_company_that_is_still_does_not_help_at_a_wall_open_from_any_side(
        self, reference: bool
    ) -> None:
        world = World(">a.^", a=wall(ANY_SIDE, 1.0), magic=[0], reference=reference)
        assert pictures(world, F, S) == {">m.^" if reference else ".>.^": 1}
        assert pictures(world, F, L) == {".>.<": 1}

    @BOTH
    def test_a_thing_is_put_down_in_a_doorway_in_reference_mode(self, reference: bool) -> None:
        world = World(">a", a=door(DOOR_OPEN), held={0: (KEY, RED)}, reference=reference)
        assert pictures(world, D) == {">k" if reference else ">_": 1}

    @BOTH
    def test_a_stumbler_gets_into_a_bush_in_reference_mode(self, reference: bool) -> None:
        world = World("a >", a=bush(0.5), under={0: UNSTEADY}, stumble=1.0, reference=reference)
        up = {"^ u": 0.5} if reference else {"^ u": 0.25, "b ^": 0.25}
        assert pictures(world, F) == {**up, "b v": 0.5}

    @BOTH
    def test_steady_unsteady_ground_is_left_after_the_others_in_reference_mode(
        self, reference: bool
    ) -> None:
        ground = {0: UNSTEADY, 1: UNSTEADY}
        world = World(">.<", under=ground, stumble=0.0, reference=reference)
        assert pictures(world, F, S) == {"u><": 1}
        after = {">.<": 1} if reference else {"u><": 0.5, "><u": 0.5}
        assert pictures(world, F, F) == after

    @BOTH
    def test_turning_away_from_a_kill(self, reference: bool) -> None:
        world = World(">a >.", a=KILL, colours=[YELLOW, GREY], reference=reference)
        assert pictures(world, T, L) == {">X †.": 1}
