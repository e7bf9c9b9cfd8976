from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from empo_core.errors import StorageError
from empo_core.types import AgentSpec, WorldSpec
from empo_pictures.pictures import PAUSE_MS, robot_policies, write_gif, write_png


def frame(colour: tuple[int, int, int], height: int = 6, width: int = 8) -> np.ndarray:
    return np.full((height, width, 3), colour, dtype=np.uint8)


RED, GREEN, BLUE = frame((255, 0, 0)), frame((0, 255, 0)), frame((0, 0, 255))


def test_a_png_has_the_pixels_it_was_given(tmp_path: Path) -> None:
    picture = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    path = write_png(picture, tmp_path / "new" / "world.png")
    np.testing.assert_array_equal(np.asarray(Image.open(path)), picture)


def test_a_gif_has_every_frame_in_order_at_the_frame_rate(tmp_path: Path) -> None:
    path = write_gif([RED, GREEN, BLUE], tmp_path / "run.gif", fps=5)
    with Image.open(path) as image:
        assert image.n_frames == 3
        for number, expected in enumerate([RED, GREEN, BLUE]):
            image.seek(number)
            assert image.info["duration"] == (200 if number < 2 else 200 + PAUSE_MS)
            np.testing.assert_allclose(np.asarray(image.convert("RGB")), expected, atol=8)


def test_a_gif_replaces_an_older_one_and_leaves_no_draft_behind(tmp_path: Path) -> None:
    write_gif([RED], tmp_path / "run.gif")
    write_gif(iter([RED, GREEN]), tmp_path / "run.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["run.gif"]
    with Image.open(tmp_path / "run.gif") as image:
        assert image.n_frames == 2


def test_no_frames_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frames"):
        write_gif([], tmp_path / "run.gif")


def test_frames_of_different_sizes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"frame 1 .*6 x 9 .*frame 0 .*6 x 8"):
        write_gif([RED, frame((0, 0, 0), width=9)], tmp_path / "run.gif")


@pytest.mark.parametrize(
    ("wrong", "form"),
    [
        (np.zeros((4, 4, 3)), r"float64 \[4, 4, 3\]|float64 \(4, 4, 3\)"),
        (np.zeros((4, 4), dtype=np.uint8), r"uint8 [\[(]4, 4[\])]"),
        (np.zeros((0, 4, 3), dtype=np.uint8), r"uint8 [\[(]0, 4, 3[\])]"),
        ("a picture", "str"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_no_rgb_picture_is_refused(tmp_path: Path, wrong: object, form: str) -> None:
    with pytest.raises(ValueError, match=rf"frame 0 is {form}"):
        write_png(wrong, tmp_path / "world.png")  # type: ignore[arg-type]


@pytest.mark.parametrize("fps", [0, -1.0, float("nan"), float("inf"), 51])
def test_a_frame_rate_that_gif_cannot_show_is_refused(tmp_path: Path, fps: float) -> None:
    with pytest.raises(ValueError, match=r"above 0 .*50"):
        write_gif([RED], tmp_path / "run.gif", fps=fps)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"world\.jpg"):
        write_png(RED, tmp_path / "world.jpg")


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"world\.png: "):
        write_png(RED, tmp_path / "file" / "world.png")


def test_what_stays_the_same_in_an_animation_costs_next_to_nothing(tmp_path: Path) -> None:
    shades = np.random.default_rng(0).integers(0, 8, (120, 160, 1)) * 32
    still = np.broadcast_to(shades, (120, 160, 3)).astype(np.uint8)
    frames = [still.copy() for _ in range(8)]
    for number, frame in enumerate(frames):
        # Two corners, so that the rectangle around what changes is the whole picture.
        frame[number, :8] = frame[-1 - number, -8:] = 255
    sizes = [write_gif(frames[:n], tmp_path / f"{n}.gif").stat().st_size for n in (1, 8)]
    assert sizes[1] < 1.7 * sizes[0]


def test_the_policy_of_each_robot_is_its_share_of_the_joint_one() -> None:
    agents = tuple(
        AgentSpec(name=name, role=role, actions=tuple("xyz"[:count]))
        for name, role, count in (("a", "robot", 2), ("h", "human", 2), ("b", "robot", 3))
    )
    spec = WorldSpec(
        name="w", agents=agents, goals=(), state_words=1, state_dtype=torch.int64, horizon=1
    )
    first, second = np.array([0.2, 0.8]), np.array([0.5, 0.4, 0.1])
    policies = robot_policies(spec, np.outer(second, first).ravel())
    assert policies.keys() == {0, 2}
    np.testing.assert_allclose(policies[0], first)
    np.testing.assert_allclose(policies[2], second)
