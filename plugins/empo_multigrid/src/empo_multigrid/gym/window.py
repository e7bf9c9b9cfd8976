"""A window that shows an episode while it is played; needs the extra ``window``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnasium.error import DependencyNotInstalled

from empo_pictures.pictures import Frame

if TYPE_CHECKING:
    import pygame


class Window:
    """The one window that pygame has, opened when the first picture is shown."""

    def __init__(self, title: str, fps: int) -> None:
        try:
            import pygame
        except ModuleNotFoundError as error:
            raise DependencyNotInstalled(
                f"render_mode 'human' needs pygame ({error}): pip install 'empo-multigrid[window]'"
            ) from error
        self._pygame = pygame
        self._title, self._fps = title, fps
        self._clock = pygame.time.Clock()
        self._screen: pygame.Surface | None = None

    def show(self, frame: Frame) -> None:
        """Show a picture, as long after the one before as the frame rate says."""
        display = self._pygame.display
        if self._screen is None or not display.get_init():
            display.init()
            display.set_caption(self._title)
            self._screen = display.set_mode((frame.shape[1], frame.shape[0]))
        self._screen.blit(self._pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        self._pygame.event.pump()  # Or the system takes the window for one that hangs.
        display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._screen is not None:
            self._pygame.display.quit()
        self._screen = None
