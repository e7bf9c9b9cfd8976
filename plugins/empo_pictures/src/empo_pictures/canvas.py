"""Drawing inside one square of a picture, in units of the square, as pixels or as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from empo_pictures.fonts import font, runs, text_width

RGB = tuple[int, int, int]
Point = tuple[float, float]

INK: Final[RGB] = (38, 42, 51)
PAPER: Final[RGB] = (255, 255, 255)
GROUND: Final[RGB] = (248, 247, 243)
GRID: Final[RGB] = (228, 226, 219)
MUTED: Final[RGB] = (112, 117, 128)
# Light to dark in one family of hues, readable with any colour vision and in grey.
_SCALE: Final[tuple[RGB, ...]] = (
    (244, 249, 243), (206, 236, 208), (138, 211, 192), (67, 162, 202), (12, 92, 158), (8, 48, 107),
)  # fmt: skip

FAMILY: Final = "Aileron"
"""Pillow's own font."""

_Ink: TypeAlias = tuple[int, int, int] | tuple[int, int, int, int]
_Box: TypeAlias = tuple[float, float, float, float]


def fitting(text: str, size: float, width: float) -> str:
    """The text, cut and marked with dots where it is wider than ``width`` pixels."""
    if text_width(text, round(size)) <= width:
        return text
    while text and text_width(text + "...", round(size)) > width:
        text = text[:-1]
    return text.rstrip() + "..."


def heat_colour(value: float) -> RGB:
    """The colour of a number in [0, 1]."""
    position = min(1.0, max(0.0, value)) * (len(_SCALE) - 1)
    low = min(int(position), len(_SCALE) - 2)
    return blend(_SCALE[low], _SCALE[low + 1], position - low)


def blend(first: RGB, second: RGB, share: float) -> RGB:
    """The colour that lies ``share`` of the way from one colour to another."""
    mixed = [round(a + (b - a) * share) for a, b in zip(first, second, strict=True)]
    return mixed[0], mixed[1], mixed[2]


def text_on(background: RGB) -> RGB:
    """Ink or paper, whichever can be read on a background."""
    red, green, blue = background
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


def pixels(
    width: int, height: int, paint: Callable[[Pen], None], smooth: int
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture, painted with a pen for the first pixel ``smooth`` times larger, and shrunk."""
    image = Image.new("RGB", (width * smooth, height * smooth), PAPER)
    # Mode RGBA on an RGB image blends what is drawn with what is there, several times slower.
    paint(Pen(ImageDraw.Draw(image), ImageDraw.Draw(image, "RGBA"), 0, 0, smooth))
    return np.array(image.reduce(smooth))


def svg(width: int, height: int, paint: Callable[[Pen], None]) -> str:
    """A picture, painted with a pen for the first unit, as an SVG document with texts as texts."""
    draw = _SvgDraw()
    paint(Pen(draw, draw, 0, 0, 1))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    # Inherited by all elements.
    style = f'font-family="{FAMILY}, sans-serif" paint-order="stroke" stroke-linejoin="round"'
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([root, *draw.parts, "</svg>", ""])


class _SvgDraw:
    """The methods of Pillow's ``ImageDraw`` that a ``Pen`` uses, written down as SVG."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def polygon(self, xy: Sequence[Point], fill: _Ink) -> None:
        self._add("polygon", {"points": _points(xy)}, fill)

    def line(self, xy: Sequence[Point], fill: _Ink, width: int = 1, joint: str = "") -> None:
        self._add("polyline", {"points": _points(xy)}, None, fill, width)

    def ellipse(
        self, xy: _Box, fill: _Ink | None = None, outline: _Ink | None = None, width: int = 0
    ) -> None:
        # Pillow's outline lies inside; a pen draws circles only.
        x, y, radius = (xy[0] + xy[2]) / 2, (xy[1] + xy[3]) / 2, (xy[2] - xy[0] - width) / 2
        self._add("circle", {"cx": x, "cy": y, "r": radius}, fill, outline, width)

    def rounded_rectangle(self, xy: _Box, radius: float, fill: _Ink) -> None:
        # Pillow's last pixels are inside.
        size = {"width": xy[2] - xy[0] + 1, "height": xy[3] - xy[1] + 1, "rx": radius}
        self._add("rect", {"x": xy[0], "y": xy[1], **size}, fill)

    def text(
        # Of the anchors, a pen uses the one on the left of the baseline.
        self, xy: Point, text: str, fill: _Ink, font: ImageFont.FreeTypeFont, anchor: str,
        stroke_width: int, stroke_fill: _Ink,
    ) -> None:  # fmt: skip
        # Another font may be wider; the text keeps its place.
        place: dict[str, Any] = {
            "x": xy[0],
            "y": xy[1],
            "font-size": font.size,
            "textLength": font.getlength(text),
        }
        if font.getname()[0] != FAMILY:
            place["font-family"] = f"{font.getname()[0]}, sans-serif"
        halo = stroke_fill if stroke_width else None
        self._add("text", place, fill, halo, 2 * stroke_width, text)

    def _add(
        self, tag: str, attributes: dict[str, Any], fill: _Ink | None, stroke: _Ink | None = None,
        width: int = 0, content: str = "",
    ) -> None:  # fmt: skip
        fields = {"fill": "none", **attributes} | ({"stroke-width": width} if stroke else {})
        for name, ink in (("fill", fill), ("stroke", stroke)):
            if ink is not None:
                fields[name] = "#{:02x}{:02x}{:02x}".format(*ink)
                fields |= {f"{name}-opacity": ink[3] / 255} if len(ink) > 3 else {}
        words = (f'{k}="{v if isinstance(v, str) else f"{v:.6g}"}"' for k, v in fields.items())
        self.parts.append(f"<{tag} {' '.join(words)}>{escape(content)}</{tag}>")


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.6g},{y:.6g}" for x, y in points)


