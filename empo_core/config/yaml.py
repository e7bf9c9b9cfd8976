"""YAML files as plain data with the place of every value.

The rules are those of YAML 1.2's core schema (``1e-3`` is a number, ``no`` is a string), with
less to go wrong: no tags, anchors or aliases, one document, no key twice. A file has at most
128 KiB, 6,000 keys and values, and 50 levels, so that any is answered within a second. JSON is a
subset. ``empo_core.config.files`` is the public face of this module.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from empo_core.config.syntax import mistake
from empo_core.errors import ConfigError
from empo_core.printable import printable
from empo_core.trees import JsonData

MAX_BYTES = 2**17
MAX_DEPTH = 50
_TOO_DEEP = f"nesting is deeper than {MAX_DEPTH} levels; flatten it"
MAX_VALUES = 6_000
"""Keys and values of a file: the parser takes some 50 microseconds for each."""
MAX_PROBLEMS = 100
"""Lines of one error."""
_MAX_LINE = 4000

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str | int, Plain] | None"
"""Data of a document."""
Loc = Sequence[str | int]
"""Path of a value in a document: keys and list positions from the root."""

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
_KEY = re.compile(r"[\w/+-]+")
_SPECIAL: dict[str, float | bool | None] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], float("nan")),
    **{
        f"{sign}{word}": float(f"{sign}inf")
        for sign in ("", "+", "-")
        for word in (".inf", ".Inf", ".INF")
    },
}


_NO_ANCHORS = (
    "every value stands where it is used, since a few nested aliases can stand for gigabytes; "
    "repeat the value"
)
_NO_TAGS = "a file is plain data, and tags make it into something else; remove it"


@dataclass
class Document:
    """Plain data, and the place of each value in the file.

    Attributes:
        name: What people call the source: the path as it was given.
        data: Dicts, lists, strings, numbers, booleans and None.
        base: The folder that relative paths in the document refer to, absolute.
        text: What was read.
        marks: Line and column of each key or list item, or the override that set it.
        starts: Line and column of each string that does not begin at its mark.
        blocks: Which values are literal blocks (``|``), whose lines lie below the key.
    """

    name: str
    data: Plain
    base: Path
    text: str = field(default="", repr=False)
    marks: dict[tuple[str, ...], tuple[int, int] | str] = field(default_factory=dict, repr=False)
    starts: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict, repr=False)
    blocks: set[tuple[str, ...]] = field(default_factory=set, repr=False)

    def locate(self, loc: Loc) -> tuple[int, int]:
        """The line and column (from 1) of the key at ``loc``, or of its nearest ancestor."""
        mark = self._mark(loc)
        return (1, 1) if isinstance(mark, str) else mark

    def place(self, loc: Loc) -> str:
        """``file:line:column`` of the key at ``loc``, or the override that set it."""
        mark = self._mark(loc)
        return mark if isinstance(mark, str) else f"{self.name}:{mark[0]}:{mark[1]}"

    def place_in_text(self, loc: Loc, row: int, column: int) -> str:
        """``file:line:column`` of a character (from 0) of the string at ``loc``."""
        mark = self._mark(loc)
        if isinstance(mark, str):
            return mark
        path = tuple(str(part) for part in loc)
        line, start = self.starts.get(path, mark)
        if path not in self.blocks:  # Then it is on one line.
            quoted = self._lines[line - 1][start - 1 : start] in ("'", '"')
            return f"{self.name}:{line}:{start + quoted + column}"
        following = itertools.islice(self._lines, line, None)
        first = next((text for text in following if text.strip()), "")
        indent = len(first) - len(first.lstrip(" "))
        return f"{self.name}:{line + 1 + row}:{indent + column + 1}"

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    def _mark(self, loc: Loc) -> tuple[int, int] | str:
        path = tuple(str(part) for part in loc)
        while path not in self.marks and path:
            path = path[:-1]
        return self.marks.get(path, (1, 1))

    def value(self, loc: Loc) -> Plain:
        """The value at ``loc``.

        Raises:
            LookupError: if nothing is at that place.
        """
        value = self.data
        for part in loc:
            value = child(value, part)
        return value


def child(value: Plain, part: str | int) -> Plain:
    """The child of plain data under a key or at a list position.

    Raises:
        LookupError: if the value has no such part.
    """
    if isinstance(value, dict):
        return value[part]
    if isinstance(value, list) and isinstance(part, int) and part >= 0:
        return value[part]
    raise LookupError(part)


def read_yaml(path: str | Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        ConfigError: if the file cannot be read, or is not YAML as this project accepts it; the
            message is ``file:line:column: reason``.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise problems([f"{path}:1:1: cannot be read: {reason}; check the path"]) from error
    except ValueError as error:  # A NUL byte in the path.
        raise problems([f"{path}:1:1: cannot be read: {error}; check the path"]) from error
    return parse_yaml(raw, name=str(path), base=path.resolve().parent)


def parse_yaml(source: bytes | str, *, name: str, base: str | Path = ".") -> Document:
    """Read YAML from memory; ``name`` stands for the file in messages.

    Raises:
        ConfigError: if the source cannot be parsed, as for ``read_yaml``.
    """
    raw = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if len(raw) > MAX_BYTES:
        raise problems([f"{name}:1:1: is larger than {MAX_BYTES:,} bytes; shorten or split it"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        prefix = raw[: error.start].decode("utf-8-sig", "replace")
        reason = f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        raise problems([f"{_place(name, prefix)}: {reason}"]) from error
    if name.endswith(".json"):
        text = text.replace("\t", " ")  # JSON may be indented by tabs and has none in strings.
    document = Document(name=name, data=None, base=Path(base).resolve(), text=text)
    _Builder(document).build(_events(text, name))
    return document


def parse_value(text: str) -> Plain:
    """A value as YAML reads it, e.g. the right side of ``key=value``.

    Raises:
        ConfigError: if the text is not a single YAML value.
    """
    return parse_yaml(text, name="value").data


class _TooDeep(ScannerError):
    """Brackets are nested too deeply."""


class _Scanner(Scanner):
    """Stops at a bracket too deep, since it reads a thousand open ones before its first event."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if len(self.flow_context) >= MAX_DEPTH:
            raise _TooDeep(problem_mark=self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)


