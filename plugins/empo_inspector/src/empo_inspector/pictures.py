"""Pictures of the states of an inspection: sketches, pixels or texts, as their world has them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import torch
from jaxtyping import Shaped
from PIL import Image

from empo_core.protocols import WorldModel
from empo_inspector.container import Glyph, Picture, Shape
from empo_theory.inspection import Sketch, Sketchable

MOST_PIXELS, SIDE = 8_000_000, 240
"""Pixels of all pictures together, and of a picture's longer side."""

Rows = Shaped[np.ndarray, "state word"]


def pictures(world: WorldModel, rows: Rows) -> tuple[Picture, dict[str, np.ndarray]]:
    """Constants and arrays of the pictures of some states, of which the first count most."""
    if isinstance(world, Sketchable):
        sketch = world.sketch(torch.from_numpy(rows))
        glyphs = [_glyph(name, picture) for name, picture in sketch.glyphs]
        picture = Picture(kind="grid", width=sketch.width, height=sketch.height, glyphs=glyphs)
        return picture, _grid(sketch)
    texts = _texts([world.describe(torch.from_numpy(row)) for row in rows])
    if not len(rows) or world.render(torch.from_numpy(rows[0])) is None:
        return Picture(kind="text"), texts
    first = _small(world, rows[0]).quantize(256)
    colours = np.array(first.getpalette() or [0, 0, 0]).reshape(-1, 3).tolist()
    number = min(len(rows), MOST_PIXELS // (first.width * first.height))
    pixels = [
        np.asarray(_small(world, row).quantize(palette=first, dither=Image.Dither.NONE))
        for row in rows[:number]
    ]
    picture = Picture(kind="pixels", width=first.width, height=first.height, palette=colours)
    return picture, {**texts, "pixels": np.stack(pixels)}


def _glyph(name: str, picture: str) -> Glyph:
    """The shapes of an SVG document, of the kinds that a ``Sketch`` may have."""
    if not picture:
        return Glyph(name=name, side=1.0, shapes=[])
    root = ElementTree.fromstring(picture)
    return Glyph(name=name, side=float(root.attrib["width"]), shapes=[*map(_shape, root)])


def _shape(node: ElementTree.Element) -> Shape:
    attributes = {key: value for key, value in node.attrib.items() if value != "none"}

    def number(key: str, usual: float = 0.0) -> float:
        return float(attributes.get(key, usual))

    x, y = number("x"), number("y")
    tag, path = node.tag.rpartition("}")[2], ""
    if tag == "circle":
        r, cx, cy = number("r"), number("cx"), number("cy")
        path = f"M{cx - r:g},{cy:g}a{r:g},{r:g} 0 1 0 {2 * r:g},0a{r:g},{r:g} 0 1 0 {-2 * r:g},0"
    elif tag == "rect":
        w, h = number("width"), number("height")
        r = min(number("rx"), w / 2, h / 2)
        turn = f"a{r:g},{r:g} 0 0 1 "
        path = (
            f"M{x + r:g},{y:g}h{w - 2 * r:g}{turn}{r:g},{r:g}v{h - 2 * r:g}{turn}{-r:g},{r:g}"
            f"h{2 * r - w:g}{turn}{-r:g},{-r:g}v{2 * r - h:g}{turn}{r:g},{-r:g}Z"
        )
    elif tag != "text":
        path = "M" + attributes["points"] + "Z" * (tag == "polygon")
    return Shape(
        path=path,
        text=(node.text or "") if tag == "text" else "",
        x=x,
        y=y,
        size=number("font-size"),
        fill=attributes.get("fill", ""),
        stroke=attributes.get("stroke", ""),
        width=number("stroke-width", 1.0),
        opacity=number("fill-opacity", number("stroke-opacity", 1.0)),
    )


def _small(world: WorldModel, row: Shaped[np.ndarray, " word"]) -> Image.Image:
    frame = world.render(torch.from_numpy(row))
    assert frame is not None
    image = Image.fromarray(frame)
    image.thumbnail((SIDE, SIDE))
    return image


def _texts(texts: list[str]) -> dict[str, np.ndarray]:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.uint32)
    return {"text": np.frombuffer(b"".join(encoded), np.uint8), "text_offsets": ends}


def _grid(sketch: Sketch) -> dict[str, np.ndarray]:
    """Arrays of a sketch; of what never changes in a cell, once."""
    changes = np.flatnonzero((sketch.things != sketch.things[:1]).any(0))
    return {
        "ground": sketch.ground.astype(np.uint16),
        "fixed": sketch.things[0].astype(np.uint16),
        "changes": changes.astype(np.uint16),
        "things": sketch.things[:, changes].astype(np.uint16),
        "sprites": sketch.agents.astype(np.uint16),
        "places": sketch.places.astype(np.uint16),
        "headings": sketch.headings.astype(np.int8),
        "goal_cells": sketch.goals.astype(np.uint8),
    }
