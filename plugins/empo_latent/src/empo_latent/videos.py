"""Animations of evaluation episodes: small files, and never a reason to stop a run."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from PIL import Image

from empo_latent.environments.task_vector import TaskVector
from empo_latent.params import Actor
from empo_pictures.pictures import MAX_GIF_FPS, Frame, write_gif

log = logging.getLogger(__name__)

MAX_FRAMES = 250
"""Of a video. Without a GPU, a picture of a physics engine takes as long as many steps."""
MAX_PIXELS = 256
"""On either side of a picture; larger ones are shrunk."""
MAX_BYTES = 2_000_000
"""Of a file."""
USUAL_FPS = 30.0
"""Steps per second where the environment does not say."""


@dataclass(frozen=True, slots=True)
class Video:
    """Pictures of an episode.

    Attributes:
        task: Name of the task.
        actor: Who acted.
        total: The sum of rewards.
        frames: Every so many steps one picture.
        fps: Pictures per second, so that it runs as fast as the episode did.
    """

    task: str
    actor: Actor
    total: float
    frames: Sequence[Frame]
    fps: float

    @property
    def name(self) -> str:
        """The name of its file, by task, actor and return."""
        return re.sub(r"[^\w.+-]+", "_", f"{self.task}_{self.actor}_return_{self.total:.1f}")


class VideoRecorder:
    """Records the first episodes of each task, for as long as pictures can be taken.

    Attributes:
        videos: Of the episodes that were recorded to their end.
    """

    def __init__(self, vector: TaskVector, episodes: int, actor: Actor) -> None:
        """Record so many episodes of each task; a vector that is recorded has to render."""
        self._vector, self._actor = vector, actor
        lengths = vector.spec.episode_lengths
        self._left = [episodes] * len(lengths)
        self._frame_step = [-(-length // MAX_FRAMES) for length in lengths]
        self._frames: dict[int, list[Frame]] = {}
        self._step: dict[int, int] = {}
        self.videos: list[Video] = []

    def record(self, first: Bool[np.ndarray, " env"]) -> None:
        """Take a picture of what is being recorded, if it is time; episodes begin at ``first``."""
        for env in np.flatnonzero(first).tolist():
            task = self._vector.task_of[env]
            if self._left[task]:
                self._left[task] -= 1
                self._frames[env], self._step[env] = [], 0
        for env in list(self._frames):
            if self._frames and self._step[env] % self._frame_step[self._vector.task_of[env]] == 0:
                self._take(env)
            self._step[env] += 1

    def finish(self, env: int, total: float) -> None:
        """End the video of an environment, if there is one, whose episode paid so much."""
        frames = self._frames.pop(env, None)
        if frames:
            task = int(self._vector.task_of[env])
            name = self._vector.spec.tasks[task]
            rate = self._vector.rates[task] or USUAL_FPS
            fps = min(max(rate / self._frame_step[task], 1.0), MAX_GIF_FPS)
            self.videos.append(Video(name, self._actor, total, frames, fps))

    def _take(self, env: int) -> None:
        try:
            self._frames[env].append(shrunk(self._vector.render(env)))
        except Exception as error:  # Of whatever draws: a missing display, driver or render mode.
            warn_no_videos(f"{type(error).__name__}: {error}")
            self._frames.clear()
            self._left = [0] * len(self._left)


@functools.cache
def warn_no_videos(reason: str) -> None:
    """Say why there are no pictures; the same reason is not given twice."""
    log.warning("there will be no videos, because no picture can be drawn (%s)", reason)


def shrunk(frame: Frame) -> Frame:
    """The picture in a size that a video can have, each pixel the mean of a square of them."""
    side = -(-max(frame.shape[:2]) // MAX_PIXELS)
    if side == 1:
        return frame.copy()  # Whatever drew it may draw the next one in the same place.
    height, width = (length // side * side for length in frame.shape[:2])
    return np.asarray(Image.fromarray(frame[:height, :width]).reduce(side))


def save_videos(
    videos: Sequence[Video], directory: Path, *, max_bytes: int = MAX_BYTES
) -> list[Path]:
    """Write each video into a file; one that would be too large gets fewer pictures.

    Args:
        videos: Pictures; there may be several of one name.
        directory: Where they go; made if missing.
        max_bytes: More than that no file has, unless one picture is larger.

    Returns:
        Where they are.

    Raises:
        StorageError: if a file cannot be written.
    """
    paths: list[Path] = []
    for video in videos:
        path = directory / f"{video.name}.gif"
        number = 1
        while path in paths:
            number += 1
            path = directory / f"{video.name}_{number}.gif"
        frames, fps = list(video.frames), video.fps
        while write_gif(frames, path, fps).stat().st_size > max_bytes and len(frames) > 1:
            frames, fps = frames[::2], max(fps / 2, 1.0)
        paths.append(path)
    return paths
