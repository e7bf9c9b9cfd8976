"""The readable reference: one sentence of the transition law per test."""

from __future__ import annotations

import pytest
import random_worlds as rw
from drawn_worlds import CONTROL, DONE, KILL, PAUSE, F, L, R, S, World, bush, door, wall
from hypothesis import HealthCheck, given, settings
from reference_transition import transition

from empo_multigrid.layout import (
    ANY_SIDE,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    GREY,
    NORTH,
    UNSTEADY,
    WEST,
    YELLOW,
)


class TestMoving:
    def test_turning_left_and_right_turns_by_a_quarter(self) -> None:
        assert World(".>.").next(L) == {".^.": 1}
        assert World(".>.").next(R) == {".v.": 1}

    def test_still_and_done_change_nothing(self) -> None:
        assert World(">.").next(S) == World(">.").next(DONE) == {">.": 1}

    def test_forward_enters_a_free_cell(self) -> None:
        assert World(">.").next(F) == {".>": 1}

    def test_forward_is_blocked_by_walls_and_by_the_edge(self) -> None:
        assert World(">#").next(F) == {">#": 1}
        assert World("#>").next(F) == {"#>": 1}

    @pytest.mark.parametrize("sign", "kKoX")
    def test_forward_is_blocked_by_keys_balls_and_boxes(self, sign: str) -> None:
        assert World(f">{sign}.").next(F) == {f">{sign}.": 1}

    def test_lava_terminates_who_enters_it_and_the_body_stays_an_obstacle(self) -> None:
        world = World(">~")
        assert world.next(F) == {".†": 1}
        assert world.after([F]).next(L) == {".†": 1}
        world = World(">~ ^.").after([F, S])
        assert world.after([S, F], [S, R]).next(S, F) == {">† ..": 1}

    def test_an_open_door_lets_pass_and_a_shut_one_does_not(self) -> None:
        assert World(">a.", a=door(DOOR_OPEN)).next(F) == {".>.": 1}
        assert World(">a.", a=door(DOOR_CLOSED)).next(F) == {">|.": 1}
        assert World(">a.", a=door(DOOR_LOCKED)).next(F) == {">!.": 1}

    @pytest.mark.parametrize("thing", [KILL, PAUSE, CONTROL])
    def test_buttons_and_switches_of_all_kinds_are_obstacles(self, thing: object) -> None:
        world = World(">a.", a=thing)
        assert world.next(F) == {world.picture(): 1}

    def test_an_action_that_an_agent_lacks_where_it_stands_has_no_successors(self) -> None:
        world = World(">.")
        world.layout.action_mask[0, 0, F] = False
        assert world.next(F) == {}
        assert world.next(R) == {"v.": 1}


class TestPushing:
    def test_a_block_is_pushed_one_cell_by_anybody(self) -> None:
        assert World(">B.").next(F) == {".>B": 1}

    def test_a_rock_is_pushed_only_with_permission(self) -> None:
        assert World(">O.").next(F) == {">O.": 1}
        assert World(">O.", colours=[GREY]).next(F) == {".>O": 1}

    def test_a_row_moves_together_in_its_order(self) -> None:
        assert World(">BOB.", colours=[GREY]).next(F) == {".>BOB": 1}

    def test_one_forbidden_rock_holds_a_whole_row(self) -> None:
        assert World(">BOB.").next(F) == {">BOB.": 1}

    @pytest.mark.parametrize("end", ["#", "k", "X", ""])
    def test_nothing_is_pushed_into_obstacles(self, end: str) -> None:
        assert World(">B" + end).next(F) == {">B" + end: 1}

    def test_bushes_stop_blocks_until_trampled(self) -> None:
        assert World(">Ba", a=bush(1.0)).next(F) == {">Bb": 1}
        assert World(">Ba", a={**bush(1.0), "word": 1}).next(F) == {".>B": 1}

    def test_an_open_door_takes_a_block_and_a_shut_one_does_not(self) -> None:
        assert World(">Ba", a=door(DOOR_OPEN)).next(F) == {".>B": 1}
        assert World(">Ba", a=door(DOOR_CLOSED)).next(F) == {">B|": 1}

    def test_a_block_hides_lava_only_while_it_lies_there(self) -> None:
        world = World(">B~.")
        assert world.next(F) == {".>B.": 1}
        assert world.after([F]).next(F) == {"..†B": 1}

    def test_a_block_leaves_unsteady_ground_as_it_was(self) -> None:
        world = World(">Bu.").after([F], [F])
        assert world.picture() == "..>B"
        assert len(transition(world.layout, world.row, [F])) == 3

    def test_nothing_is_pushed_onto_a_cell_that_an_agent_leaves(self) -> None:
        assert World(">B> ...").next(F, R) == {">Bv ...": 1}
        assert World(">Bv ...").next(F, F) == {">B. ..v": 1}


