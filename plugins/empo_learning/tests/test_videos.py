"""Films of episodes: short, small, named, and nothing that stops a run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from empo_core.protocols.environments import TimeStep
from empo_learning.evaluation.videos import (
    MAX_BYTES,
    MAX_FRAMES,
    MAX_PIXELS,
    EpisodeCamera,
    Video,
    save_videos,
    shrunk,
    warn_no_videos,
)


def noise(count: int, size: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (size, size, 3)).astype(np.uint8) for _ in range(count)]


def video(frames: list[np.ndarray], task: str = "cup-catch", total: float = 12.345) -> Video:
    return Video(task, "planner", total, frames, fps=10.0)


def test_a_file_is_named_by_task_actor_and_return(tmp_path: Path) -> None:
    videos = [video(noise(2, 8)), video(noise(3, 8)), video(noise(2, 8), "a/b: c", -0.06)]
    paths = save_videos(videos, tmp_path / "videos")
    assert [path.name for path in paths] == [
        "cup-catch_planner_return_12.3.gif",
        "cup-catch_planner_return_12.3_2.gif",
        "a_b_c_planner_return_-0.1.gif",
    ]
    with Image.open(paths[1]) as picture:
        assert (picture.n_frames, picture.info["duration"]) == (3, 100)


def test_a_film_that_is_too_large_keeps_its_length_with_fewer_pictures(tmp_path: Path) -> None:
    frames = noise(16, 16)
    (whole,) = save_videos([video(frames)], tmp_path / "whole")
    assert whole.stat().st_size <= MAX_BYTES
    most = whole.stat().st_size // 3
    (path,) = save_videos([video(frames)], tmp_path / "small", max_bytes=most)
    assert path.stat().st_size <= most
    with Image.open(path) as picture:
        count, duration = picture.n_frames, picture.info["duration"]
    assert 1 < count < 16
    assert count * duration == 1600


def test_large_pictures_are_shrunk_to_their_means() -> None:
    frame = np.zeros((4, 2 * MAX_PIXELS + 1, 3), np.uint8)
    frame[:, ::3] = 90
    small = shrunk(frame)
    assert small.shape == (1, (2 * MAX_PIXELS + 1) // 3, 3)
    assert (small == 30).all()


def test_small_pictures_are_copied() -> None:
    frame = np.zeros((4, 5, 3), np.uint8)
    kept = shrunk(frame)
    frame[:] = 9
    assert kept.shape == (4, 5, 3)
    assert not kept.any()


def test_no_films_leave_no_folder(tmp_path: Path) -> None:
    assert save_videos([], tmp_path / "videos") == []
    assert not (tmp_path / "videos").exists()


def test_a_reason_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_no_videos.cache_clear()
    with caplog.at_level(logging.WARNING):
        for reason in ("no display", "no display", "no driver"):
            warn_no_videos(reason)
    assert [record.getMessage().count("no display") for record in caplog.records] == [1, 0]
    warn_no_videos.cache_clear()


def time_step(reward: float, starts: bool) -> TimeStep:
    nothing, no = np.zeros((1, 1), np.float32), np.zeros(1, bool)
    return TimeStep(
        block=0,
        observation=nothing,
        reward=np.array([reward], np.float32),
        terminated=no,
        truncated=no,
        starts=np.array([starts]),
        acts=~no,
        final_row=np.zeros(0, np.int64),
        final_observation=nothing[:0],
    )


def test_a_film_that_gets_too_long_keeps_every_second_picture() -> None:
    drawn = iter(range(10_000))
    camera = EpisodeCamera(
        lambda: np.full((2, 2, 3), next(drawn) // 2, np.uint8),
        episodes=1,
        name="Long-v0",
        actor="policy",
        fps=20.0,
    )
    for step in range(2 * MAX_FRAMES):
        camera.see(time_step(1.0, starts=step == 0), np.array([step > 0]))
    camera.end()
    (film,) = camera.videos
    assert (len(film.frames), film.fps, film.total) == (MAX_FRAMES, 10.0, 2 * MAX_FRAMES - 1)
    assert [int(frame[0, 0, 0]) for frame in film.frames[:100]] == list(range(100))
