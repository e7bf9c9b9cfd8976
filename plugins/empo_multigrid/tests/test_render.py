from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import WorldError
from empo_core.types import Overlay
from empo_multigrid.file.mapcodes import all_codes
from empo_multigrid.layout import CELL, DIRECTION, FLAGS, FORCED, PAUSED, TERMINATED
from empo_multigrid.world import MultigridWorld, world_from_text
from empo_pictures.canvas import heat_colour
from empo_pictures.picture_sheet import CAPTION_HEIGHT, PANEL_WIDTH, TITLE_HEIGHT

PLAIN = """
map: |
  We We We We We
  We Ay .. Ae We
  We .. Ay .. We
  We We We We We
possible_goals: ["1,1", "2,1", "3,1, 3,2", "1,2, 2,2"]
"""
OBJECTS = """
map: |
  We We We We We
  We Ay Ae Kr We
  We Ps Kb CB We
  We Cr Mn Bu We
  We We We We We
"""
TILE = 32


@pytest.fixture(scope="module")
def plain() -> MultigridWorld:
    return world_from_text(PLAIN)


@pytest.fixture(scope="module")
def objects() -> MultigridWorld:
    return world_from_text(OBJECTS)


def picture(
    world: MultigridWorld, row: torch.Tensor | None = None, overlay: Overlay | None = None
) -> np.ndarray:
    row = world.initial_state() if row is None else row
    return world.render(row, overlay, tile_size=TILE)


def boards(image: np.ndarray, number: int = 0) -> np.ndarray:
    """A board of ``plain`` in a picture with goals, its boards above each other."""
    top = TITLE_HEIGHT + number * (4 * TILE + TITLE_HEIGHT)
    return image[top : top + 4 * TILE, : 5 * TILE]


def tile(image: np.ndarray, x: int, y: int) -> np.ndarray:
    return image[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE].astype(int)


