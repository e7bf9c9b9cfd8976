import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image

from empo_core.errors import StorageError
from empo_core.types import Overlay
from empo_multigrid.layout import DIRECTION
from empo_multigrid.video import trajectory_frames, write_video
from empo_multigrid.world import MultigridWorld, world_from_text


@pytest.fixture(scope="module")
def world() -> MultigridWorld:
    return world_from_text("map: 'Ay .. Ae'\npossible_goals: ['0,0, 2,0']")


@pytest.fixture(scope="module")
def states(world: MultigridWorld) -> torch.Tensor:
    rows = world.initial_state().repeat(4, 1)
    rows[:, DIRECTION] = torch.arange(4)
    return rows


def frames_of(path: Path, height: int, width: int) -> np.ndarray:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path)]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    stream = subprocess.run([*command, *raw], capture_output=True, check=True).stdout
    return np.frombuffer(stream, np.uint8).reshape(-1, height, width, 3)


def test_a_trajectory_has_a_frame_per_state(world: MultigridWorld, states: torch.Tensor) -> None:
    frames = trajectory_frames(world, states, tile_size=16)
    assert len(frames) == 4
    for state, frame in zip(states, frames, strict=True):
        np.testing.assert_array_equal(frame, world.render(state, tile_size=16))


def test_frames_with_different_overlays_have_one_size(
    world: MultigridWorld, states: torch.Tensor
) -> None:
    overlays = [None, Overlay(caption="hello"), Overlay(goal_values=[0.5]), None]
    frames = trajectory_frames(world, states, overlays, tile_size=40)
    assert len({frame.shape for frame in frames}) == 1
    assert frames[0].shape[1] > 3 * 40
    assert (frames[0][40:] == 255).all()
    np.testing.assert_array_equal(frames[3][:40, :120], world.render(states[3], tile_size=40))


def test_a_missing_overlay_is_an_error(world: MultigridWorld, states: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="1 overlays for 4 states"):
        trajectory_frames(world, states, [None])


def test_an_mp4_has_every_frame_in_order(
    world: MultigridWorld, states: torch.Tensor, tmp_path: Path
) -> None:
    frames = trajectory_frames(world, states, tile_size=32)
    found = frames_of(write_video(frames, tmp_path / "new" / "run.mp4", fps=4.0), 32, 96)
    assert len(found) == 4
    for expected, frame in zip(frames, found, strict=True):
        # The codec is lossy; different directions differ by far more than this.
        assert np.abs(frame.astype(int) - expected).mean() < 6
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.mp4"]


def test_an_mp4_of_odd_size_is_padded(tmp_path: Path) -> None:
    frame = np.full((33, 47, 3), 90, dtype=np.uint8)
    found = frames_of(write_video([frame, frame], tmp_path / "run.mp4"), 34, 48)
    assert found.shape == (2, 34, 48, 3)


def test_a_gif_has_every_frame(world: MultigridWorld, states: torch.Tensor, tmp_path: Path) -> None:
    path = write_video(trajectory_frames(world, states), tmp_path / "run.GIF", fps=10.0)
    with Image.open(path) as image:
        assert image.n_frames == 4
        assert image.info["duration"] == 100
        assert image.size == (3 * 48, 48)


@pytest.mark.parametrize("name", ["run.gif", "run.mp4"])
def test_no_frames_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="frames"):
        write_video([], tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run.gif", "run.mp4"])
def test_frames_of_different_sizes_are_refused(tmp_path: Path, name: str) -> None:
    small, large = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 10, 3), np.uint8)
    with pytest.raises(ValueError, match=r"frame 1 .*8 x 10 .*frame 0 .*8 x 8"):
        write_video([small, large], tmp_path / name)


@pytest.mark.parametrize("name", ["run.gif", "run.mp4"])
@pytest.mark.parametrize("fps", [0.0, -2.0, float("nan")])
def test_a_senseless_frame_rate_is_refused(tmp_path: Path, name: str, fps: float) -> None:
    with pytest.raises(ValueError, match=f"fps is {fps}"):
        write_video([np.zeros((8, 8, 3), np.uint8)], tmp_path / name, fps)


@pytest.mark.parametrize("name", ["run.avi", "run"])
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"\.gif or \.mp4"):
        write_video([np.zeros((8, 8, 3), np.uint8)], tmp_path / name)


@pytest.mark.parametrize("name", ["run.gif", "run.mp4"])
def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="cannot"):
        write_video([np.zeros((8, 8, 3), np.uint8)], tmp_path / "file" / name)
