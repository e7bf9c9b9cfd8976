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
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

from empo_core.errors import ConfigError
from empo_core.printable import printable
from empo_core.trees import JsonData

MAX_BYTES = 2**17
MAX_DEPTH = 50
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
_COLON = re.compile(r":(\s|$)")
_BREAK = re.compile("\r\n|[\n\r]")
"""Ends of lines as the parser counts them."""
_INDENT = "lines that belong together begin in the same column"
_QUOTES = ("'", '"')
_TOO_DEEP = f"nesting is deeper than {MAX_DEPTH} levels; flatten it"
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
        strings: Line, column and style of each string: ``""``, a quotation mark, or ``"|"`` of
            literal blocks, whose lines lie below that place.
    """

    name: str
    data: Plain
    base: Path
    text: str = field(default="", repr=False)
    marks: dict[tuple[str, ...], tuple[int, int] | str] = field(default_factory=dict, repr=False)
    strings: dict[tuple[str, ...], tuple[int, int, str]] = field(default_factory=dict, repr=False)

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
        line, start, style = self.strings.get(tuple(map(str, loc)), (*mark, ""))
        if not self.is_block(loc):  # Then it is on one line.
            return f"{self.name}:{line}:{start + (style in _QUOTES) + column}"
        following = itertools.islice(self.text.split("\n"), line, None)
        first = next((text for text in following if text.strip()), "")
        return f"{self.name}:{line + 1 + row}:{_indentation(first) + column + 1}"

    def is_block(self, loc: Loc) -> bool:
        """True if the string at ``loc`` is a literal block (``|``)."""
        return self.strings.get(tuple(map(str, loc)), (0, 0, ""))[2] == "|"

    def below(self, key: str) -> Document:
        """The value under one key as a document of its own, whose places are the same."""
        marks = {path[1:]: mark for path, mark in self.marks.items() if path[:1] == (key,)}
        strings = {path[1:]: place for path, place in self.strings.items() if path[:1] == (key,)}
        data = deepcopy(self.value([key]))
        return Document(self.name, data, self.base, self.text, marks, strings)

    def _mark(self, loc: Loc) -> tuple[int, int] | str:
        path = tuple(map(str, loc))
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
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path.
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise problems([f"{path}:1:1: cannot be read: {reason}; check the path"]) from error
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
        raise problems(["{}:{}:{}: {}".format(name, *_end_of(prefix), reason)]) from error
    if name.endswith(".json"):
        text = text.replace("\t", " ")  # JSON may be indented by tabs and has none in strings.
    document = Document(name=name, data=None, base=Path(base).resolve(), text=text)
    try:
        if (root := _compose(text)) is not None:
            document.marks[()] = _place(root.start_mark)
            document.data = _data(root, (), document)
    except _MistakeError as error:
        key = f"{dotted(error.path)}: " if error.path else ""
        place = f"{name}:{error.line}:{error.column}"
        raise problems([f"{place}: {key}{error.reason}"]) from error
    return document


def parse_value(text: str) -> Plain:
    """A value as YAML reads it, e.g. the right side of ``key=value``.

    Raises:
        ConfigError: if the text is not a single YAML value.
    """
    return parse_yaml(text, name="value").data


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


class _MistakeError(Exception):
    """A file is not YAML as this project accepts it.

    Attributes:
        line: Line of the mistake, from 1.
        column: Column of the mistake, from 1.
        reason: What is wrong, and what to do.
        path: Keys of the value that has the mistake.
    """

    def __init__(self, line: int, column: int, reason: str, path: Loc = ()) -> None:
        super().__init__(reason)
        self.line, self.column, self.reason, self.path = line, column, reason, path


class _Scanner(Scanner):
    """Stops at a bracket too deep, since it reads a thousand open ones before its first event."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if len(self.flow_context) >= MAX_DEPTH:
            raise _MistakeError(*_place(self.reader.get_mark()), _TOO_DEEP)
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Composer(Composer):
    """Refuses what a file must not have where the parser meets it."""

    _num_values = 0
    _path: Loc = ()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose the next value, whose key or position in ``parent`` is ``index``."""
        event, above = self.parser.peek_event(), self._path
        self._num_values += 1
        if isinstance(index, ScalarNode):
            self._path = (*above, index.value)
        if isinstance(event, AliasEvent):
            reason = f"alias '*{event.anchor}' is not allowed: {_NO_ANCHORS}"
        elif self._num_values > MAX_VALUES:
            reason = f"the file has more than {MAX_VALUES:,} keys and values; shorten or split it"
        elif event.anchor is not None:
            reason = f"anchor '&{event.anchor}' is not allowed: {_NO_ANCHORS}"
        elif event.tag is not None:
            reason = f"tag {str(event.tag)!r} is not allowed: {_NO_TAGS}"
        elif isinstance(event, CollectionStartEvent) and self.depth >= MAX_DEPTH:
            reason = _TOO_DEEP
        else:
            if isinstance(index, int):
                self._path = (*above, index)
            node = super().compose_node(parent, index)
            self._path = above
            return node
        raise _MistakeError(*_place(event.start_mark), reason, self._path)


def _compose(text: str) -> Node | None:
    """The text as nodes with marks; None where the text is empty.

    Raises:
        _MistakeError: if the text is not YAML, or has more than plain data.
    """
    parser = YAML(typ="safe", pure=True)
    parser.Scanner, parser.Composer = _Scanner, _Composer
    try:
        node: Node | None = parser.compose(text)
        return node
    except _MistakeError:
        raise
    except MarkedYAMLError as error:
        raise _MistakeError(*_syntax_mistake(error, text)) from error
    except ReaderError as error:
        reason = f"control character {chr(error.character)!r} is not allowed; remove it"
        raise _MistakeError(*_end_of(text[: error.position]), reason) from error
    except Exception as error:  # The parser has a few bugs, e.g. on "\UFFFFFFFF".
        raise _MistakeError(1, 1, f"is not valid YAML: {error}") from error


def _data(node: Any, path: tuple[str, ...], document: Document) -> Plain:
    """The data of a node; the places of all values in it are noted in the document.

    Raises:
        _MistakeError: if the node has a bad key, a key twice, or a bad scalar.
    """
    if isinstance(node, MappingNode):
        mapping: dict[str | int, Plain] = {}
        for key_node, value in node.value:
            key = _key(key_node, path)
            inner = (*path, str(key))
            if (mark := document.marks.get(inner)) is not None:
                reason = (
                    f"key {str(key)!r} is already given in line {mark[0]}; remove one of the two"
                )
                raise _MistakeError(*_place(key_node.start_mark), reason, path)
            document.marks[inner] = _place(key_node.start_mark)
            mapping[key] = _data(value, inner, document)
        return mapping
    if isinstance(node, SequenceNode):
        items: list[Plain] = []
        for position, item in enumerate(node.value):
            inner = (*path, str(position))
            document.marks[inner] = _place(item.start_mark)
            items.append(_data(item, inner, document))
        return items
    value = _scalar(node, path)
    if isinstance(value, str):
        document.strings[path] = (*_place(node.start_mark), node.style or "")
    return value


def _key(node: Node, path: Loc) -> str | int:
    place = _place(node.start_mark)
    if not isinstance(node, ScalarNode):
        reason = "a key must be a word or a whole number, not a collection"
        raise _MistakeError(*place, reason, path)
    key = _scalar(node, path)
    if isinstance(key, bool) or not isinstance(key, str | int):
        reason = f"a key must be a word or a whole number (got {node.value}); quote it"
        raise _MistakeError(*place, reason, path)
    return key


def _scalar(node: Any, path: Loc) -> str | int | float | bool | None:
    text: str = node.value
    try:
        if not node.style:  # Without quotes, so the core schema decides what it is.
            return plain_scalar(text)
        # JSON writes characters beyond U+FFFF as pairs of surrogates.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        reason = "half of a surrogate pair is not a character"
        raise _MistakeError(*_place(node.start_mark), reason, path) from error
    except ValueError as error:  # Python refuses more than 4300 digits.
        reason = f"a number of {len(text)} digits is too long"
        raise _MistakeError(*_place(node.start_mark), reason, path) from error


def _place(mark: Any) -> tuple[int, int]:
    """The line and column, from 1, of a mark of the parser."""
    return mark.line + 1, mark.column + 1


def _end_of(text: str) -> tuple[int, int]:
    """The line and column right after a text."""
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1


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


def _syntax_mistake(error: MarkedYAMLError, text: str) -> tuple[int, int, str]:
    """The line and column (from 1) of a mistake of syntax, and what to do about it.

    Args:
        error: What the parser says.
        text: What it was given.
    """
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    begin = error.context_mark.line if error.context_mark else line
    lines = _BREAK.split(text)
    problem, context = error.problem or "", error.context or ""
    if "cannot start any token" in problem:
        character = lines[line][column : column + 1]
        if character == "\t":
            reason = "a tab stands here; indent with spaces"
        else:
            reason = f"a value cannot begin with {character!r}; put quotes around it"
    elif "mapping values are not allowed" in problem:
        if _COLON.search(lines[line][:column]):
            reason = "a second ': ' in one line; begin a new line, or put quotes around the value"
        else:
            column = _indentation(lines[line])
            reason = f"this line is indented, but the one above has its value already; {_INDENT}"
    elif "expected <block end>" in problem:
        reason = f"this line fits to none of those above; {_INDENT}"
    elif "could not find expected ':'" in problem:
        line, column = begin, _indentation(lines[begin])
        reason = "there is no ': ' after the key in this line; write 'key: value'"
    elif "another document" in problem:
        reason = "a second document starts here; only one is allowed"
    elif "flow" in context:
        bracket = "}" if "mapping" in context else "]"
        reason = f"what opens in line {begin + 1} lacks a '{bracket}', or a ',' before this"
    elif "quoted scalar" in context:
        line, column = begin, error.context_mark.column if error.context_mark else column
        reason = "the quotation mark that opens here is never closed"
    else:
        words = " ".join(problem.split()) or "it cannot be read"
        reason = f"is not valid YAML: {words}"
    return line + 1, column + 1, reason


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


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
