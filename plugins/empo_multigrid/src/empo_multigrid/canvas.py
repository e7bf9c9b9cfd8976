"""Drawing inside one tile of a picture, in units of the tile, whatever its size in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PIL import Image, ImageDraw

RGB = tuple[int, int, int]
Point = tuple[float, float]

INK: Final[RGB] = (38, 42, 51)
PAPER: Final[RGB] = (255, 255, 255)
GROUND: Final[RGB] = (248, 247, 243)
GRID: Final[RGB] = (228, 226, 219)
MUTED: Final[RGB] = (112, 117, 128)
# By index in ``layout.COLOURS``. Softer than the pure colours, apart in hue and in lightness.
AGENT_RGB: Final[tuple[RGB, ...]] = (
    (221, 60, 64),
    (46, 158, 91),
    (52, 99, 219),
    (136, 72, 190),
    (247, 190, 22),
    (126, 133, 146),
    (146, 98, 56),
)


def blend(first: RGB, second: RGB, share: float) -> RGB:
    """The colour that lies ``share`` of the way from one colour to another."""
    mixed = [round(a + (b - a) * share) for a, b in zip(first, second, strict=True)]
    return mixed[0], mixed[1], mixed[2]


def text_on(background: RGB) -> RGB:
    """Ink or paper, whichever can be read on a background."""
    red, green, blue = background
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


class Pen:
    """Draws into one square of an image; (0, 0) is its top left corner, (1, 1) its bottom right.

    Args:
        image: The image that is drawn into.
        left: Column of the square's left edge, in pixels.
        top: Row of the square's top edge.
        size: Pixels per side of the square.
        turn: Quarter turns clockwise about the centre, applied to all points.
    """

    def __init__(
        self, image: Image.Image, left: float, top: float, size: float, turn: int = 0
    ) -> None:
        self._image = image
        # Mode RGBA on an RGB image blends what is drawn with what is there.
        self._draw = ImageDraw.Draw(image, "RGBA")
        self._left = left
        self._top = top
        self._size = size
        self._turn = turn % 4

    def turned(self, turn: int) -> Pen:
        """A pen for the same square, turned clockwise by quarter turns."""
        return Pen(self._image, self._left, self._top, self._size, self._turn + turn)

    def inset(self, x: float, y: float, size: float) -> Pen:
        """A pen for a smaller square whose top left corner is at (x, y)."""
        left, top = self._left + x * self._size, self._top + y * self._size
        return Pen(self._image, left, top, size * self._size, self._turn)

    def polygon(self, points: Sequence[Point], fill: RGB, alpha: float = 1.0) -> None:
        """A filled polygon."""
        self._draw.polygon([self._at(point) for point in points], fill=_rgba(fill, alpha))

    def line(
        self, points: Sequence[Point], colour: RGB, width: float = 0.05, alpha: float = 1.0
    ) -> None:
        """Connected straight lines with round ends."""
        pixels = [self._at(point) for point in points]
        thick = max(1, round(width * self._size))
        ink = _rgba(colour, alpha)
        self._draw.line(pixels, fill=ink, width=thick, joint="curve")
        if alpha == 1:  # Overlapping translucent ends would show as dark dots.
            for x, y in (pixels[0], pixels[-1]):
                radius = thick / 2
                self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)

    def outline(self, points: Sequence[Point], colour: RGB, width: float = 0.05) -> None:
        """The closed border of a polygon."""
        self.line([*points, points[0], points[1]], colour, width)

    def circle(self, centre: Point, radius: float, fill: RGB, alpha: float = 1.0) -> None:
        """A filled circle."""
        x, y = self._at(centre)
        size = radius * self._size
        self._draw.ellipse((x - size, y - size, x + size, y + size), fill=_rgba(fill, alpha))

    def ring(self, centre: Point, radius: float, colour: RGB, width: float = 0.06) -> None:
        """The border of a circle, drawn inside ``radius``."""
        x, y = self._at(centre)
        size = radius * self._size
        box = (x - size, y - size, x + size, y + size)
        self._draw.ellipse(box, outline=_rgba(colour, 1), width=max(1, round(width * self._size)))

    def rect(
        self,
        first: Point,
        second: Point,
        fill: RGB,
        *,
        radius: float = 0.0,
        alpha: float = 1.0,
    ) -> None:
        """A filled rectangle between two opposite corners."""
        (x1, y1), (x2, y2) = self._at(first), self._at(second)
        left, top = min(x1, x2), min(y1, y2)
        # Pillow includes the far edge; what is thinner than a pixel still gets one.
        box = (left, top, max(left, x1 - 1, x2 - 1), max(top, y1 - 1, y2 - 1))
        self._draw.rounded_rectangle(box, radius * self._size, fill=_rgba(fill, alpha))

    def dashes(
        self, start: Point, end: Point, colour: RGB, width: float = 0.05, alpha: float = 1.0
    ) -> None:
        """A dashed line that starts and ends with a dash."""
        length = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
        count = max(1, round(length / 0.24))
        step = 1 / (2 * count - 1)
        for dash in range(count):
            ends = [(2 * dash + offset) * step for offset in (0, 1)]
            points = [
                (start[0] + (end[0] - start[0]) * t, start[1] + (end[1] - start[1]) * t)
                for t in ends
            ]
            self._draw.line(
                [self._at(point) for point in points],
                fill=_rgba(colour, alpha),
                width=max(1, round(width * self._size)),
            )

    def _at(self, point: Point) -> Point:
        x, y = point[0] - 0.5, point[1] - 0.5
        for _ in range(self._turn):
            x, y = -y, x
        return self._left + (x + 0.5) * self._size, self._top + (y + 0.5) * self._size


def _rgba(colour: RGB, alpha: float) -> tuple[int, int, int, int]:
    return (*colour, round(255 * alpha))