def changed_tiles(before: np.ndarray, after: np.ndarray) -> set[tuple[int, int]]:
    ys, xs = np.nonzero((before != after).any(-1))
    return set(zip((xs // TILE).tolist(), (ys // TILE).tolist(), strict=True))


def with_word(world: MultigridWorld, word: int, value: int) -> torch.Tensor:
    row = world.initial_state()
    row[word] = value
    return row


def test_a_picture_is_rgb_with_tile_size_pixels_per_cell(plain: MultigridWorld) -> None:
    image = picture(plain)
    assert image.shape == (4 * TILE, 5 * TILE, 3)
    assert image.dtype == np.uint8


def test_a_state_always_looks_the_same(plain: MultigridWorld) -> None:
    np.testing.assert_array_equal(picture(plain), picture(plain))


def test_a_picture_can_be_written_to(plain: MultigridWorld) -> None:
    assert picture(plain).flags.writeable


def test_all_codes_of_maps_look_different() -> None:
    # Second spellings of one object, and walls and floors that only differ by position, aside.
    codes = [c for c in all_codes() if c not in ("Ki", "Pa", "dK", "dP", "dC")]
    images = {
        code: tile(picture(world_from_text(f"map: 'Ay {code}'")), 1, 0).tobytes() for code in codes
    }
    assert len(set(images.values())) == len(codes)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (DIRECTION, 1),
        (DIRECTION, 2),
        (DIRECTION, 3),
        (FLAGS, TERMINATED),
        (FLAGS, PAUSED),
        (FLAGS, TERMINATED | PAUSED),
        (FORCED, 2),
    ],
)
def test_the_condition_of_an_agent_changes_only_its_tile(
    plain: MultigridWorld, word: int, value: int
) -> None:
    after = picture(plain, with_word(plain, word, value))
    assert changed_tiles(picture(plain), after) == {(1, 1)}


def test_all_conditions_of_an_agent_look_different(plain: MultigridWorld) -> None:
    seen = set()
    for direction in range(4):
        for flags in range(4):
            row = with_word(plain, DIRECTION, direction)
            row[FLAGS] = flags
            seen.add(tile(picture(plain, row), 1, 1).tobytes())
    assert len(seen) == 16


def test_an_agent_points_where_it_faces(plain: MultigridWorld) -> None:
    # The tip of the triangle is narrow, so more ink lies in the half that is behind.
    for direction, (axis, front) in enumerate([(1, 1), (0, 1), (1, 0), (0, 0)]):
        row = with_word(plain, DIRECTION, direction)
        shape = np.abs(tile(picture(plain, row), 1, 1) - (248, 247, 243)).sum(-1) > 60
        ahead, behind = np.array_split(shape, 2, axis=axis)[:: 1 if not front else -1]
        assert ahead.sum() < 0.8 * behind.sum()


def test_an_agent_that_moves_changes_two_tiles(plain: MultigridWorld) -> None:
    after = picture(plain, with_word(plain, CELL, 2 * 5 + 1))
    assert changed_tiles(picture(plain), after) == {(1, 1), (1, 2)}


def test_agents_of_one_colour_are_told_apart_by_their_index(plain: MultigridWorld) -> None:
    image = picture(plain)
    assert (tile(image, 1, 1) != tile(image, 2, 2)).any()


def test_a_carried_key_is_drawn_with_its_carrier(objects: MultigridWorld) -> None:
    layout = objects.layout
    row = with_word(objects, layout.first_item_word, layout.num_cells)
    assert changed_tiles(picture(objects), picture(objects, row)) == {(1, 1), (3, 1)}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((1, 3), [0, 1, 2]),
        ((2, 3), [0, 1]),
        ((3, 3), [0, 1]),
        ((1, 2), [0, 2, 3]),
        ((2, 2), [0, 1]),
        ((3, 2), [0, 1, 1 | 2 << 2 | 4 << 8]),
    ],
)
def test_all_conditions_of_an_object_look_different(
    objects: MultigridWorld, place: tuple[int, int], words: list[int]
) -> None:
    layout = objects.layout
    word = int(layout.fixed_word[layout.fixed_at[place[1] * layout.width + place[0]]])
    images = {tile(picture(objects, with_word(objects, word, w)), *place).tobytes() for w in words}
    assert len(images) == len(words)


def test_an_opened_box_looks_like_what_it_held() -> None:
    box = world_from_text("map: 'Ae Xr'\nobjects: {'1,0': {contains: By}}")
    opened = with_word(box, box.layout.first_item_word, box.layout.opened + 1)
    ball = world_from_text("map: 'Ae By'")
    np.testing.assert_array_equal(tile(picture(box, opened), 1, 0), tile(picture(ball), 1, 0))


