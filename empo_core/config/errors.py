"""Errors with a place: validation errors as lines for people, and later ones at their key."""

from __future__ import annotations

import difflib
import itertools
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from empo_core.config.models import ComponentRef, RunConfig, installed, references
from empo_core.config.schema import FieldType, children, key_paths, keys_of, models
from empo_core.config.yaml import MAX_PROBLEMS, Document, Loc, child, dotted
from empo_core.errors import REFUSALS, ConfigError, EmpoError, PluginLoadError, SolveError
from empo_core.plugins.registry import Registry

ALIKE = 0.85
"""Likeness of two names, from 0 to 1, from which a key elsewhere is suggested."""
MAX_HINTS = 5
"""Unknown keys of one document for which others are suggested; finding them takes time."""
_NAMED = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_PLACE = re.compile(r"(\S.*:[1-9]\d*:[1-9]\d*|command line): ")
_ATTRIBUTE = "_empo_component"
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlevel = 3
_OWN_WORDS = {
    "extra_forbidden": "unknown key",
    "missing": "required key is missing",
    "invalid_key": "a key must be a string here",
    "literal_error": "is not one of the choices",
    "enum": "is not one of the choices",
    "model_type": "should be a mapping",
    "dict_type": "should be a mapping",
}


def explain(
    errors: ValidationError,
    document: Document,
    model: type[BaseModel] | None = None,
    registry: Registry | None = None,
) -> list[str]:
    """One line per problem, in the order of the file, up to a limit.

    Args:
        errors: What pydantic found wrong with ``document.data``.
        document: The data and where it was written.
        model: What the data should have been; adds what is allowed to each line.
        registry: The components that references may name; default: the installed ones.
    """
    lines = _Explainer(document, model, registry).lines(errors)
    return list(itertools.islice(lines, MAX_PROBLEMS + 1))


def quote(value: object) -> str:
    """A value as a config would show it, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _short.repr(value)


class _Explainer:
    def __init__(
        self, document: Document, model: type[BaseModel] | None, registry: Registry | None
    ) -> None:
        self._document = document
        self._root = [FieldType(model)] if model is not None else []
        self._registry = registry if registry is not None else installed()
        self._hints_left = MAX_HINTS

    def lines(self, errors: ValidationError) -> Iterator[str]:
        """One line per place; the branches of a union that all failed share theirs."""
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
            yield from self._line(path, by_path[path])

    def _trace(
        self, loc: Loc, *, missing: bool = False
    ) -> tuple[tuple[str | int, ...], list[FieldType]]:
        """``loc`` without pydantic's parts for union branches, and the types allowed there."""
        path: list[str | int] = []
        field_types, value = self._root, self._document.data
        for position, part in enumerate(loc):
            child_types = [
                s
                for field_type in field_types
                for s in children(field_type, part, value, self._registry)
            ]
            try:
                value = child(value, part)
            except LookupError:
                last = missing and position == len(loc) - 1
                declared = any(str(part) in keys_of(model) for model in models(field_types))
                if not (last or declared):
                    continue
                value = None
            path.append(part)
            field_types = child_types
        return tuple(path), field_types

    def _line(self, path: tuple[str | int, ...], errors: Sequence[ErrorDetails]) -> list[str]:
        nested = _nested(errors)
        if nested:
            return nested
        place = self._document.place(path)
        key = dotted(path)
        kinds = {error["type"] for error in errors}
        reason = " or ".join(dict.fromkeys(_reason(error) for error in errors))
        clauses = [reason]
        if "missing" not in kinds:
            clauses[0] += f" (got {quote(self._got(path, errors))})"
        allowed, suggestion = self._allowed(path, errors[0])
        if allowed:
            clauses.append(f"allowed: {allowed}")
        if suggestion:
            clauses.append(f"did you mean {suggestion!r}?")
        text = " ".join("; ".join(clauses).split())
        return [f"{place}: {key}: {text}" if key else f"{place}: {text}"]

    def _got(self, path: tuple[str | int, ...], errors: Sequence[ErrorDetails]) -> object:
        try:
            return self._document.value(path)
        except LookupError:
            return errors[0]["input"]

    def _allowed(self, path: tuple[str | int, ...], error: ErrorDetails) -> tuple[str, str | None]:
        """The allowed values at a place, and the choice nearest to the given value."""
        if error["type"] in ("extra_forbidden", "invalid_key"):
            owners = models(self._trace(path[:-1])[1])
            names = list(dict.fromkeys(name for owner in owners for name in keys_of(owner)))
            return ", ".join(names) or "no keys", self._key_like(path, names)
        field_types = self._trace(path)[1]
        words = " or ".join(dict.fromkeys(field_type.words for field_type in field_types))
        if error["type"] in ("literal_error", "enum"):
            choices = str(error.get("ctx", {}).get("expected", ""))
            names = [name.strip("'") for name in choices.replace(" or ", ", ").split(", ")]
            value = error["input"]
            return words or choices, _nearest(value, names) if isinstance(value, str) else None
        if error["type"] in ("value_error", "assertion_error"):
            return "", None  # The plugin's own sentence says what is allowed.
        return words, None

    def _key_like(self, path: tuple[str | int, ...], names: list[str]) -> str | None:
        """One of ``names``, or the path of a key elsewhere, if it is spelt like the end of one."""
        self._hints_left -= 1
        if not path or self._hints_left < 0:
            return None
        elsewhere: dict[str, list[tuple[str | int, ...]]] = {}
        for key_path in self._key_paths:
            elsewhere.setdefault(str(key_path[-1]), []).append(key_path)
        word = str(path[-1])
        near = _nearest(word, names, ALIKE) or _nearest(word, list(elsewhere), ALIKE)
        if near is None or near in names:
            return near or _nearest(word, names)
        # The key that has most of its path in common is most likely the one that was meant.
        return dotted(
            max(elsewhere[near], key=lambda key_path: (_common(key_path, path), -len(key_path)))
        )

    @cached_property
    def _key_paths(self) -> list[tuple[str | int, ...]]:
        return list(key_paths(self._root, self._document.data, self._registry))


