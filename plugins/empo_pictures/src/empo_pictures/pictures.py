"""Pictures and animations of runs, written with Pillow; nothing here needs a window.

Pillow is imported on first use, so importing this module costs nothing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike

from empo_core.runs.atomic import refused, write_file
from empo_core.types import Overlay, WorldSpec

if TYPE_CHECKING:
    from PIL import Image

# Players show GIF frames shorter than two hundredths of a second five times too long.
MAX_GIF_FPS = 50
EPISODE_FPS = 2
PAUSE_MS = 1500
"""How much longer than others the last frame of a GIF is shown."""

# Underscores: several frames in one call need not agree before ``check_frames`` says so.
Frame = UInt8[np.ndarray, "_height _width 3"]


def write_png(frame: Frame, path: str | Path) -> Path:
    """Path of the picture that was written.

    Args:
        frame: An RGB picture.
        path: File to write or to replace; ends in ``.png``. Its folder is made if missing.

    Raises:
        ValueError: if the frame is no RGB picture, or the path has another suffix.
        StorageError: if the file cannot be written.
    """
    return replace_file(_with_suffix(path, ".png"), png_bytes(frame))


def png_bytes(frame: Frame) -> bytes:
    """The contents of a PNG file.

    Raises:
        ValueError: if the frame is no RGB picture.
    """
    from PIL import Image

    check_frames([frame])
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return buffer.getvalue()


def write_gif(frames: Iterable[Frame], path: str | Path, fps: float = 4.0) -> Path:
    """Path of the endlessly repeating animation that was written; its last frame stays longer.

    Args:
        frames: RGB pictures of one size, at least one.
        path: File to write or to replace; ends in ``.gif``. Its folder is made if missing.
        fps: Frames per second, at most 50; GIF rounds a frame to hundredths of a second.

    Raises:
        ValueError: if there are no frames, they differ in size or are no RGB pictures, ``fps`` is
            out of range, or the path has another suffix.
        StorageError: if the file cannot be written.
    """
    from PIL import Image

    path = _with_suffix(path, ".gif")
    pictures = check_frames(frames)
    check_fps(fps, MAX_GIF_FPS)
    palette = _shared_palette(pictures)
    images = [
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in pictures
    ]
    duration = 10 * round(100 / fps)
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=[duration] * (len(images) - 1) + [duration + PAUSE_MS],
        loop=0,
        optimize=True,
    )
    return replace_file(path, buffer.getvalue())


def check_frames(frames: Iterable[Frame]) -> list[Frame]:
    """The frames as a list, at least one, RGB, all of one size.

    Raises:
        ValueError: if there are no frames, or one has another shape, dtype or size; the message
            names the frame.
    """
    pictures = list(frames)
    if not pictures:
        raise ValueError("there are no frames to write: render at least one state first")
    for number, picture in enumerate(pictures):
        shape, dtype = getattr(picture, "shape", None), getattr(picture, "dtype", None)
        if shape is None or len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
            form = type(picture).__name__ if shape is None else f"{dtype} {list(shape)}"
            raise ValueError(f"frame {number} is {form}, not uint8 [height, width, 3]")
        if shape != pictures[0].shape:
            first = " x ".join(str(size) for size in pictures[0].shape[:2])
            this = " x ".join(str(size) for size in shape[:2])
            raise ValueError(
                f"frame {number} has {this} pixels but frame 0 has {first}: "
                "draw every frame with the same tile size and the same kind of overlay"
            )
    return pictures


def check_fps(fps: float, highest: float = math.inf) -> None:
    """Refuse a frame rate that cannot be used.

    Raises:
        ValueError: if the frame rate is not a positive number, or above ``highest``.
    """
    if not (math.isfinite(fps) and 0 < fps <= highest):
        limit = "" if math.isinf(highest) else f" and at most {highest:g}"
        raise ValueError(f"fps is {fps}: it must be a number above 0{limit}")


def robot_policies(spec: WorldSpec, joint: ArrayLike) -> dict[int, list[float]]:
    """The policy of each robot in a joint one, in which the first robot's action is fastest."""
    grid = np.reshape(np.asarray(joint), [spec.num_actions[r] for r in spec.robots], order="F")
    other_axes = [tuple({*range(grid.ndim)} - {axis}) for axis in range(grid.ndim)]
    return {r: grid.sum(axes).tolist() for r, axes in zip(spec.robots, other_axes, strict=True)}


def episode_overlay(
    spec: WorldSpec,
    goals: Mapping[int, int],
    caption: str,
    actions: Sequence[int] | None = None,
    robots: ArrayLike = (),
    others: Mapping[int, Sequence[float]] = {},
) -> Overlay:
    """The overlay of a state in an episode.

    Args:
        spec: The world's specification.
        goals: The goal that each human (agent index) pursues.
        caption: A line of text.
        actions: The joint action that follows; None at the end, where there are no policies.
        robots: The robots' joint policy.
        others: Policies of other agents.
    """
    policies: dict[int, Sequence[float]] = dict.fromkeys(range(len(spec.agents)), ())
    chosen: dict[int, int | None] = dict.fromkeys(policies)
    if actions is not None:
        chosen = dict(enumerate(actions))
        policies |= {**robot_policies(spec, robots), **others}
    return Overlay(
        titles={human: f"wants {spec.goals[goal].name}" for human, goal in goals.items()},
        pursued=goals,
        policies=policies,
        actions=chosen,
        caption=caption,
    )


def replace_file(path: Path, content: bytes) -> Path:
    """``path``, after its content was replaced at once or not at all.

    Raises:
        StorageError: if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(path, error) from error
    write_file(path, content)
    return path


def _with_suffix(path: str | Path, suffix: str) -> Path:
    path = Path(path)
    if path.suffix.lower() != suffix:
        raise ValueError(f"{path} does not end in {suffix}")
    return path


def _shared_palette(pictures: list[Frame]) -> Image.Image:
    """A palette for all frames: one per frame would flicker and cost more."""
    from PIL import Image

    # A sample over the whole animation has all its colours at bounded cost.
    step, stride = max(1, len(pictures) // 16), max(1, min(pictures[0].shape[:2]) // 200)
    sample = np.concatenate([picture[::stride, ::stride] for picture in pictures[::step]], axis=0)
    # One index is left for pixels that are as in the frame before, which makes files smaller.
    return Image.fromarray(sample).quantize(255, method=Image.Quantize.FASTOCTREE)
