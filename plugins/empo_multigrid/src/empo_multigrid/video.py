"""Animations of trajectories, as GIF or MP4."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.types import Overlay
from empo_pictures.pictures import Frame, check_fps, check_frames, write_gif

if TYPE_CHECKING:
    from empo_multigrid.world import MultigridWorld

SUFFIXES = (".gif", ".mp4")


def trajectory_frames(
    world: MultigridWorld,
    states: Int[Tensor, "time word"],
    overlays: Sequence[Overlay | None] | None = None,
    *,
    tile_size: int = 48,
) -> list[Frame]:
    """A picture per state, all of one size.

    Args:
        world: What draws them.
        states: The states of a trajectory in order.
        overlays: What to draw on top of each; None draws nothing.
        tile_size: Pixels per cell.

    Raises:
        ValueError: if there are not as many overlays as states.
        WorldError: if an overlay does not fit the world.
    """
    if overlays is None:
        overlays = [None] * len(states)
    if len(overlays) != len(states):
        raise ValueError(f"there are {len(overlays)} overlays for {len(states)} states")
    frames = [
        world.render(state, overlay, tile_size=tile_size)
        for state, overlay in zip(states, overlays, strict=True)
    ]
    # Overlays of several kinds give several sizes: a caption adds a line, a policy a panel.
    height = max((frame.shape[0] for frame in frames), default=0)
    width = max((frame.shape[1] for frame in frames), default=0)
    return [_padded(frame, height, width) for frame in frames]


def write_video(frames: Iterable[Frame], path: str | Path, fps: float = 4.0) -> Path:
    """Path of the animation that was written; the suffix chooses GIF or MP4 (H.264).

    Args:
        frames: RGB pictures of one size, at least one.
        path: File to write or to replace; ends in ``.gif`` or ``.mp4``.
        fps: Frames per second, for GIF at most 50.

    Raises:
        ValueError: if there are no frames, they differ in size or are no RGB pictures, ``fps`` is
            out of range, or the suffix is another one.
        StorageError: if the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".gif":
        return write_gif(frames, path, fps)
    if suffix != ".mp4":
        suffixes = " or ".join(SUFFIXES)
        raise ValueError(f"{path} has suffix {path.suffix!r}: name a file that ends in {suffixes}")
    pictures = check_frames(frames)
    check_fps(fps)
    # The codec halves the resolution of colours, so both sides must be even.
    height, width = (size + size % 2 for size in pictures[0].shape[:2])
    _write_mp4([_padded(picture, height, width) for picture in pictures], path, fps)
    return path


def _write_mp4(pictures: list[Frame], path: Path, fps: float) -> None:
    """Encode beside the target, then rename: a reader never sees half a file."""
    from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

    height, width = pictures[0].shape[:2]
    draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.mp4")
    # Not imageio's writer: it leaves pipes open and loses the encoder's error message.
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps}"]
    h264 = ["-an", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p"]
    command = [get_ffmpeg_exe(), "-v", "error", "-y", *raw, "-i", "-", *h264, str(draft)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stream = b"".join(picture.tobytes() for picture in pictures)
            done = subprocess.run(command, input=stream, capture_output=True, check=False)
            if done.returncode:
                reason = done.stderr.decode(errors="replace").strip()
                raise StorageError(f"cannot write {path}: the encoder failed: {reason}")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _padded(frame: Frame, height: int, width: int) -> Frame:
    """The frame with white added below and on the right."""
    missing = (0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0)
    return np.pad(frame, missing, constant_values=255)