def test_a_cell_has_the_colour_of_its_largest_goal_value(plain: MultigridWorld) -> None:
    values = [0.1, 0.2, 0.9, 0.4, *[0.0] * 4]  # The second human's goals come after.
    image = boards(picture(plain, overlay=Overlay(goal_values=values, human=0)))
    for (x, y), value in {(2, 1): 0.2, (3, 2): 0.9, (1, 2): 0.4}.items():
        ground = tile(image, x, y)[TILE // 2, TILE // 2]
        # The map's colours are laid over the ground and let a little of it through.
        np.testing.assert_allclose(ground, heat_colour(value), atol=35)


def test_overlapping_goals_show_the_larger_value() -> None:
    world = world_from_text(
        "map: 'Ay .. ..'\npossible_goals: ['0,0', '1,0', '1,0, 2,0']\ngoal_coverage: partial"
    )
    image = picture(world, overlay=Overlay(goal_values=[0.0, 1.0, 0.2]))[TITLE_HEIGHT:]
    middle = TILE // 2
    assert tile(image, 1, 0)[middle, middle].sum() < tile(image, 2, 0)[middle, middle].sum()


def test_without_a_name_there_is_a_board_for_every_human(plain: MultigridWorld) -> None:
    values = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    both = picture(plain, overlay=Overlay(goal_values=values))
    first, other = (
        boards(picture(plain, overlay=Overlay(goal_values=values, human=human))) for human in (0, 2)
    )
    assert (2, 1) in changed_tiles(first, other)
    np.testing.assert_array_equal(boards(both, 0), first)
    np.testing.assert_array_equal(boards(both, 1), other)


def test_goal_boxes_have_their_humans_colour_and_are_inset(plain: MultigridWorld) -> None:
    overlay = Overlay(goal_values=[0.0] * 8, human=0)
    cell = tile(boards(picture(plain, overlay=overlay)), 2, 1)
    yellow = (np.abs(cell - (247, 190, 22)).sum(-1) < 60).nonzero()
    assert min(part.min() for part in yellow) in (2, 3)
    assert max(part.max() for part in yellow) in (TILE - 4, TILE - 3)


def test_policies_add_a_panel_and_captions_a_line(plain: MultigridWorld) -> None:
    policy = [0.1, 0.2, 0.3, 0.4]
    assert picture(plain, overlay=Overlay(policies={1: policy})).shape[1] == 5 * TILE + PANEL_WIDTH
    caption = picture(plain, overlay=Overlay(caption="step 1"))
    assert caption.shape == (4 * TILE + CAPTION_HEIGHT, 5 * TILE, 3)


def test_a_long_caption_is_cut_to_the_picture(plain: MultigridWorld) -> None:
    image = picture(plain, overlay=Overlay(caption="very long " * 100))
    assert image.shape == (4 * TILE + CAPTION_HEIGHT, 5 * TILE, 3)
    assert (image[:, -10:][4 * TILE :] == 255).all()


def test_probable_actions_have_long_bars_and_arrows(plain: MultigridWorld) -> None:
    def ink(probs: list[float]) -> tuple[int, int]:
        image = picture(plain, overlay=Overlay(policies={1: probs}))
        panel = image[:, 5 * TILE :].astype(int)
        bars = (np.abs(panel - (126, 133, 146)).sum(-1) < 12).sum()
        plain_board = picture(plain)
        return int(bars), int((image[: 4 * TILE, : 5 * TILE] != plain_board).any(-1).sum())

    certain, unsure = ink([0.0, 0.0, 0.0, 1.0]), ink([0.9, 0.0, 0.0, 0.1])
    assert certain[1] > unsure[1] > 0
    assert ink([0.5, 0.0, 0.0, 0.0])[0] < ink([1.0, 0.0, 0.0, 0.0])[0]
    assert ink([1.0, 0.0, 0.0, 0.0])[1] == 0


def texts(world: MultigridWorld, overlay: Overlay) -> list[str]:
    root = ElementTree.fromstring(world.render_svg(world.initial_state(), overlay))
    return [text for text in root.itertext() if text.strip()]


NAMED = """
goal_coverage: partial
map: |
  Ay .. .. Ae
possible_goals:
  - {name: meadow, cells: "1,0, 2,0"}
  - {name: home, cells: "0,0"}
"""


def test_names_of_goals_stand_on_the_map_and_in_the_legend() -> None:
    world = world_from_text(NAMED)
    found = texts(world, Overlay(goal_values=[0.25, 0.75], titles={0: "$X_h$ = 1.5"}))
    assert {"A meadow", "A: meadow", "B: home", "0.250", "0.750"} <= set(found)
    assert " ".join(found).count("human 0 (yellow):  X h  = 1.5") == 1
    assert " ".join(found).count("V h e  for human 0 (yellow)") == 1


def test_a_label_keeps_clear_of_the_agent_in_its_cell() -> None:
    world = world_from_text(NAMED)
    overlay = Overlay(goal_values=[0.25, 0.75])
    # Someone who stands in the only cell of a goal leaves room for its letter.
    assert "B" in texts(world, overlay)
    assert "B home" not in texts(world, overlay)
    # Humans begin facing east: letter and number stand where their triangle is narrow.
    root = ElementTree.fromstring(world.render_svg(world.initial_state(), overlay))
    spots = {element.text: element for element in root.iter() if element.text in ("B", ".75")}
    tile_size = 96
    assert all(float(each.get("x", 0)) > tile_size / 2 for each in spots.values())
    assert len(spots) == 2


def test_the_action_that_is_taken_stands_beside_its_agent(plain: MultigridWorld) -> None:
    found = texts(plain, Overlay(actions={0: 3, 1: 0, 2: None}))
    assert found.count("forward") == 1
    assert found.count("still") == 1


def test_a_heat_map_comes_with_its_scale(plain: MultigridWorld) -> None:
    assert {"0", "0.5", "1"} <= set(texts(plain, Overlay(goal_values=[None] * 8)))
    assert "0.5" not in texts(plain, Overlay(pursued={0: 0}))


def test_a_name_without_room_is_left_to_the_legend() -> None:
    world = world_from_text(NAMED.replace("home", "where the heart is"))
    found = texts(world, Overlay(goal_values=[0.25, 0.75]))
    assert "B where the heart is" not in found
    assert {"B", "B: where the heart is"} <= set(found)


def test_the_goal_that_is_pursued_is_marked_outside_the_colour_scale() -> None:
    world = world_from_text(NAMED)
    found = texts(world, Overlay(pursued={0: 1}))
    assert {"goals of human 0 (yellow)", "A: meadow", "B: home (pursued)"} <= set(found)
    assert not {"V", "1.00", "1.000", "0.000"} & set(found)
    image = picture(world, overlay=Overlay(pursued={0: 1}))[TITLE_HEIGHT:]
    other = picture(world, overlay=Overlay(pursued={0: 0}))[TITLE_HEIGHT:]
    dark = [(tile(each, 1, 0).sum(-1) < 300).sum() for each in (image, other)]
    assert dark[1] > dark[0] + 100


def test_agents_are_listed_in_order_with_the_action_they_take(plain: MultigridWorld) -> None:
    policies = {agent: [0.25] * 4 for agent in (2, 1, 0)}
    found = texts(plain, Overlay(policies=policies, actions={0: 3, 1: 0, 2: None}))
    names = [spec.name for spec in plain.spec.agents]
    headings = [text for text in found if text.startswith(tuple(names))]
    assert headings == [f"{names[0]}: forward", f"{names[1]}: still", names[2]]


def test_what_is_over_keeps_its_place_and_shows_no_numbers(plain: MultigridWorld) -> None:
    during = Overlay(goal_values=[0.5] * 8, policies={1: [0.25] * 4}, actions={0: 1, 1: 2, 2: 0})
    after = Overlay(goal_values=[None] * 8, policies={1: ()}, actions=dict.fromkeys(range(3)))
    pictures = [picture(plain, overlay=overlay) for overlay in (during, after)]
    assert pictures[0].shape == pictures[1].shape
    assert not {"0.000", ".00"} & set(texts(plain, after))


@pytest.mark.parametrize("actions", [{}, {0: 1, 1: 2, 2: 0}])
@pytest.mark.parametrize("name", ["multigrid/two_robots", "bushworld/two_robots"])
def test_lists_of_actions_stand_in_one_row_or_column(name: str, actions: dict[int, int]) -> None:
    world = build(WorldModelRef.model_validate({"name": name}))
    spec = world.spec
    policies = {robot: [1 / spec.num_actions[robot]] * spec.num_actions[robot] for robot in (0, 1)}
    overlay = Overlay(goal_values=[0.5] * len(spec.goals), policies=policies, actions=actions)
    root = ElementTree.fromstring(world.render_svg(world.initial_state(), overlay))
    headings = [each for each in root.iter() if (each.text or "").startswith("robot ")]
    spots = [[each.get(axis) for each in headings] for axis in "xy"]
    assert len(headings) == 2
    assert sorted(len(set(places)) for places in spots) == [1, 2]


def test_frames_of_an_animation_have_half_the_size(plain: MultigridWorld) -> None:
    overlay = Overlay(goal_values=[0.5] * 8, policies=dict.fromkeys(range(3), ()))
    still = plain.render(plain.initial_state(), overlay)
    frame = plain.render(plain.initial_state(), replace(overlay, actions=dict.fromkeys(range(3))))
    assert still.shape == (2 * frame.shape[0], 2 * frame.shape[1], 3)


@pytest.mark.parametrize("name", ["two_robots", "asymmetric_start", "chambers", "kill_button"])
def test_little_of_a_picture_is_blank(name: str) -> None:
    world = build(WorldModelRef.model_validate({"name": f"multigrid/{name}"}))
    assert isinstance(world, MultigridWorld)
    spec = world.spec
    overlay = Overlay(
        goal_values=[0.5] * len(spec.goals),
        policies={robot: [1 / n] * n for robot in spec.robots for n in [spec.num_actions[robot]]},
        actions=dict.fromkeys(range(len(spec.agents)), 0),
        caption="t = 0",
    )
    image = world.render(world.initial_state(), overlay, tile_size=48)
    # Squares of 48 pixels without any ink, gaps between lines of text not counted.
    rows, columns = (size // 48 for size in image.shape[:2])
    squares = image[: rows * 48, : columns * 48].reshape(rows, 48, columns, 48, 3)
    assert (squares == 255).all((1, 3, 4)).mean() < 0.2


def test_a_picture_as_svg_has_the_size_and_colours_of_the_pixels(plain: MultigridWorld) -> None:
    overlay = Overlay(goal_values=[0.5] * 8, caption="<all> & more")
    state = plain.initial_state()
    root = ElementTree.fromstring(plain.render_svg(state, overlay))
    height, width = plain.render(state, overlay).shape[:2]
    assert (int(root.get("width", "")), int(root.get("height", ""))) == (width, height)
    assert "<all> & more" in list(root.itertext())
    assert "#{:02x}{:02x}{:02x}".format(*heat_colour(0.5)) in {each.get("fill") for each in root}


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        (Overlay(goal_values=[0.5]), "has 1 numbers; .* has 8 goals"),
        (Overlay(goal_values=[0.5] * 7 + [1.5]), r"goal \(1,2\)-\(2,2\) is 1.5, not in"),
        (Overlay(goal_values=[float("nan")] * 8), "nan"),
        (Overlay(goal_values=[0.5] * 8, human=1), r"overlay.human is 1; humans are \[0, 2\]"),
        (Overlay(policies={3: [1.0, 0.0, 0.0, 0.0]}), "names agent 3; there are 3"),
        (Overlay(actions={1: 4}), r"overlay.actions\[1\] is 4; .* has 4 actions"),
        (Overlay(pursued={0: 7}), r"overlay.pursued\[0\] is 7"),
        (Overlay(policies={1: [1.0]}), r"each of 4 actions \(still, left, right, forward\)"),
        (Overlay(policies={1: [2.0, 0.0, 0.0, 0.0]}), "probability"),
    ],
)
def test_an_overlay_that_does_not_fit_is_refused(
    plain: MultigridWorld, overlay: Overlay, message: str
) -> None:
    with pytest.raises(WorldError, match=message):
        picture(plain, overlay=overlay)


def test_goal_values_need_a_human() -> None:
    world = world_from_text("map: 'Ae ..'")
    with pytest.raises(WorldError, match="no humans"):
        picture(world, overlay=Overlay(goal_values=[]))


@pytest.mark.parametrize("size", [7, 257])
def test_a_tile_size_out_of_range_is_refused(plain: MultigridWorld, size: int) -> None:
    with pytest.raises(ValueError, match="8 to 256"):
        plain.render(plain.initial_state(), tile_size=size)


@pytest.mark.parametrize("size", [8, 17, 48])
def test_any_tile_size_in_range_works_with_every_overlay(plain: MultigridWorld, size: int) -> None:
    overlay = Overlay(goal_values=[0.5] * 8, policies={1: [0.25] * 4}, caption="all")
    image = plain.render(plain.initial_state(), overlay, tile_size=size)
    assert image.shape[1] >= 5 * size
