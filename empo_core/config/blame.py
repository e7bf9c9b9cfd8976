"""Locations in a config file for errors raised after validation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import BaseModel

from empo_core.config import ComponentRef, RunConfig, references
from empo_core.errors import REFUSALS, EmpoError, SolveError

if TYPE_CHECKING:
    from empo_core.config.yaml import Document

Loc = tuple[str | int, ...]

_KEY = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_PLACE = re.compile(r"(\S.*:[1-9]\d*:[1-9]\d*|command line): ")
_ATTRIBUTE = "_empo_component"


@contextmanager
def blamed(ref: ComponentRef) -> Iterator[None]:
    """Attach to an error the innermost component that was being built."""
    try:
        yield
    except EmpoError as error:
        if not hasattr(error, _ATTRIBUTE):
            setattr(error, _ATTRIBUTE, ref)
        raise


@contextmanager
def located(document: Document, config: RunConfig, *, all_errors: bool = False) -> Iterator[None]:
    """Give refusals the place of the key that they are about: file, line and column.

    That is the key that the message names, if it names one, or that of the component.

    Args:
        document: Where the config was read.
        config: The config.
        all_errors: Whether all errors of ours are about the config, as in a check of it.
    """
    try:
        yield
    except EmpoError as error:
        text, ref = str(error), getattr(error, _ATTRIBUTE, None)
        if _PLACE.match(text):
            raise
        is_refusal = all_errors or ref is not None or isinstance(error, REFUSALS)
        loc = _about(text, config, ref)
        if loc is None and is_refusal:
            loc = next(
                (loc for loc, reference in references(config) if reference is ref), ("algorithm",)
            )
        if loc is None or not (is_refusal or isinstance(error, SolveError)):
            raise
        key = ".".join(map(str, loc))
        message = text if text.startswith(key) else f"{key}: {text}"
        placed = type(error)(f"{document.place(loc)}: {message}")
        for note in getattr(error, "__notes__", []):
            placed.add_note(note)
        raise placed from error


def _about(text: str, config: RunConfig, ref: ComponentRef | None) -> Loc | None:
    """The keys that a message names: of the component that it is about, or of any."""
    matching = [loc for loc, reference in references(config) if reference is ref]
    paths = [loc for loc, _ in references(config)]
    prefixes: list[Loc] = [(), *((*loc, "params") for loc in matching + paths), *matching]
    names = [match[0].strip(".") for match in _KEY.finditer(text)]
    names = [name for name in names if "." in name or _is_marked(name, text)]
    for name in sorted(names, key=lambda dotted: -dotted.count(".")):
        parts: Loc = tuple(int(part) if part.isdecimal() else part for part in name.split("."))
        for prefix in prefixes:
            if _exists(config, (*prefix, *parts)):
                return (*prefix, *parts)
    return None


def _is_marked(name: str, text: str) -> bool:
    """True if a word of a message stands for a key of a config."""
    return "_" in name or re.search(rf"\b{re.escape(name)}(?:=|:|'s? |' )", text) is not None


def _exists(value: object, loc: Loc) -> bool:
    """True if keys lead to something in a config."""
    for key in loc:
        if isinstance(value, BaseModel) and key in type(value).model_fields:
            value = getattr(value, str(key))
        elif isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        else:
            return False
    return bool(loc)
