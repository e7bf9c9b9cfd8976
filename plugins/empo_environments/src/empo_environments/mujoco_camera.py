"""Pictures of MuJoCo models, taken without a window.

``dm_control`` decides when it is imported how it draws, once for the process. Here a context is
made when the first picture is taken: a run that never takes one never looks for a driver.
"""

from __future__ import annotations

import importlib
import os
import platform

import mujoco  # type: ignore[import-untyped]
import numpy as np
from jaxtyping import UInt8

from empo_core.errors import ConfigError

MOST_GEOMS = 2000
"""Shapes in a picture; those of the suite have some hundreds at most."""
COSTLY = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
"""What pictures without shadows leave out."""
OFF = ("off", "disable", "disabled", "false", "0")


class Camera:
    """Draws one model; used from one thread, as OpenGL wants it."""

    def __init__(self, model: mujoco.MjModel, index: int) -> None:
        """Get ready to draw.

        Args:
            model: What is seen; outlives the camera.
            index: Which of its cameras looks; the free one where it has no such.

        Raises:
            ConfigError: if OpenGL does not work here; the message says what to do.
        """
        backend = _backend()
        largest = (model.vis.global_.offwidth, model.vis.global_.offheight)
        try:
            self._gl = importlib.import_module(f"mujoco.{backend}").GLContext(*largest)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except Exception as error:
            raise ConfigError(
                f"MuJoCo cannot draw with {backend!r} ({type(error).__name__}: {error}); set the "
                "environment variable MUJOCO_GL to what this machine has: egl (drivers without a "
                "display), glfw (a display) or osmesa (software), or do without pictures and videos"
            ) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._model, self._largest = model, largest
        self._scene = mujoco.MjvScene(model, MOST_GEOMS)
        self._option, self._view = mujoco.MjvOption(), mujoco.MjvCamera()
        if index < model.ncam:
            self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, index
        else:
            mujoco.mjv_defaultFreeCamera(model, self._view)

    def picture(
        self, data: mujoco.MjData, height: int, width: int, *, shadows: bool = True
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The current frame, with shadows and reflections or without.

        Raises:
            ConfigError: if the model does not allow for so large pictures.
        """
        if width > self._largest[0] or height > self._largest[1]:
            raise ConfigError(
                f"pictures of {height} by {width} are asked for, and the task draws at most "
                f"{self._largest[1]} by {self._largest[0]}; set picture_size to less"
            )
        for flag in COSTLY:
            self._scene.flags[flag.value] = shadows
        self._gl.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._view, everything, self._scene
        )
        frame = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(frame, self._scene, self._context)
        pixels = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, frame, self._context)
        return pixels[::-1]  # OpenGL counts rows from below.

    def close(self) -> None:
        """Free what the driver holds."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()


def _backend() -> str:
    """Which of MuJoCo's modules draws: as the user says, or what does without a display."""
    backend = os.environ.get("MUJOCO_GL", "").lower().strip()
    if backend in OFF:
        raise ConfigError(
            f"the environment variable MUJOCO_GL is {backend!r}, so MuJoCo draws nothing; unset "
            "it, or set it to egl, glfw or osmesa"
        )
    if backend in ("egl", "osmesa", "glfw", "cgl"):
        return backend
    return {"Linux": "egl", "Darwin": "cgl"}.get(platform.system(), "glfw")
