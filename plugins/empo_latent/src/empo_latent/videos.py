"""Pictures of evaluation episodes, which are never a reason to stop a run."""

from __future__ import annotations

import functools
import logging

import numpy as np
from jaxtyping import Bool

from empo_latent.environments.task_vector import TaskVector
from empo_latent.params import Actor
from empo_learning.evaluation.videos import MAX_FRAMES, USUAL_FPS, Video, shrunk
from empo_pictures.pictures import MAX_GIF_FPS, Frame

log = logging.getLogger(__name__)


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