def _events(text: str, name: str) -> Iterator[Event]:
    """The parser's events; whatever it raises becomes a located ``ConfigError``."""
    parser = YAML(typ="safe", pure=True)
    parser.Scanner = _Scanner
    try:
        yield from parser.parse(text)
    except _TooDeep as error:
        mark = error.problem_mark
        raise problems([f"{name}:{mark.line + 1}:{mark.column + 1}: {_TOO_DEEP}"]) from error
    except MarkedYAMLError as error:
        line, column, reason = mistake(error, text)
        raise problems([f"{name}:{line}:{column}: {reason}"]) from error
    except ReaderError as error:
        place = _place(name, text[: error.position])
        reason = f"control character {chr(error.character)!r} is not allowed; remove it"
        raise problems([f"{place}: {reason}"]) from error
    except ConfigError:
        raise
    except Exception as error:  # The parser has a few bugs, e.g. on "\UFFFFFFFF".
        raise problems([f"{name}:1:1: is not valid YAML: {error}"]) from error


def _place(name: str, prefix: str) -> str:
    """The place right after the text ``prefix``."""
    lines = prefix.split("\n")
    return f"{name}:{len(lines)}:{len(lines[-1]) + 1}"


def dotted(loc: Loc) -> str:
    """A place as people write it, e.g. ``params.pieces.0``; odd keys are quoted."""
    parts = [str(part) for part in loc]
    return ".".join(part if _KEY.fullmatch(part) else repr(part) for part in parts)


def problems(lines: Iterable[str]) -> ConfigError:
    """One error that reports the first lines, without terminal escapes, and counts them."""
    clean = [
        printable(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} ...", keep="")
        for line in itertools.islice(lines, MAX_PROBLEMS + 1)
    ]
    count = f"{len(clean)} error{'s' if len(clean) != 1 else ''}"
    if len(clean) > MAX_PROBLEMS:
        *clean, _ = clean
        count = f"{MAX_PROBLEMS} errors, and there are more"
    return ConfigError("\n".join([*clean, f"{count}; nothing was run"]))


@dataclass
class _Frame:
    """A collection that is still open while its children are read."""

    container: dict[str | int, Plain] | list[Plain]
    path: tuple[str, ...]
    key: str | int = ""
    has_key: bool = False
    names: dict[str, tuple[int, int]] = field(default_factory=dict)