def _common(first: Loc, second: Loc) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def _reason(error: ErrorDetails) -> str:
    if error["type"] in _OWN_WORDS:
        return _OWN_WORDS[error["type"]]
    message = error["msg"]
    for prefix, replacement in (
        ("Value error, ", ""),
        ("Assertion failed, ", ""),
        ("Input should be", "should be"),
    ):
        if message.startswith(prefix):
            return replacement + message[len(prefix) :]
    return message


def _nested(errors: Sequence[ErrorDetails]) -> list[str]:
    """The lines of a ``ConfigError`` about another file, raised inside a validator."""
    lines: list[str] = []
    for error in errors:
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            lines += [line for line in str(cause).splitlines() if not _counts(line)]
    return lines


def _counts(line: str) -> bool:
    number, _, ending = line.partition(" ")
    return number.isdigit() and ending.endswith("; nothing was run")


def _nearest(word: str, choices: Sequence[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(word, choices, n=1, cutoff=cutoff)), None)


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
    """The keys that a message names: of the component that it is about, or of any."""
    matching = [loc for loc, reference in references(config) if reference is ref]
    paths = [loc for loc, _ in references(config)]
    prefixes: list[tuple[str | int, ...]] = [
        (),
        *((*loc, "params") for loc in matching + paths),
        *matching,
    ]
    names = [match[0].strip(".") for match in _NAMED.finditer(text)]
    names = [name for name in names if "." in name or _is_marked(name, text)]
    for name in sorted(names, key=lambda dotted: -dotted.count(".")):
        parts: tuple[str | int, ...] = tuple(
            int(part) if part.isdecimal() else part for part in name.split(".")
        )
        for prefix in prefixes:
            if _has_key(config, (*prefix, *parts)):
                return (*prefix, *parts)
    return None


def _is_marked(name: str, text: str) -> bool:
    """True if a word of a message stands for a key of a config."""
    return "_" in name or re.search(rf"\b{re.escape(name)}(?:=|:|'s? |' )", text) is not None


def _has_key(value: object, loc: Loc) -> bool:
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
