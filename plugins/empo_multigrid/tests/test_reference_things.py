"""The readable reference on things, doors, buttons and forced actions, a sentence per test."""

from __future__ import annotations

import pytest
from drawn_worlds import CONTROL, KILL, PAUSE, D, F, L, P, R, S, T, World, bush, button, door
from reference_scene import Scene
from reference_transition import transition

from empo_multigrid.layout import (
    BALL,
    BLUE,
    DISABLING_SWITCH,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    GREY,
    KEY,
    KILL_BUTTON,
    PAUSE_SWITCH,
    RED,
    UNSTEADY,
    YELLOW,
)


class TestThings:
    @pytest.mark.parametrize("sign", "kKoX")
    def test_a_thing_is_picked_up_and_put_down_elsewhere(self, sign: str) -> None:
        world = World(f">{sign} ..")
        assert world.next(P) == {">. ..": 1}
        assert world.after([P], [R], [D]).picture() == f"v. {sign}."

    def test_blocks_and_rocks_are_not_picked_up(self) -> None:
        assert World(">B").next(P) == {">B": 1}
        assert World(">O", colours=[GREY]).next(P) == {">O": 1}

    def test_full_hands_pick_nothing_up(self) -> None:
        assert World(">k", held={0: (BALL, RED)}).next(P) == {">k": 1}

    @pytest.mark.parametrize("place", ["#", "B", "o", "a", "d", ""])
    def test_nothing_is_put_down_on_something(self, place: str) -> None:
        world = World(">" + place, held={0: (KEY, RED)}, a=bush(0.5), d=door(DOOR_OPEN))
        assert world.next(D) == {world.picture(): 1}

    def test_a_thing_can_lie_on_lava_without_changing_it(self) -> None:
        world = World(">~", held={0: (KEY, RED)})
        assert world.after([D]).picture() == ">k"
        assert world.after([P]).next(F) == {".†": 1}

    def test_a_thing_can_lie_on_a_trampled_bush(self) -> None:
        world = World(">a", held={0: (KEY, RED)}, a={**bush(0.5), "word": 1})
        assert world.next(D) == {">k": 1}

    def test_two_agents_after_one_key_get_it_equally_often(self) -> None:
        world = World(">k<")
        carriers = {
            Scene.decode(world.layout, row).items[0].carrier: p
            for p, row in transition(world.layout, world.row, [P, P])
        }
        assert carriers == {0: 0.5, 1: 0.5}

    def test_two_agents_dropping_in_one_cell_compete_unless_in_reference_mode(self) -> None:
        held = {0: (KEY, RED), 1: (BALL, RED)}
        assert World(">.<", held=held).next(D, D) == {">k<": 0.5, ">o<": 0.5}
        assert World(">.<", held=held, reference=True).next(D, D) == {">k<": 1}

    def test_a_thing_dropped_behind_a_leaving_agent_depends_on_the_mode(self) -> None:
        picture, held = ".<<", {1: (KEY, RED)}
        assert World(picture, held=held).next(F, D) == {"<.<": 1}
        # Facing an agent makes a contest for its cell; the leaver does not take part in it.
        assert World(picture, held=held, reference=True).next(F, D) == {"<k<": 1}

    def test_a_box_becomes_what_it_holds(self) -> None:
        world = World(">X", content=(KEY, BLUE))
        assert world.next(T) == {">K": 1}
        assert world.after([T]).next(T) == {">K": 1}

    def test_an_empty_box_vanishes(self) -> None:
        world = World(">X")
        assert world.next(T) == {">.": 1}
        assert world.after([T], [F]).picture() == ".>"

    def test_a_key_from_a_box_opens_a_door(self) -> None:
        world = World(">X a.", content=(KEY, RED), a=door(DOOR_LOCKED))
        assert world.after([T], [P], [R], [T]).picture() == "v. _."

    def test_what_cannot_be_told_apart_gives_the_same_row(self) -> None:
        left = World(">k<k").after([P, S], [D, S])
        assert left.row == World(">k<k").row


