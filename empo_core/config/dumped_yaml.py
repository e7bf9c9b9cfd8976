"""Reading what ``dump_yaml`` wrote, some fifty times faster than by a parser of all of YAML."""

from __future__ import annotations

import re
from functools import lru_cache

from empo_core.config.yaml import MAX_BYTES, MAX_DEPTH, Plain, parse_value, parse_yaml, plain_scalar
from empo_core.errors import ConfigError
from empo_core.trees import Json

_LINE = re.compile(r"((?:  )*)([A-Za-z_][A-Za-z0-9_./+-]*:|-)(?: (.+))?")
_PLAIN = re.compile(r"([A-Za-z0-9_./+]|-[0-9.])[A-Za-z0-9_./+-]*")
_QUOTED = re.compile(r'"([^"\\\x00-\x1f\x7f-\U0010ffff]*)"')


class _Other(Exception):
    """YAML that ``dump_yaml`` does not write."""


def read_dumped(text: str, name: str) -> Json:
    """JSON data, which is not to be changed: equal parts of several files may be shared.

    Args:
        text: YAML; what ``dump_yaml`` would have written in another way takes longer.
        name: Stands for the file in messages.

    Raises:
        ConfigError: It is not YAML as this project accepts it.
    """
    try:
        return _read(text)
    except (_Other, ConfigError):
        return _json(parse_yaml(text, name=name).data)


def _json(value: Plain) -> Json:
    """The value with whole numbers that are keys as strings."""
    if isinstance(value, dict):
        return {str(key): _json(below) for key, below in value.items()}
    return [_json(below) for below in value] if isinstance(value, list) else value


def _read(text: str) -> Json:
    if len(text) > MAX_BYTES:
        raise _Other
    root: dict[str, Json] = {}
    open_: list[dict[str, Json] | list[Json]] = [root]
    pending: str | None = None  # A key whose value begins in the next line.
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise _Other
        head, value = found[2], found[3]
        depth = len(found[1]) // 2
        if pending is not None:
            parent = open_[-1]
            if not depth == len(open_) < MAX_DEPTH or not isinstance(parent, dict):
                raise _Other
            nested: dict[str, Json] | list[Json] = [] if head == "-" else {}
            parent[pending] = nested
            open_.append(nested)
            pending = None
        elif depth >= len(open_):
            raise _Other
        del open_[depth + 1 :]
        container = open_[-1]
        if isinstance(container, list):
            if head != "-" or value is None:
                raise _Other
            container.append(_value(value))
            continue
        key = _key(head)
        if key in container:
            raise _Other
        if value is None:
            pending = key
        else:
            container[key] = _value(value)
    if pending is not None or not root:
        raise _Other
    return root


@lru_cache(maxsize=4096)
def _key(head: str) -> str:
    key = plain_scalar(head[:-1])
    if not isinstance(key, str):
        raise _Other
    return key


@lru_cache(maxsize=4096)
def _value(text: str) -> Json:
    if _PLAIN.fullmatch(text):
        try:
            return plain_scalar(text)
        except ValueError as error:
            raise _Other from error
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return quoted[1]
    value = parse_value(text) if text[0] in '[{"' else None
    if value is None or (text[0] == '"' and not isinstance(value, str)):
        raise _Other  # Such as "a": 1, which is no value, or what only a parser tells from one.
    return _json(value)
