import pytest
import torch

from empo_multigrid.file.mapcodes import all_codes, decode
from empo_multigrid.layout import FLAGS, FORCED, PAUSED, TERMINATED
from empo_multigrid.world import MultigridWorld, world_from_text

BUTTONS = """
map: |
  We We We We We
  We Ay Ae Kr We
  We Ps Kb CB We
  We Cr Mn Bu We
  We We We We We
orientations: [s, w]
"""


def grid(world: MultigridWorld, row: torch.Tensor) -> list[list[str]]:
    lines = world.describe(row).splitlines()[: world.layout.height]
    return [line.split() for line in lines]


def changed(world: MultigridWorld, word: int, value: int) -> torch.Tensor:
    row = world.initial_state()
    row[word] = value
    return row


def fixed_word(world: MultigridWorld, x: int, y: int) -> int:
    return int(world.layout.fixed_word[world.layout.fixed_at[y * world.layout.width + x]])


@pytest.mark.parametrize("code", [c for c in all_codes() if not c.startswith("A")])
def test_every_code_of_a_map_is_shown_as_a_code_with_the_same_meaning(code: str) -> None:
    world = world_from_text(f"map: 'Ay {code}'")
    assert decode(grid(world, world.initial_state())[0][1]) == decode(code)


def test_agents_are_arrows_with_their_index() -> None:
    world = world_from_text("map: 'Ay Ay Ae Ar'\norientations: [e, s, w, n]")
    assert grid(world, world.initial_state()) == [[">0", "v1", "<2", "^3"]]


def test_an_eleventh_agent_still_takes_one_character() -> None:
    world = world_from_text(f"map: '{'Ay ' * 11}'")
    assert grid(world, world.initial_state())[0][-1] == ">a"


def test_every_agent_has_a_line_with_its_place_and_direction() -> None:
    lines = world_from_text(BUTTONS)
    text = lines.describe(lines.initial_state()).splitlines()
    assert text[5] == "0 human 0 (yellow) at (1,1), facing south"
    assert text[6] == "1 robot 1 (grey) at (2,1), facing west"


def test_a_terminated_and_paused_agent_is_called_so() -> None:
    world = world_from_text(BUTTONS)
    text = world.describe(changed(world, FLAGS, TERMINATED | PAUSED))
    assert "0 human 0 (yellow) at (1,1), facing south, terminated, paused" in text


def test_a_forced_action_is_named() -> None:
    world = world_from_text(BUTTONS)
    assert "facing south, next action forced: forward" in world.describe(changed(world, FORCED, 4))


def test_a_carried_key_leaves_the_grid_and_is_named_with_its_carrier() -> None:
    world = world_from_text(BUTTONS)
    row = changed(world, world.layout.first_item_word, world.layout.num_cells + 1)
    assert "1 robot 1 (grey) at (2,1), facing west, carrying red key" in world.describe(row)
    assert grid(world, row)[1][3] == ".."


@pytest.mark.parametrize(("place", "code"), [(1, "KB"), (2, "..")])
def test_an_opened_box_is_what_it_held(place: int, code: str) -> None:
    world = world_from_text("map: 'Ae Xr'\nobjects: {'1,0': {contains: KB}}")
    row = changed(world, world.layout.first_item_word, world.layout.opened + place)
    assert grid(world, row)[0][1] == code
    assert ("carrying blue key" in world.describe(row)) == (code == "..")


@pytest.mark.parametrize(
    ("place", "word", "code", "line"),
    [
        ((1, 3), 0, "Or", "door at (1,3): red, open"),
        ((1, 3), 1, "Cr", "door at (1,3): red, closed"),
        ((1, 3), 2, "Lr", "door at (1,3): red, locked"),
        ((2, 3), 1, "Mn", "magic wall at (2,3): can be entered from the north"),
        ((2, 3), 0, "We", "magic wall at (2,3): solid"),
        ((3, 3), 1, "..", "bush at (3,3): trampled"),
        ((2, 2), 1, "Kb", "kill button at (2,2): enabled"),
        ((2, 2), 0, "Kb", "kill button at (2,2): disabled"),
        ((1, 2), 3, "Ps", "pause switch at (1,2): on, enabled"),
        ((1, 2), 0, "Ps", "pause switch at (1,2): off, disabled"),
        ((3, 2), 0, "CB", "control button at (3,2): disabled"),
        (
            (3, 2), 1 | 2 | 2 << 2, "CB",
            "control button at (3,2): enabled, programmed by 1, waiting for the action to record",
        ),
        (
            (3, 2), 1 | 2 << 2 | 4 << 8, "CB",
            "control button at (3,2): enabled, programmed by 1, recorded forward",
        ),
    ],
)  # fmt: skip
def test_the_condition_of_objects_is_shown(
    place: tuple[int, int], word: int, code: str, line: str
) -> None:
    world = world_from_text(BUTTONS)
    row = changed(world, fixed_word(world, *place), word)
    assert grid(world, row)[place[1]][place[0]] == code
    assert line in world.describe(row).splitlines()


def test_an_untrampled_bush_needs_no_line() -> None:
    world = world_from_text(BUTTONS)
    assert "bush" not in world.describe(world.initial_state())