class TestDoors:
    def test_a_door_opens_and_closes(self) -> None:
        world = World(">a", a=door(DOOR_CLOSED))
        assert world.next(T) == {">_": 1}
        assert world.after([T]).next(T) == {">|": 1}

    def test_a_locked_door_needs_the_key_of_its_colour_and_stays_unlocked(self) -> None:
        assert World(">a", a=door(DOOR_LOCKED)).next(T) == {">!": 1}
        assert World(">a", a=door(DOOR_LOCKED), held={0: (KEY, BLUE)}).next(T) == {">!": 1}
        assert World(">a", a=door(DOOR_LOCKED), held={0: (BALL, RED)}).next(T) == {">!": 1}
        world = World(">a", a=door(DOOR_LOCKED), held={0: (KEY, RED)})
        assert world.after([T]).picture() == ">_"
        assert world.scene.carried(0) is not None
        assert world.after([T]).picture() == ">|"

    def test_a_door_with_somebody_or_something_in_it_cannot_be_closed(self) -> None:
        world = World(">^.", under={1: door(DOOR_OPEN)})
        assert world.after([T, S], [S, R], [S, F]).picture() == ">_>"
        blocked = World(">Ba^", a=door(DOOR_OPEN)).after([F, S], [S, L], [S, T])
        assert blocked.picture() == ".>B<"

    def test_walking_through_competes_with_closing_unless_in_reference_mode(self) -> None:
        assert World(">a<", a=door(DOOR_OPEN)).next(T, F) == {">|<": 0.5, "><.": 0.5}
        assert World(">a<", a=door(DOOR_OPEN), reference=True).next(T, F) == {">|<": 1}


class TestButtons:
    def test_a_kill_button_terminates_everybody_of_its_colour_each_time(self) -> None:
        world = World(">a >. >.", a=KILL, colours=[YELLOW, GREY, RED])
        assert world.next(T, S, S) == {">X †. >.": 1}
        assert world.after([T, S, S]).next(T, S, F) == {">X †. .>": 1}

    def test_a_kill_button_can_end_who_presses_it(self) -> None:
        assert World(">a", a=button(KILL_BUTTON, GREY, GREY), colours=[GREY]).next(T) == {"†X": 1}

    def test_a_button_ignores_other_colours_and_does_nothing_while_disabled(self) -> None:
        assert World(">a >.", a=KILL, colours=[RED, GREY]).next(T, S) == {">X >.": 1}
        disabled = {**KILL, "word": 0}
        assert World(">a >.", a=disabled, colours=[YELLOW, GREY]).next(T, S) == {">x >.": 1}

    @pytest.mark.parametrize("reference", [False, True])
    def test_who_is_killed_moves_before_it_half_of_the_time(self, reference: bool) -> None:
        world = World(">a >.", a=KILL, colours=[YELLOW, GREY], reference=reference)
        assert world.next(T, F) == {">X †.": 0.5, ">X .†": 0.5}

    def test_turning_away_from_a_kill_is_decided_by_index_in_reference_mode_only(self) -> None:
        def directions(
            picture: str, colours: list[int], agent: int, **kwargs: bool
        ) -> dict[int, float]:
            world = World(picture, a=KILL, colours=colours, **kwargs)
            actions = [L if i == agent else T for i in range(2)]
            return {
                row[4 * agent + 1]: p for p, row in transition(world.layout, world.row, actions)
            }

        assert directions(">a >.", [YELLOW, GREY], 1) == {0: 0.5, 3: 0.5}
        assert directions(">a >.", [YELLOW, GREY], 1, reference=True) == {0: 1}
        assert directions(">. >a", [GREY, YELLOW], 0, reference=True) == {3: 1}

    def test_a_pause_switch_holds_and_releases_everybody_of_its_colour(self) -> None:
        world = World(">a. >..", a=PAUSE, colours=[YELLOW, GREY])
        assert world.after([T, S]).next(S, F) == {">Q. >..": 1}
        assert world.after([T, S]).next(S, F) == {">q. .>.": 1}

    def test_a_disabling_switch_flips_all_buttons_of_its_kind(self) -> None:
        switch = button(DISABLING_SWITCH, YELLOW, KILL_BUTTON)
        world = World(">dabp", d=switch, a=KILL, b={**KILL, "word": 0}, p=PAUSE)
        assert world.next(T) == {">dxXq": 1}
        other = World(">dab", d=switch, a=KILL, b=KILL, colours=[GREY])
        assert other.next(T) == {">dXX": 1}

    def test_disabling_a_pause_switch_that_is_on_releases_who_it_holds(self) -> None:
        switch = button(DISABLING_SWITCH, YELLOW, PAUSE_SWITCH)
        world = World(">d. >.. a..", d=switch, a={**PAUSE, "word": 3}, flags={1: 2},
                      colours=[YELLOW, GREY])  # fmt: skip
        assert world.next(S, F) == {">d. >.. Q..": 1}
        assert world.after([T, S]).next(S, F) == {">d. .>. p..": 1}

    @pytest.mark.parametrize(("reference", "chances"), [(False, {0: 0.5, 2: 0.5}), (True, {2: 1})])
    def test_enabling_and_pressing_compete_unless_in_reference_mode(
        self, reference: bool, chances: dict[int, float]
    ) -> None:
        enables = button(DISABLING_SWITCH, YELLOW, PAUSE_SWITCH)
        disabled = {**PAUSE, "word": 0}
        world = World(">d >a >.", d=enables, a=disabled, colours=[YELLOW, YELLOW, GREY],
                      reference=reference)  # fmt: skip
        paused: dict[int, float] = {}
        for p, row in transition(world.layout, world.row, [T, T, S]):
            flags = row[4 * 2 + 2]
            paused[flags] = paused.get(flags, 0) + p
        assert paused == chances

    def test_who_cannot_flip_a_disabling_switch_takes_no_part_in_the_contest_for_it(self) -> None:
        enables = button(DISABLING_SWITCH, YELLOW, PAUSE_SWITCH)
        disabled = {**PAUSE, "word": 0}
        world = World(">d< >a. >..", d=enables, a=disabled, colours=[YELLOW, RED, YELLOW, GREY])
        assert world.next(T, T, T, S) == {">d< >Q. >..": 0.5, ">d< >q. >..": 0.5}