class _Builder:
    """Turns events into data without recursion, so that no nesting can overflow the stack."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._frames: list[_Frame] = []
        self._documents = self._values = 0

    def build(self, events: Iterator[Event]) -> None:
        """Fill the document."""
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise self._error(event, "a second document starts here; only one is allowed")
            elif isinstance(event, AliasEvent):
                raise self._error(event, f"alias '*{event.anchor}' is not allowed: {_NO_ANCHORS}")
            elif isinstance(event, NodeEvent):
                self._node(event)
            elif isinstance(event, CollectionEndEvent):
                self._frames.pop()

    def _node(self, event: NodeEvent) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            reason = f"the file has more than {MAX_VALUES:,} keys and values; shorten or split it"
            raise self._error(event, reason)
        if event.anchor is not None:
            raise self._error(event, f"anchor '&{event.anchor}' is not allowed: {_NO_ANCHORS}")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._error(event, f"tag {str(tag)!r} is not allowed: {_NO_TAGS}")
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.container, dict) and not frame.has_key:
            self._key(frame, event)
            return
        if isinstance(event, ScalarEvent):
            self._place(frame, event, self._scalar(event))
        elif isinstance(event, CollectionStartEvent):
            value: dict[str | int, Plain] | list[Plain]
            value = {} if isinstance(event, MappingStartEvent) else []
            path = self._place(frame, event, value)
            if len(self._frames) >= MAX_DEPTH:
                raise self._error(event, _TOO_DEEP)
            self._frames.append(_Frame(value, path))

    def _place(self, frame: _Frame | None, event: NodeEvent, value: Plain) -> tuple[str, ...]:
        """Put a value into its container and note where it was written."""
        mark = event.start_mark.line + 1, event.start_mark.column + 1
        if frame is None:
            self._document.data = value
            path: tuple[str, ...] = ()
        elif isinstance(frame.container, list):
            path = (*frame.path, str(len(frame.container)))
            frame.container.append(value)
        else:
            path = (*frame.path, str(frame.key))
            if isinstance(event, ScalarEvent) and isinstance(value, str) and event.style != "|":
                self._document.starts[path] = mark
            mark = frame.names[str(frame.key)]
            frame.container[frame.key] = value
            frame.has_key = False
        self._document.marks[path] = mark
        if isinstance(event, ScalarEvent) and event.style == "|":
            self._document.blocks.add(path)
        return path

    def _key(self, frame: _Frame, event: NodeEvent) -> None:
        if not isinstance(event, ScalarEvent):
            raise self._error(event, "a key must be a word or a whole number, not a collection")
        key = self._scalar(event)
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise self._error(
                event, f"a key must be a word or a whole number (got {event.value}); quote it"
            )
        if str(key) in frame.names:
            line = frame.names[str(key)][0]
            raise self._error(
                event, f"key {str(key)!r} is already given in line {line}; remove one of the two"
            )
        frame.names[str(key)] = event.start_mark.line + 1, event.start_mark.column + 1
        frame.key, frame.has_key = key, True

    def _scalar(self, event: ScalarEvent) -> Plain:
        text: str = event.value
        if event.implicit[0]:  # Plain, so the core schema decides what it is.
            try:
                return plain_scalar(text)
            except ValueError as error:  # Python refuses more than 4300 digits.
                raise self._error(event, f"a number of {len(text)} digits is too long") from error
        if any("\ud800" <= character <= "\udfff" for character in text):
            try:  # JSON writes characters beyond U+FFFF as pairs of surrogates.
                return text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError as error:
                raise self._error(event, "half of a surrogate pair is not a character") from error
        return text

    def _error(self, event: Event, reason: str) -> ConfigError:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        key = dotted([*self._frames[-1].path, *self._open_key()]) if self._frames else ""
        place = f"{self._document.name}:{line}:{column}: "
        return problems([f"{place}{key}: {reason}" if key else f"{place}{reason}"])

    def _open_key(self) -> list[str]:
        frame = self._frames[-1]
        return [str(frame.key)] if frame.has_key else []


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of a scalar without quotes, by the core schema.

    Raises:
        ValueError: if the text is a number of too many digits.
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text):
        prefix = text[:2]
        base = {"0o": 8, "0x": 16}.get(prefix, 10)
        return int(text[2:] if base != 10 else text, base)
    return float(text) if _FLOAT.fullmatch(text) else text


def dump_yaml(data: JsonData) -> str:
    """Plain data as YAML that ``parse_yaml`` reads back as it was, in the same order."""
    if isinstance(data, dict | list) and data:
        return "".join(f"{line}\n" for line in _lines(data))
    return f"{_flow(data)}\n"


def _lines(data: Mapping[str, JsonData] | Sequence[JsonData]) -> Iterator[str]:
    items: Iterable[tuple[str, JsonData]]
    items = data.items() if isinstance(data, Mapping) else (("-", value) for value in data)
    for key, value in items:
        head = f"{_flow(key)}:" if isinstance(data, dict) else "-"
        nested = isinstance(value, dict) or (
            isinstance(value, list) and any(isinstance(part, dict | list) for part in value)
        )
        if value and nested and isinstance(data, dict) and isinstance(value, dict | list):
            yield head
            yield from (f"  {line}" for line in _lines(value))
        else:
            yield f"{head} {_flow(value)}"


def _flow(value: JsonData) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str):
        if _WORD.fullmatch(value) and value not in _SPECIAL:
            return value
        return json.dumps(value).replace("\x7f", "\\x7f")  # JSON allows it raw, YAML does not.
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    return json.dumps(value)