@dataclass(frozen=True)
class Pen:
    """Draws into one square of an image; (0, 0) is its top left corner, (1, 1) its bottom right.

    Attributes:
        draw: What is drawn into.
        blend: The same for what lets shine through what is there.
        left: Column of the square's left edge, in pixels.
        top: Row of the square's top edge.
        size: Pixels per side of the square.
        turn: Quarter turns clockwise about the centre, applied to all points.
    """

    draw: ImageDraw.ImageDraw | _SvgDraw
    blend: ImageDraw.ImageDraw | _SvgDraw
    left: float
    top: float
    size: float
    turn: int = 0

    def turned(self, turn: int) -> Pen:
        """A pen for the same square, turned clockwise by quarter turns."""
        return replace(self, turn=self.turn + turn)

    def inset(self, x: float, y: float, size: float) -> Pen:
        """A pen for a smaller square whose top left corner is at (x, y)."""
        left, top = self.left + x * self.size, self.top + y * self.size
        return replace(self, left=left, top=top, size=size * self.size)

    def polygon(self, points: Sequence[Point], fill: RGB) -> None:
        """A filled polygon."""
        self.draw.polygon([self._at(point) for point in points], fill=fill)

    def line(self, points: Sequence[Point], colour: RGB, width: float = 0.05) -> None:
        """Connected straight lines with round ends."""
        pixels = [self._at(point) for point in points]
        thick = max(1, round(width * self.size))
        self.draw.line(pixels, fill=colour, width=thick, joint="curve")
        for x, y in (pixels[0], pixels[-1]):
            radius = thick / 2
            self.draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def outline(self, points: Sequence[Point], colour: RGB, width: float) -> None:
        """The closed border of a polygon."""
        self.line([*points, points[0], points[1]], colour, width)

    def circle(self, centre: Point, radius: float, fill: RGB) -> None:
        """A filled circle."""
        self.draw.ellipse(self._around(centre, radius), fill=fill)

    def ring(self, centre: Point, radius: float, colour: RGB, width: float = 0.06) -> None:
        """The border of a circle, drawn inside ``radius``."""
        thick = max(1, round(width * self.size))
        self.draw.ellipse(self._around(centre, radius), outline=colour, width=thick)

    def rect(
        self, first: Point, second: Point, fill: RGB, *, radius: float = 0.0, alpha: float = 1.0
    ) -> None:
        """A filled rectangle between two opposite corners."""
        (x1, y1), (x2, y2) = self._at(first), self._at(second)
        left, top = min(x1, x2), min(y1, y2)
        # Pillow includes the far edge; what is thinner than a pixel still gets one.
        box = (left, top, max(left, x1 - 1, x2 - 1), max(top, y1 - 1, y2 - 1))
        if alpha == 1:
            self.draw.rounded_rectangle(box, radius * self.size, fill=fill)
        else:
            ink = (*fill, round(255 * alpha))
            self.blend.rounded_rectangle(box, radius * self.size, fill=ink)

    def dashes(self, start: Point, end: Point, colour: RGB, width: float = 0.05) -> None:
        """A dashed line that starts and ends with a dash."""
        (x, y), dx, dy = start, end[0] - start[0], end[1] - start[1]
        step = 1 / (2 * max(1, round(max(abs(dx), abs(dy)) / 0.24)) - 1)
        for dash in np.arange(0, 1, 2 * step).tolist():
            ends = [self._at((x + t * dx, y + t * dy)) for t in (dash, dash + step)]
            self.draw.line(ends, colour, max(1, round(width * self.size)))

    def text(
        self, at: Point, text: str, size: float, colour: RGB = INK, *, anchor: str = "mm",
        halo: RGB | None = None,
    ) -> None:  # fmt: skip
        """A line of text with a halo or none; the anchor is Pillow's: ``"lm"`` is left, middle.

        ``$V_h^e$``, a letter with one letter below or above it, is typeset.
        """
        pixels = max(1, round(size * self.size))
        line, width = runs(text, pixels)
        ascent, descent = font(pixels).getmetrics()
        capitals = -font(pixels).getbbox("X", anchor="ls")[1]
        x, y = self._at(at)
        x -= {"l": 0, "m": width / 2, "r": width}[anchor[0]]
        # The bottom is the baseline, as that of digits.
        y += {"t": capitals, "m": (ascent - descent) / 2, "b": 0}[anchor[1]]
        for run in line:
            self.draw.text(
                (x + run.x, y + run.y), run.text, fill=colour, font=run.font, anchor="ls",
                stroke_width=0 if halo is None else max(1, round(pixels / 7)),
                stroke_fill=halo or PAPER,
            )  # fmt: skip

    def _around(self, centre: Point, radius: float) -> _Box:
        (x, y), size = self._at(centre), radius * self.size
        return x - size, y - size, x + size, y + size

    def _at(self, point: Point) -> Point:
        x, y = point[0] - 0.5, point[1] - 0.5
        for _ in range(self.turn % 4):
            x, y = -y, x
        return self.left + (x + 0.5) * self.size, self.top + (y + 0.5) * self.size