class TestControlButtons:
    def test_a_recorded_action_is_forced_in_the_step_after_the_trigger(self) -> None:
        world = World(">a< ...", a=CONTROL, colours=[GREY, YELLOW]).after([T, S], [L, S])
        assert world.picture() == "^c< ..."
        assert world.after([S, T]).picture() == "^c< ..."
        assert world.scene.agents[0].forced == L
        assert world.after([R, S]).picture() == "<c< ..."
        assert world.next(S, S) == {"<c< ...": 1}

    def test_nothing_is_triggered_before_something_was_recorded(self) -> None:
        world = World(">a<", a=CONTROL, colours=[GREY, YELLOW])
        assert world.after([S, T]).next(S, S) == {">c<": 1}
        assert world.after([T, S], [S, T]).next(S, S) == {">c<": 1}

    def test_still_is_not_recorded_and_a_vain_action_is(self) -> None:
        world = World(">a", a=CONTROL, colours=[GREY]).after([T], [S])
        assert world.scene.controls[0].awaiting
        assert world.after([P]).scene.controls[0].recorded == P

    def test_toggling_again_starts_over(self) -> None:
        world = World(">a", a=CONTROL, colours=[GREY]).after([T], [T])
        assert world.scene.controls[0].awaiting
        assert world.scene.controls[0].recorded is None

    def test_toggling_one_button_is_recorded_by_another(self) -> None:
        awaiting = {**CONTROL, "word": 1 | 2 | 1 << 2}
        world = World(">b a.", a=awaiting, b=CONTROL, colours=[GREY]).after([T])
        started, recorded = world.scene.controls[0], world.scene.controls[1]
        assert (started.awaiting, started.recorded) == (True, None)
        assert (recorded.awaiting, recorded.recorded) == (False, T)

    def test_a_disabled_button_does_nothing(self) -> None:
        world = World(">a", a={**CONTROL, "word": 0}, colours=[GREY]).after([T])
        assert world.scene.controls[0].programmed is None

    def test_a_stumble_is_recorded_as_going_forward(self) -> None:
        awaiting = {**CONTROL, "word": 1 | 2 | 1 << 2}
        world = World(">#a", a=awaiting, colours=[GREY], under={0: UNSTEADY})
        for _, row in transition(world.layout, world.row, [F]):
            assert Scene.decode(world.layout, row).controls[0].recorded == F


class TestForcedActions:
    def test_it_replaces_the_chosen_action_once(self) -> None:
        world = World(">..", forced={0: F})
        assert world.next(S) == world.next(L) == {".>.": 1}
        assert world.after([S]).next(S) == {".>.": 1}

    def test_it_waits_while_the_agent_is_paused(self) -> None:
        world = World(">..", forced={0: F}, flags={0: 2})
        assert world.after([S]).scene.agents[0].forced == F

    def test_what_the_agent_chose_must_be_available_and_what_is_forced_need_not(self) -> None:
        world = World(">..", forced={0: F})
        world.layout.action_mask[0, 0, F] = False
        assert world.next(S) == {".>.": 1}
        assert world.next(F) == {}
