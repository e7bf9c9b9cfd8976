"""Animations of episodes in environments: small files, named by what the episode paid."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from PIL import Image

from empo_core.errors import ConfigError, EmpoError
from empo_core.protocols.environments import TimeStep
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
    actor: str
    total: float
    frames: Sequence[Frame]
    fps: float

    @property
    def name(self) -> str:
        """The name of its file, by task, actor and return."""
        return re.sub(r"[^\w.+-]+", "_", f"{self.task}_{self.actor}_return_{self.total:.1f}")


class EpisodeCamera:
    """Films the first episodes of one copy of an environment, whatever their lengths.

    Attributes:
        videos: Of the episodes that have ended.
    """

    def __init__(
        self,
        draw: Callable[[], Frame],
        *,
        episodes: int,
        name: str,
        actor: str,
        fps: float | None,
        agents: slice = slice(None),
        is_required: bool = True,
    ) -> None:
        """Prepare to film.

        Args:
            draw: Draws the environment as it stands.
            episodes: How many episodes are filmed.
            name: Name of the environment.
            actor: Who acts.
            fps: Its steps per second; None: ``USUAL_FPS``.
            agents: Its agents, among those of the time steps.
            is_required: Whether it is an error if no picture can be drawn; else a warning.
        """
        self._draw, self._left, self._fps = draw, episodes, fps or USUAL_FPS
        self._name, self._actor = name, actor
        self._agents, self._is_required = agents, is_required
        self._frames: list[Frame] = []
        self._step, self._stride, self._total = 0, 1, 0.0
        self.videos: list[Video] = []

    def see(self, time_step: TimeStep, acted: Bool[np.ndarray, " agent"]) -> None:
        """Film a time step of the copy, before it is answered.

        A film that gets too long keeps every second picture.

        Args:
            time_step: The time step, of all copies.
            acted: Which agents acted before.

        Raises:
            ConfigError: if no picture can be drawn, where that is required.
        """
        mine = self._agents
        took_step = acted[mine]
        self._total += float(time_step.reward[mine][took_step].sum()) / len(took_step)
        if bool((time_step.starts | ~time_step.acts)[mine].all()):  # All begin anew.
            self.end()
            self._frames, self._step, self._stride, self._total = [], 0, 1, 0.0
        if self._left and self._step % self._stride == 0:
            self._take()
        self._step += 1

    def end(self) -> None:
        """End the film of the episode that is going on, if it has taken a step.

        The mean return of the agents names it.
        """
        if self._left and self._step:
            self._left -= 1
            fps = min(max(self._fps / self._stride, 1.0), MAX_GIF_FPS)
            self.videos.append(Video(self._name, self._actor, self._total, self._frames, fps))

    def _take(self) -> None:
        """Draw a picture."""
        try:
            self._frames.append(shrunk(self._draw()))
        except Exception as error:  # Of whatever draws: a missing display, driver or render mode.
            if self._is_required and isinstance(error, EmpoError):
                raise
            reason = f"{type(error).__name__}: {error}"
            if self._is_required:
                raise ConfigError(f"{self._name} cannot be filmed: {reason}") from error
            warn_no_videos(reason)
            self._left = 0
        if len(self._frames) > MAX_FRAMES:
            self._frames, self._stride = self._frames[::2], 2 * self._stride


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
