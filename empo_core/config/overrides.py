"""Overrides: single values of a document that a command line or a sweep sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from empo_core.config.errors import quote
from empo_core.config.yaml import Document, Plain, parse_value, problems
from empo_core.errors import ConfigError

COMMAND_LINE = "command line"
"""The place of what is typed there."""
_PERMISSION = "allow_"
"""Begin of keys that widen whom a run trusts; a line to copy and paste must not do that."""


def apply_override(document: Document, override: str) -> None:
    """Set one value of a document as ``key.path=value`` says.

    Raises:
        ConfigError: if the override is malformed or its path leads nowhere.
    """
    key, equals, text = override.partition("=")
    key = key.strip()

    parts = key.split(".")
    if not equals or not all(parts):
        raise problems([f"{COMMAND_LINE}: {key}: write key.path=value (got {override!r})"])
    try:
        value = parse_value(text)
    except ConfigError as error:
        reason = str(error).splitlines()[0].partition(": ")[2]
        raise problems([f"{COMMAND_LINE}: {key}: the value {text!r}: {reason}"]) from error
    set_value(document, key, value, COMMAND_LINE)


def set_value(document: Document, key: str, value: Plain, place: str) -> None:
    """Set one value of a document.

    Args:
        document: What ``read_yaml`` returned.
        key: Its dotted path; what is missing on the way is made.
        value: The value.
        place: The origin of the value, for errors.

    Raises:
        ConfigError: if the path leads nowhere.
    """
    path = tuple(key.split("."))

    def wrong(reason: str) -> ConfigError:
        return problems([f"{place}: {key}: {reason}"])

    for name in (*path, *_keys(value)):
        if place == COMMAND_LINE and name.startswith(_PERMISSION):
            raise wrong(
                f"{name} is a permission, which counts only where the config file itself has it"
            )
    if document.data is None:
        document.data = {}
    _assign(document, path, value, wrong)
    for marked in [marked for marked in document.marks if marked[: len(path)] == path]:
        del document.marks[marked]
    for depth in range(1, len(path)):
        document.marks.setdefault(path[:depth], place)  # It opened those.
    document.marks[path] = place


def _keys(value: Plain) -> Iterator[str]:
    """The keys of all mappings in a value."""
    if isinstance(value, dict):
        yield from map(str, value)
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _keys(part)


def _assign(
    document: Document, parts: Sequence[str], value: Plain, wrong: Callable[[str], ConfigError]
) -> None:
    """Put ``value`` where ``parts`` lead, opening mappings and bare component names."""
    node = document.data
    for depth, part in enumerate(parts):
        parent = ".".join(parts[:depth]) or "the config"
        put: Callable[[Plain], None]
        if isinstance(node, list):
            if not (part.isdecimal() and int(part) <= len(node)):
                raise wrong(f"{parent} is a list; positions 0 to {len(node)} exist (got {part!r})")
            if int(part) == len(node):
                node.append(None)
            child, put = node[int(part)], partial(node.__setitem__, int(part))
        elif isinstance(node, dict):
            key = next((existing for existing in node if str(existing) == part), part)
            child, put = node.get(key), partial(node.__setitem__, key)
        else:
            raise wrong(f"{parent} is {quote(node)}; it has no key {part!r}")
        if depth == len(parts) - 1:
            child = value
        elif child is None:
            child = {}
        elif isinstance(child, str):
            child = {"name": child}  # A bare name is short for one without params.
        put(child)
        node = child
