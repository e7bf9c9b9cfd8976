"""Sidebar and caption of a picture: legend of the heat map, policies, text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from empo_core.types import Overlay, WorldSpec
from empo_multigrid.canvas import AGENT_RGB, GRID, INK, MUTED, PAPER, RGB, Pen, blend

PANEL_WIDTH: Final = 210
CAPTION_HEIGHT: Final = 30
_MARGIN: Final = 14
_LINE: Final = 20
_HEADING: Final = 28
_GAP: Final = 14
_LEGEND_HEIGHT: Final = 60
# Light to dark in one family of hues, readable with any colour vision and in grey.
_SCALE: Final[tuple[RGB, ...]] = (
    (244, 249, 243), (206, 236, 208), (138, 211, 192), (67, 162, 202), (12, 92, 158), (8, 48, 107),
)  # fmt: skip

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@lru_cache(maxsize=32)
def font(size: int) -> Font:
    """Pillow's own font, the same on every machine."""
    return ImageFont.load_default(size)


def heat_colour(value: float) -> RGB:
    """The colour of a number in [0, 1]."""
    position = min(1.0, max(0.0, value)) * (len(_SCALE) - 1)
    low = min(int(position), len(_SCALE) - 2)
    return blend(_SCALE[low], _SCALE[low + 1], position - low)


def add_panel(
    board: Image.Image,
    spec: WorldSpec,
    agent_colour: Sequence[int],
    overlay: Overlay,
    human_name: str | None,
) -> Image.Image:
    """The board with a panel on its right.

    Args:
        board: The picture so far.
        spec: Names of agents and actions.
        agent_colour: Index of each agent's colour.
        overlay: What the panel is about.
        human_name: Whose goal values are drawn; None leaves out the legend.
    """
    rows = sum(
        _HEADING + _GAP + _LINE * len(spec.agents[agent].actions) for agent in overlay.policies
    )
    needed = 2 * _MARGIN + rows + (0 if human_name is None else _LEGEND_HEIGHT)
    height = max(board.height, needed)
    picture = Image.new("RGB", (board.width + PANEL_WIDTH, height), PAPER)
    picture.paste(board, (0, 0))
    draw = ImageDraw.Draw(picture)
    left, top = board.width + _MARGIN, _MARGIN
    for agent, probs in overlay.policies.items():
        tint = AGENT_RGB[agent_colour[agent]]
        _policy(picture, draw, (left, top), spec, agent, list(probs), tint)
        top += _HEADING + _GAP + _LINE * len(probs)
    if human_name is not None:
        _legend(draw, left, top, human_name)
    return picture


def add_caption(picture: Image.Image, caption: str) -> Image.Image:
    """The picture with a line of text below, shortened where it does not fit."""
    wide = Image.new("RGB", (picture.width, picture.height + CAPTION_HEIGHT), PAPER)
    wide.paste(picture, (0, 0))
    draw = ImageDraw.Draw(wide)
    line = _fitting(draw, " ".join(caption.split()), 13, picture.width - 2 * _MARGIN)
    spot = (_MARGIN, picture.height + CAPTION_HEIGHT / 2)
    draw.text(spot, line, fill=INK, font=font(13), anchor="lm")
    return wide


def _policy(
    picture: Image.Image,
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    spec: WorldSpec,
    agent: int,
    probs: list[float],
    tint: RGB,
) -> None:
    """A heading, then a bar and a number per action."""
    left, top = corner
    right = picture.width - _MARGIN
    Pen(picture, left, top + 1, 14).circle((0.5, 0.5), 0.5, blend(tint, INK, 0.2))
    name = _fitting(draw, spec.agents[agent].name, 14, right - left - 20)
    draw.text((left + 20, top + 8), name, fill=INK, font=font(14), anchor="lm")
    start, end = left + 62, right - 42
    for action, prob in enumerate(probs):
        middle = top + _HEADING - 2 + _LINE * action + _LINE // 2
        label = spec.agents[agent].actions[action]
        draw.text((left, middle), label, fill=MUTED, font=font(12), anchor="lm")
        bar = (start, middle - 6, end, middle + 6)
        draw.rounded_rectangle(bar, 3, fill=blend(PAPER, GRID, 0.7))
        if prob > 0:
            length = max(2, round((end - start) * prob))
            filled = (start, middle - 6, start + length, middle + 6)
            draw.rounded_rectangle(filled, min(3, length // 2), fill=tint)
        draw.text((right, middle), f"{prob:.3f}", fill=INK, font=font(12), anchor="rm")


def _legend(draw: ImageDraw.ImageDraw, left: int, top: int, name: str) -> None:
    """The colour scale with numbers."""
    width = PANEL_WIDTH - 2 * _MARGIN
    title = _fitting(draw, f"goals of {name}", 13, width)
    draw.text((left, top + 8), title, fill=INK, font=font(13), anchor="lm")
    for x in range(width):
        colour = heat_colour(x / (width - 1))
        draw.line((left + x, top + 22, left + x, top + 36), fill=colour)
    draw.rectangle((left, top + 22, left + width - 1, top + 36), outline=GRID)
    for tick in range(5):
        x = left + round((width - 1) * tick / 4)
        anchor = "lt" if tick == 0 else "rt" if tick == 4 else "mt"
        draw.line((x, top + 36, x, top + 39), fill=MUTED)
        draw.text((x, top + 43), f"{tick / 4:g}", fill=MUTED, font=font(11), anchor=anchor)


def _fitting(draw: ImageDraw.ImageDraw, text: str, size: int, width: float) -> str:
    """The text, cut and marked with dots where it is wider than ``width`` pixels."""
    writing = font(size)
    if draw.textlength(text, font=writing) <= width:
        return text
    while text and draw.textlength(text + "...", font=writing) > width:
        text = text[:-1]
    return text.rstrip() + "..."