class TestManyAgents:
    @pytest.mark.parametrize("reference", [False, True])
    def test_two_agents_into_one_free_cell_win_equally_often(self, reference: bool) -> None:
        assert World(">.<", reference=reference).next(F, F) == {".><": 0.5, "><.": 0.5}

    def test_three_agents_into_one_free_cell_win_with_a_third_each(self) -> None:
        third = round(1 / 3, 12)
        after = {".>< .^.": third, "><. .^.": third, ">^< ...": third}
        assert World(">.< .^.").next(F, F, F) == after

    @pytest.mark.parametrize("reference", [False, True])
    def test_following_into_a_vacated_cell_is_blocked(self, reference: bool) -> None:
        assert World(">>.", reference=reference).next(F, F) == {">.>": 1}
        assert World(".<<", reference=reference).next(F, F) == {"<.<": 1}

    @pytest.mark.parametrize("reference", [False, True])
    def test_swapping_is_blocked(self, reference: bool) -> None:
        assert World("><", reference=reference).next(F, F) == {"><": 1}

    def test_a_landing_block_competes_with_who_walks_there(self) -> None:
        assert World(">B.<").next(F, F) == {".>B<": 0.5, ">B<.": 0.5}

    def test_two_blocks_landing_in_one_cell_compete(self) -> None:
        assert World(">B.B<").next(F, F) == {".>BB<": 0.5, ">BB<.": 0.5}

    def test_separate_contests_are_independent(self) -> None:
        after = World(">.< >.<").next(F, F, F, F)
        assert after == dict.fromkeys([".>< .><", ".>< ><.", "><. .><", "><. ><."], 0.25)

    def test_paused_agents_do_not_act_but_keep_their_cell(self) -> None:
        assert World(">>.", flags={1: 2}).next(F, F) == {">>.": 1}

    def test_an_infeasible_push_contests_nothing(self) -> None:
        assert World(">O.<").next(F, F) == {">O<.": 1}


class TestUnsteadyGround:
    def test_who_leaves_it_stumbles_left_or_right(self) -> None:
        world = World("... .>. ...", under={0: UNSTEADY}, stumble=0.4)
        after = {"... .u> ...": 0.6, ".^. .u. ...": 0.2, "... .u. .v.": 0.2}
        assert world.next(F) == after

    def test_the_turn_stays_where_the_move_fails(self) -> None:
        assert World(">.", under={0: UNSTEADY}).next(F) == {"u>": 0.5, "^.": 0.25, "v.": 0.25}

    def test_turning_on_it_is_safe(self) -> None:
        assert World(">.", under={0: UNSTEADY}).next(R) == {"v.": 1}

    def test_two_who_stumble_into_one_cell_both_stay(self) -> None:
        after = World(">.<", under={0: UNSTEADY, 1: UNSTEADY}).next(F, F)
        assert after[">.<"] == 0.25
        assert after["u>^"] == after["^<u"] == 0.125

    def test_others_go_first(self) -> None:
        after = World(">.<", under={0: UNSTEADY}).next(F, F)
        assert after == {"><.": 0.5, "^<.": 0.25, "v<.": 0.25}

    def test_a_stumbler_pushes_what_it_stumbles_against(self) -> None:
        world = World("... .B. .>. .#.", under={0: UNSTEADY})
        after = world.next(F)
        assert after[".B. .^. .u. .#."] == 0.25

    def test_a_stumbler_against_a_bush_may_fail_to_enter(self) -> None:
        world = World("a >", under={0: UNSTEADY}, a=bush(0.5), stumble=1.0)
        assert world.next(F) == {"^ u": 0.25, "b ^": 0.25, "b v": 0.5}

    def test_no_chance_of_stumbling_is_ordinary_ground(self) -> None:
        assert World(">.<", under={0: UNSTEADY}, stumble=0.0).next(F, F)["u><"] == 0.5


