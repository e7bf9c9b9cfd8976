"""YAML files as plain data with the place of every value.

The rules are those of YAML 1.2's core schema (``1e-3`` is a number, ``no`` is a string), with
less to go wrong: no tags, anchors or aliases, one document, no key twice. A file has at most
128 KiB, 6,000 keys and values, and 50 levels, so that any is answered within a second; who reads
data from files gives other limits. JSON is a subset. ``empo_core.config.files`` is the public face
of this module.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

from empo_core.errors import ConfigError
from empo_core.printable import printable
from empo_core.trees import JsonData

MAX_BYTES = 2**17
MAX_DEPTH = 50
MAX_VALUES = 6_000
"""Keys and values of a file: the parser takes some 100 microseconds for each."""
MAX_PROBLEMS = 100
"""Lines of one error."""
MAX_NUMBER = 2**53
"""Largest whole number of a file, the last up to which doubles hold all."""
_MAX_LINE = 4000

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str | int, Plain] | None"
"""Data of a document."""
Loc = Sequence[str | int]
"""Path of a value in a document: keys and list positions from the root."""

_WORD = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
_KEY = re.compile(r"[\w/+-]+")
_CORE_SCHEMA: list[tuple[re.Pattern[str], Callable[[str], int | float | bool | None]]] = [
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    # Python refuses thousands of digits.
    (re.compile(r"[-+]?[0-9]+"), lambda text: int(text) if len(text) < 400 else MAX_NUMBER + 1),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda t: float(t.replace(".", ""))),
]
"""What plain scalars stand for; all others are strings."""
_COLUMNS = "lines that belong together begin in the same column"
_SYNTAX = [
    (r"found character '\\t'", "problem", "a tab stands here; indent with spaces"),
    (
        r"found character (.+) that cannot",
        "problem",
        r"a value cannot begin with \1; put quotes around it",
    ),
    (
        r"mapping values are not allowed",
        "problem",
        f"a ': ' cannot stand here; {_COLUMNS}, and a text that has a ': ' needs quotes",
    ),
    (r"expected <block end>", "problem", f"this line fits to none of those above; {_COLUMNS}"),
    (
        r"could not find expected ':'",
        "context",
        "there is no ': ' after this key; write 'key: value'",
    ),
    (r"another document", "problem", "a second document starts here; only one is allowed"),
    (
        r"flow node.*<stream end>",
        "problem",
        "the file ends where a value should follow; close what '[' or '{{' opened",
    ),
    (r" flow ", "problem", "what opens in line {} lacks its bracket, or a ',' before this"),
    (r"quoted scalar", "context", "the quotation mark that opens here is never closed"),
]
"""What the parser says of mistakes, which of its two marks has the place, and words for people."""
NO_BLANK = re.compile(r"[ -]*\w[\w.]*(?P<colon>:)[^\s:/]")
"""Begin of a line that is meant as a key and a value, and read as one text."""
BLANK = "a blank is missing after this ':'; write 'key: value'"
TOO_DEEP = f"nesting is deeper than {MAX_DEPTH} levels; flatten it"
_NO_ANCHORS = (
    "every value stands where it is used, since a few nested aliases can stand for gigabytes; "
    "repeat the value"
)
_NO_TAGS = "a file is plain data, and tags make it into something else; remove it"


class Limits(NamedTuple):
    """How large a file may be.

    Attributes:
        bytes: Of the file.
        values: Keys and values.
        remedy: What to do about a file that is larger.
    """

    bytes: int = MAX_BYTES
    values: int = MAX_VALUES
    remedy: str = "shorten or split it"


CONFIG_LIMITS = Limits()
"""Of configs, and of worlds that are drawn or described by hand."""


class FileTooLargeError(ConfigError):
    """A file beyond its limits.

    Attributes:
        limits: Those limits.
    """

    def __init__(self, message: str, limits: Limits) -> None:
        super().__init__(message)
        self.limits = limits


class Mark(NamedTuple):
    """Where a value stands in a file; lines and columns count from 1.

    Attributes:
        line: Of its key, or of the item of a list.
        column: Of that.
        value_line: Of the value.
        value_column: Of the value.
        style: Of a string: its quotation mark, ``"|"`` of literal blocks, or nothing.
    """

    line: int
    column: int
    value_line: int
    value_column: int
    style: str


@dataclass
class Document:
    """Plain data, and the place of each value in the file.

    Attributes:
        name: What people call the source: the path as it was given.
        data: Dicts, lists, strings, numbers, booleans and None.
        base: The folder that relative paths in the document refer to, absolute.
        text: What was read.
        marks: Where each value stands, or the name of the override that set it.
    """

    name: str
    data: Plain
    base: Path
    text: str = field(default="", repr=False)
    marks: dict[tuple[str, ...], Mark | str] = field(default_factory=dict, repr=False)

    def locate(self, loc: Loc) -> tuple[int, int]:
        """The line and column (from 1) of the key at ``loc``, or of its nearest ancestor."""
        mark = self._mark(loc)
        return (1, 1) if isinstance(mark, str) else (mark.line, mark.column)

    def place(self, loc: Loc) -> str:
        """``file:line:column`` of the key at ``loc``, or the override that set it."""
        mark = self._mark(loc)
        return mark if isinstance(mark, str) else f"{self.name}:{mark.line}:{mark.column}"

    def place_in_text(self, loc: Loc, row: int, column: int) -> str:
        """``file:line:column`` of a character of the string at ``loc``, whose rows are from 0."""
        mark = self._mark(loc)
        if isinstance(mark, str):
            return mark
        if mark.style == "|":
            following = itertools.islice(self.text.split("\n"), mark.value_line, None)
            first = next((line for line in following if line.strip()), "")
            indentation = len(first) - len(first.lstrip(" "))
            return f"{self.name}:{mark.value_line + 1 + row}:{indentation + column + 1}"
        # All on one line of the file, where ends of lines are written as two characters.
        above = sum(len(line) + 2 for line in str(self.value(loc)).split("\n")[:row])
        begin = mark.value_column + bool(mark.style)
        return f"{self.name}:{mark.value_line}:{begin + above + column}"

    def below(self, key: str) -> Document:
        """The value under one key as a document of its own, whose places are the same."""
        marks = {path[1:]: mark for path, mark in self.marks.items() if path[:1] == (key,)}
        return Document(self.name, deepcopy(self.value([key])), self.base, self.text, marks)

    def _mark(self, loc: Loc) -> Mark | str:
        if not self.marks:  # Large JSON was read without places.
            with contextlib.suppress(_MistakeError):  # JSON may have what YAML has not: no places.
                _read(self, math.inf)
        path = tuple(map(str, loc))
        while path not in self.marks and path:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1, 1, 1, ""))

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


def read_yaml(path: str | Path, limits: Limits = CONFIG_LIMITS) -> Document:
    """Read a YAML or JSON file.

    Raises:
        ConfigError: if the file cannot be read, or is not YAML as this project accepts it; the
            message is ``file:line:column: reason``.
        FileTooLargeError: if the file is beyond its limits.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(limits.bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path.
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise problems([f"{path}:1:1: cannot be read: {reason}; check the path"]) from error
    return parse_yaml(raw, name=str(path), base=path.resolve().parent, limits=limits)


def parse_yaml(
    source: bytes | str, *, name: str, base: str | Path = ".", limits: Limits = CONFIG_LIMITS
) -> Document:
    """Read YAML from memory; ``name`` stands for the file in messages.

    Raises:
        ConfigError: if the source cannot be parsed, as for ``read_yaml``.
        FileTooLargeError: if the source is beyond its limits.
    """
    raw = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if len(raw) > limits.bytes:
        reason = f"is larger than {limits.bytes:,} bytes; {limits.remedy}"
        raise FileTooLargeError(str(problems([f"{name}:1:1: {reason}"])), limits)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        prefix = raw[: error.start].decode("utf-8-sig", "replace")
        reason = f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        line, column = _end_of(prefix)
        raise problems([f"{name}:{line}:{column}: {reason}"]) from error
    if name.endswith(".json"):
        text = text.replace("\t", " ")  # JSON may be indented by tabs and has none in strings.
    document = Document(name=name, data=None, base=Path(base).resolve(), text=text)
    if len(raw) > MAX_BYTES and (data := _plain_json(text, limits.values)) is not None:
        document.data = data
        return document
    try:
        document.data = _read(document, limits.values)
    except _TooManyError as error:
        (line, column), _, _ = error.args
        reason = f"the file has more than {limits.values:,} keys and values; {limits.remedy}"
        error_text = str(problems([f"{name}:{line}:{column}: {reason}"]))
        raise FileTooLargeError(error_text, limits) from error
    except _MistakeError as error:
        (line, column), reason, path = error.args
        key = f"{dotted(path)}: " if path else ""
        raise problems([f"{name}:{line}:{column}: {key}{reason}"]) from error
    return document


def _plain_json(text: str, max_values: int) -> Plain:
    """The data of a JSON text, much sooner than as YAML; None where it has to be read as that."""

    def mapping(pairs: list[tuple[str, Plain]]) -> dict[str, Plain]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            raise ValueError("a key is given twice")
        return unique

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is no JSON")

    without_strings = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", without_strings))
    is_odd = re.search(r"\\u[dD][89a-fA-F]", text)  # Half of a surrogate pair may be missing.
    too_deep = max(itertools.accumulate(steps, initial=0)) > MAX_DEPTH
    if is_odd or too_deep or text.count(",") + text.count(":") >= max_values:
        return None
    try:
        data: Plain = json.loads(
            text, object_pairs_hook=mapping, parse_constant=refuse, parse_int=plain_scalar
        )
    except (ValueError, RecursionError):  # Whoever reads it as YAML says what is wrong, and where.
        return None
    return data


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
    """Line and column (from 1), reason and key path of what is not YAML as accepted here."""


class _TooManyError(_MistakeError):
    """As ``_MistakeError``, of what has more keys and values than it may."""


class _Scanner(Scanner):
    """Stops at a bracket too deep, since it reads a thousand open ones before its first event."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if len(self.flow_context) >= MAX_DEPTH:
            raise _MistakeError(_place(self.reader.get_mark()), TOO_DEEP, ())
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Composer(Composer):
    """Refuses what a file must not have where the parser meets it."""

    max_values: float = math.inf
    _num_values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose the next value, whose key or position in ``parent`` is ``index``."""
        event = self.parser.peek_event()
        self._num_values += 1
        if isinstance(event, AliasEvent):
            reason = f"alias '*{event.anchor}' is not allowed: {_NO_ANCHORS}"
        elif self._num_values > self.max_values:
            raise _TooManyError(_place(event.start_mark), "", ())
        elif event.anchor is not None:
            reason = f"anchor '&{event.anchor}' is not allowed: {_NO_ANCHORS}"
        elif event.tag is not None:
            reason = f"tag {str(event.tag)!r} is not allowed: {_NO_TAGS}"
        elif isinstance(event, CollectionStartEvent) and self.depth >= MAX_DEPTH:
            reason = TOO_DEEP
        else:
            return super().compose_node(parent, index)
        raise _MistakeError(_place(event.start_mark), reason, ())


@lru_cache(maxsize=1)  # A large world is read first as what might be a config, and then as one.
def _compose(text: str, max_values: float = math.inf) -> Any:
    """The text as a node with marks; None where the text is empty.

    Raises:
        _MistakeError: if the text is not YAML, or has more than plain data.
        _TooManyError: if the text has more keys and values than it may.
    """
    parser = YAML(typ="safe", pure=True)
    parser.Scanner, parser.Composer = _Scanner, _Composer
    parser.composer.max_values = max_values
    try:
        return parser.compose(text)
    except _MistakeError:
        raise
    except MarkedYAMLError as error:
        raise (_missing_blank(text, error) or _syntax_mistake(error)) from error
    except ReaderError as error:
        reason = f"control character {chr(error.character)!r} is not allowed; remove it"
        raise _MistakeError(_end_of(text[: error.position]), reason, ()) from error
    except Exception as error:  # The parser has a few bugs, e.g. on "\UFFFFFFFF".
        raise _MistakeError((1, 1), f"is not valid YAML: {error}", ()) from error


def _missing_blank(text: str, error: MarkedYAMLError) -> _MistakeError | None:
    """The mistake if the line before the one that the parser stops at is ``key:value``."""
    if error.problem_mark is None or "mapping values" not in str(error.problem):
        return None
    above = text.split("\n")[: error.problem_mark.line]
    line = next((i for i in reversed(range(len(above))) if above[i].strip()), None)
    if line is None or not (match := NO_BLANK.match(above[line])):
        return None
    return _MistakeError((line + 1, match.start("colon") + 1), BLANK, ())


def _syntax_mistake(error: MarkedYAMLError) -> _MistakeError:
    """A mistake of syntax in words about the file."""
    text = f"{error.context} {error.problem}"
    marks = {"problem": error.problem_mark, "context": error.context_mark}
    mark = marks["problem"] or marks["context"]
    for pattern, place, words in _SYNTAX:
        if match := re.search(pattern, text):
            opening = marks["context"] or mark
            reason = match.expand(words).format(opening.line + 1)
            return _MistakeError(_place(marks[place] or mark), reason, ())
    return _MistakeError(_place(mark), f"is not valid YAML: {' '.join(text.split())}", ())


def _read(document: Document, max_values: float) -> Plain:
    """The data of a document's text; the places of all values are noted in the document.

    Raises:
        _MistakeError: if the text is not YAML, or has more than plain data.
    """
    root = _compose(document.text, max_values)
    if root is None:
        return None
    document.marks[()] = _mark_of(root, root)
    return _data(root, (), document)


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
            if key == "<<" and key_node.style is None:
                reason = f"merge keys (<<) are not allowed: {_NO_ANCHORS}"
                raise _MistakeError(_place(key_node.start_mark), reason, path)
            if inner in document.marks:
                line, _ = document.locate(inner)
                reason = f"key {str(key)!r} is already given in line {line}; remove one of the two"
                raise _MistakeError(_place(key_node.start_mark), reason, path)
            if node.flow_style and isinstance(key, int) and value.start_mark == value.end_mark:
                reason = "a ',' begins the next key here; write numbers without, e.g. 1000"
                raise _MistakeError(_place(key_node.start_mark), reason, path)
            document.marks[inner] = _mark_of(key_node, value)
            mapping[key] = _data(value, inner, document)
        return mapping
    if isinstance(node, SequenceNode):
        items: list[Plain] = []
        for position, item in enumerate(node.value):
            inner = (*path, str(position))
            document.marks[inner] = _mark_of(item, item)
            items.append(_data(item, inner, document))
        return items
    return _scalar(node, path)


def _key(node: Any, path: Loc) -> str | int:
    reason = "a key must be a word or a whole number, not a collection"
    if isinstance(node, ScalarNode):
        key = _scalar(node, path)
        if isinstance(key, str | int) and not isinstance(key, bool):
            return key
        reason = f"a key must be a word or a whole number (got {node.value}); quote it"
    raise _MistakeError(_place(node.start_mark), reason, path)


def _scalar(node: Any, path: Loc) -> str | int | float | bool | None:
    text: str = node.value
    try:
        if not node.style:  # Without quotes, so the core schema decides what it is.
            return plain_scalar(text)
        # JSON writes characters beyond U+FFFF as pairs of surrogates.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        reason = "half of a surrogate pair is not a character"
        raise _MistakeError(_place(node.start_mark), reason, path) from error
    except ValueError as error:
        raise _MistakeError(_place(node.start_mark), str(error), path) from error


def _place(mark: Any) -> tuple[int, int]:
    """The line and column, from 1, of a mark of the parser."""
    return mark.line + 1, mark.column + 1


def _mark_of(key: Any, value: Any) -> Mark:
    style = (isinstance(value, ScalarNode) and value.style) or ""
    return Mark(*_place(key.start_mark), *_place(value.start_mark), style)


def _end_of(text: str) -> tuple[int, int]:
    """The line and column right after a text."""
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of a scalar without quotes, by the core schema.

    Raises:
        ValueError: if the text is a whole number that doubles do not hold.
    """
    for pattern, value_of in _CORE_SCHEMA:
        if pattern.fullmatch(text):
            value = value_of(text)
            if isinstance(value, int) and abs(value) > MAX_NUMBER:
                raise ValueError("is beyond 2^53 in size, up to which whole numbers go here")
            return value
    return text


def dump_yaml(data: JsonData) -> str:
    """Plain data as YAML that ``parse_yaml`` reads back as it was, in the same order."""
    return "".join(f"{line}\n" for line in _lines(data))


def _lines(data: JsonData) -> Iterator[str]:
    """Mappings in mappings key by key, everything else on one line."""
    if not (isinstance(data, dict) and data):
        yield _flow(data)
        return
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield f"{_flow(key)}:"
            yield from (f"  {line}" for line in _lines(value))
        else:
            yield f"{_flow(key)}: {_flow(value)}"


def _flow(value: JsonData) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value) and plain_scalar(value) == value:
        return value
    text = json.dumps(value).replace("\x7f", "\\x7f")  # JSON allows it raw, YAML does not.
    return {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}.get(text, text)
