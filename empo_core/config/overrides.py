"""Overrides: single values of a document that a command line or a sweep sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from empo_core.config.errors import quote
from empo_core.config.models import Typed, walk
from empo_core.config.yaml import MAX_DEPTH, TOO_DEEP, Document, Plain, parse_value, problems
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
    set_value(document, key, _typed(value), COMMAND_LINE)


def _typed(value: Plain) -> Plain:
    """The same value, whose texts are known as those of the command line."""
    if isinstance(value, dict):
        return {key: _typed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_typed(part) for part in value]
    return Typed(value) if isinstance(value, str) else value


def set_value(document: Document, key: str, value: Plain, place: str) -> None:
    """Set one value of a document.

    Args:
        document: What ``read_yaml`` returned.
        key: Its dotted path; what is missing on the way is made.
        value: The value.
        place: The origin of the value, for errors.

    Raises:
        ConfigError: if the path leads nowhere, or deeper than files may go.
    """
    path = tuple(key.split("."))

    def wrong(reason: str) -> ConfigError:
        return problems([f"{place}: {key}: {reason}"])

    if len(path) + max((len(loc) for loc, _, _ in walk(value)), default=0) > MAX_DEPTH:
        raise problems([f"{place}: {'.'.join(path[:5])}...: {TOO_DEEP}"])
    for name in (*path, *(str(part) for loc, _, _ in walk(value) for part in loc)):
        if place == COMMAND_LINE and name.startswith(_PERMISSION):
            raise wrong(
                f"{name} is a permission, which counts only where the config file itself has it"
            )
    inside = [marked for marked in document.marks if marked[: len(path)] == path]
    lost = [marked for marked in inside if marked != path and document.marks[marked] == place]
    if place == COMMAND_LINE and lost:
        raise wrong(
            f"would replace {'.'.join(map(str, lost[-1]))}, which an earlier word sets; write "
            f"{key}=... first"
        )
    document.data = _assigned(document.data, path, 0, value, wrong)
    for marked in inside:
        del document.marks[marked]
    for depth in range(1, len(path)):
        document.marks.setdefault(path[:depth], place)  # It opened those.
    document.marks[path] = place


def _assigned(
    node: Plain,
    path: Sequence[str],
    depth: int,
    value: Plain,
    wrong: Callable[[str], ConfigError],
) -> Plain:
    """What stands at the first ``depth`` keys of a path, with a value at the end of the path."""
    if depth == len(path):
        return value
    part, parent = path[depth], ".".join(path[:depth]) or "the config"
    if node is None:
        node = {}
    elif isinstance(node, str):
        node = {"name": node}  # A bare name is short for one without params.
    if isinstance(node, list):
        if not (part.isdecimal() and len(part) < 10 and int(part) <= len(node)):
            raise wrong(f"{parent} is a list; positions 0 to {len(node)} exist (got {part!r})")
        at = int(part)
        inner = _assigned(node[at] if at < len(node) else None, path, depth + 1, value, wrong)
        return [*node[:at], inner, *node[at + 1 :]]
    if isinstance(node, dict):
        key = next((existing for existing in node if str(existing) == part), part)
        return {**node, key: _assigned(node.get(key), path, depth + 1, value, wrong)}
    raise wrong(f"{parent} is {quote(node)}; it has no key {part!r}")