class TestBushes:
    def test_humans_enter_with_their_probability_and_the_bush_stays(self) -> None:
        world = World(">a.", a=bush(0.7))
        assert world.next(F) == {".>.": 0.7, ">b.": 0.3}
        sure = World(">a.", a=bush(1.0))
        assert sure.after([F], [F]).picture() == ".b>"

    def test_robots_trample_it_for_good(self) -> None:
        world = World(">a.", a=bush(0.7), colours=[GREY])
        assert world.next(F) == {".>.": 1}
        assert world.after([F], [F]).picture() == "..>"

    def test_it_keeps_those_on_unsteady_ground_from_stumbling(self) -> None:
        assert World(">a.", a=bush(0.7), under={0: UNSTEADY}).next(F) == {"u>.": 0.7, ">b.": 0.3}

    def test_a_robot_gets_there_before_a_human(self) -> None:
        world = World(">a<", a=bush(0.7), colours=[YELLOW, GREY])
        assert world.next(F, F) == {"><.": 1}

    def test_of_two_who_try_the_first_that_succeeds_is_inside(self) -> None:
        after = World(">a<", a=bush(0.5)).next(F, F)
        assert after == {".><": 0.5, "><.": 0.25, ">b<": 0.25}


class TestMagicWalls:
    def test_an_attempt_succeeds_fails_or_turns_the_wall_solid(self) -> None:
        world = World(">a.", a=wall(WEST, 0.5, 0.2), magic=[0])
        assert world.next(F) == {".>.": 0.5, ">m.": 0.4, ">#.": 0.1}

    def test_it_can_be_left_and_entered_again(self) -> None:
        world = World(">a.", a=wall(WEST, 1.0), magic=[0])
        assert world.after([F], [F]).picture() == ".m>"

    def test_only_the_magic_side_lets_in(self) -> None:
        assert World(">a.", a=wall(NORTH), magic=[0]).next(F) == {">m.": 1}

    def test_only_agents_with_the_capability_get_in(self) -> None:
        assert World(">a.", a=wall(WEST)).next(F) == {">m.": 1}

    def test_a_solid_wall_never_lets_in(self) -> None:
        world = World(">a.", a=wall(WEST, 0.0, 1.0), magic=[0])
        assert world.after([F]).next(F) == {">#.": 1}

    def test_a_lone_agent_enters_from_any_side_except_in_reference_mode(self) -> None:
        assert World(">a.", a=wall(ANY_SIDE, 1.0), magic=[0]).next(F) == {".>.": 1}
        world = World(">a.", a=wall(ANY_SIDE, 1.0), magic=[0], reference=True)
        assert world.next(F) == {">m.": 1}

    def test_in_reference_mode_company_lets_an_agent_enter_from_any_side(self) -> None:
        world = World(">a.^", a=wall(ANY_SIDE, 1.0), magic=[0], reference=True)
        assert world.next(F, L) == {".>.<": 1}

    def test_nobody_stumbles_into_one(self) -> None:
        world = World("a >", a=wall(ANY_SIDE, 1.0), under={0: UNSTEADY}, stumble=1.0, magic=[0])
        assert world.next(F) == {"m ^": 0.5, "m v": 0.5}


class TestPurity:
    @settings(max_examples=60, suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(world=rw.worlds())
    def test_asking_never_changes_the_answer_to_other_questions(self, world: object) -> None:
        layout, row, random = world  # type: ignore[misc]
        questions = [rw.random_actions(random, layout, row) for _ in range(4)]
        first = [transition(layout, row, actions) for actions in questions]
        again = [transition(layout, row, actions) for actions in reversed(questions)]
        assert first == again[::-1]
