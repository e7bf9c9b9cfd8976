"""Errors with a place: validation errors as lines for people, and later ones at their key."""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import eq
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from empo_core.config.models import ComponentRef, RunConfig, installed, references, walk
from empo_core.config.schema import FieldType, children, key_paths, models
from empo_core.config.yaml import MAX_PROBLEMS, Document, Loc, child, dotted
from empo_core.errors import REFUSALS, ConfigError, EmpoError, PluginLoadError, SolveError
from empo_core.plugins.registry import Registry
from empo_core.suggestions import nearest

ALIKE = 0.85
"""Likeness of two names, from 0 to 1, from which a key elsewhere is suggested."""
_NAMED = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)+|[A-Za-z]\w*_\w+|[A-Za-z][\w-]*(?=[=:'])")
"""What messages name keys by: a path, a word with an underscore, or one before =, : or '."""
_PLACE = re.compile(r"(\S.*:[1-9]\d*:[1-9]\d*|command line): ")
_COUNT = re.compile(r"\d+ errors?(, and there are more)?; nothing was run")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d*)?")
"""A number as people write it, which YAML reads as a text."""
_ATTRIBUTE = "_empo_component"
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlevel = 3
_OWN_WORDS = {
    "extra_forbidden": "unknown key",
    "missing": "required key is missing",
    "invalid_key": "a key must be a string here",
    "literal_error": "is not one of the choices",
    "union_tag_not_found": "lacks the key that says which of the mappings it is",
    "union_tag_invalid": "is none of the mappings that may stand here",
    "model_type": "should be a mapping",
    "dict_type": "should be a mapping",
}


def quote(value: object) -> str:
    """A value as a config would show it, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _short.repr(value)


class Explainer:
    """Turns what pydantic finds wrong with a document into lines for people.

    Args:
        document: The data and where it was written.
        model: What the data should have been.
        registry: The components that references may name; default: the installed ones.
    """

    def __init__(
        self, document: Document, model: type[BaseModel], registry: Registry | None
    ) -> None:
        self._document = document
        self._root = [FieldType(model)]
        self._registry = registry if registry is not None else installed()

    def lines(self, errors: ValidationError) -> Iterator[str]:
        """One line per place, in their order; branches of a union that all failed share theirs."""
        by_path: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
        # Several errors may be about one place.
        for error in errors.errors(include_url=False)[: 4 * MAX_PROBLEMS]:
            path, _ = self._trace(error["loc"], missing=error["type"] == "missing")
            by_path.setdefault(path, []).append(error)
        for path in list(by_path):
            # A union member of the wrong type is no news beside one that went deeper.
            branched = all(len(error["loc"]) > len(path) for error in by_path[path])
            if branched and any(len(p) > len(path) and p[: len(path)] == path for p in by_path):
                del by_path[path]
        for path in sorted(by_path, key=self._document.locate):
            yield from _nested(by_path[path]) or [self._line(path, by_path[path])]

    def _trace(
        self, loc: Loc, *, missing: bool = False
    ) -> tuple[tuple[str | int, ...], list[FieldType]]:
        """``loc`` without pydantic's parts for union branches, and the types allowed there."""
        path: list[str | int] = []
        field_types, value = self._root, self._document.data
        for position, part in enumerate(loc):
            declared = any(str(part) in model.model_fields for model in models(field_types))
            try:
                inner = child(value, part)
            except LookupError:
                if not (declared or (missing and position == len(loc) - 1)):
                    continue
                inner = None
            path.append(part)
            field_types = children(field_types, part, value, self._registry)
            value = inner
        return tuple(path), field_types

    def _line(self, path: tuple[str | int, ...], errors: Sequence[ErrorDetails]) -> str:
        """Place, key, reason, value, what is allowed, and what was most likely meant."""
        error, close = errors[0], None
        field_types = self._trace(path)[1]
        allowed = " or ".join(dict.fromkeys(field_type.words for field_type in field_types))
        if error["type"] in ("extra_forbidden", "invalid_key"):
            owners = models(self._trace(path[:-1])[1])
            names = list(dict.fromkeys(name for owner in owners for name in owner.model_fields))
            allowed, close = ", ".join(names) or "no keys", self._key_like(path, names)
            close = self._with_inner_keys(path, close)
        elif error["type"] == "literal_error" and isinstance(error["input"], str):
            close = nearest(error["input"], [word.strip("'") for word in allowed.split(", ")])
        elif isinstance(error["input"], str) and _THOUSANDS.fullmatch(error["input"]):
            close = error["input"].replace(",", "")
        elif error["type"] in ("value_error", "assertion_error"):
            allowed = ""  # The plugin's own sentence says what is allowed.
        text = " or ".join(dict.fromkeys(map(_reason, errors)))
        if all(error["type"] != "missing" for error in errors):
            try:
                value: object = self._document.value(path)
            except LookupError:
                value = error["input"]
            text += f" (got {quote(value)})"
        text += f"; allowed: {allowed}" if allowed else ""
        text += f"; did you mean {close!r}?" if close else ""
        key = f"{dotted(path)}: " if path else ""
        return f"{self._document.place(path)}: {' '.join(f'{key}{text}'.splitlines())}"

    def _key_like(self, path: tuple[str | int, ...], names: list[str]) -> str | None:
        """One of ``names``, or the path of a key elsewhere, if it is spelt like the end of one."""
        if not path:
            return None
        word = str(path[-1])
        for depth in range(len(path)):
            for model in models(self._trace(path[:depth])[1]):
                if word in (synonyms := getattr(model, "synonyms", {})):
                    return dotted((*path[:depth], *synonyms[word].split(".")))
        if word not in names and (synonym := self._synonym(word, self._key_paths)) is not None:
            return synonym
        elsewhere = {str(key_path[-1]) for key_path in self._key_paths}
        near = nearest(word, [*names, *sorted(elsewhere)], cutoff=ALIKE) or nearest(word, names)
        if near is None or near in names:
            return near
        # The key that has most of its path in common is most likely the one that was meant.
        paths = [loc for loc in self._key_paths if loc[-1] == near]
        return dotted(max(paths, key=lambda loc: (sum(map(eq, loc, path)), -len(loc))))

    def _synonym(self, word: str, places: Iterable[tuple[str | int, ...]]) -> str | None:
        """The path of the key that others call ``word``, of a model at one of ``places``."""
        for loc in places:
            for model in models(self._trace(loc)[1]):
                if word in (synonyms := getattr(model, "synonyms", {})):
                    return dotted((*loc, *synonyms[word].split(".")))
        return None

    def _with_inner_keys(self, path: tuple[str | int, ...], close: str | None) -> str | None:
        """A suggestion for ``path`` that goes on with the only key of the mapping given there."""
        try:
            value: object = self._document.value(path)
        except LookupError:
            return close
        while close is not None and isinstance(value, Mapping) and len(value) == 1:
            ((word, value),) = value.items()
            target = tuple(close.split("."))
            owners = models(self._trace(target)[1])
            names = [name for owner in owners for name in owner.model_fields]
            above = [target[:depth] for depth in range(len(target) + 1)]
            key = str(word) if word in names else nearest(str(word), names)
            synonym = None if word in names else self._synonym(str(word), above)
            if key is None and synonym is None:
                return close
            close = synonym or f"{close}.{key}"
        return close

    @cached_property
    def _key_paths(self) -> list[tuple[str | int, ...]]:
        return list(key_paths(self._root, self._document.data, self._registry))


def _reason(error: ErrorDetails) -> str:
    if error["type"] in _OWN_WORDS:
        return _OWN_WORDS[error["type"]]
    text = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text.replace("Input should be", "should be", 1) if text.startswith("Input") else text


def _nested(errors: Sequence[ErrorDetails]) -> list[str]:
    """The lines of a ``ConfigError`` about another file, raised inside a validator."""
    causes = [error.get("ctx", {}).get("error") for error in errors]
    lines = [str(cause).splitlines() for cause in causes if isinstance(cause, ConfigError)]
    return [line for line in itertools.chain(*lines) if not _COUNT.fullmatch(line)]


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
        # What is wrong with a component's code is about no key of its params.
        loc = None if isinstance(error, PluginLoadError) else _about(text, config, ref)
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


def _about(text: str, config: RunConfig, ref: ComponentRef | None) -> tuple[str | int, ...] | None:
    """The keys that a message names: of the component that it is about, or of any.

    A message that begins with a file is about the key that names the file.
    """
    for loc, value, _ in walk(config):
        if isinstance(value, Path) and text.startswith(f"{value}: "):
            return loc
    places = [loc for loc, reference in references(config) if reference is ref]
    params = [(*loc, "params") for loc in (*places, *(loc for loc, _ in references(config)))]
    named: dict[str, tuple[str | int, ...]] = {}
    for prefix in [(), *params, *places]:
        for loc, _, _ in walk(config):
            if loc[: len(prefix)] == prefix and loc != prefix:
                named.setdefault(".".join(map(str, loc[len(prefix) :])), loc)
    names = sorted(_NAMED.findall(text), key=lambda name: -name.count("."))
    return next((named[name] for name in names if name in named), None)
