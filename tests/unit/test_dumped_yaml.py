"""The quick reader of dumped configs agrees with the parser of YAML about every text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.config import dumped_yaml
from empo_core.config.dumped_yaml import read_dumped
from empo_core.config.yaml import Document, dump_yaml, parse_yaml
from empo_core.errors import ConfigError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
WORDS = st.text(st.sampled_from("ab1.-+_/"), min_size=1, max_size=4)
KEYS = WORDS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=8,
)
PIECES = st.sampled_from([
    "a", "b", "1", "null", "-", "- ", ": ", ":", "\n", "\n  ", "\n    ", " ", '"', "'", "#", " #",
    "[", "]", "{", "}", ", ", "|", ">", "&a", "*a", "!x", "?", "---", "...", ".inf", "-1", "\t",
])  # fmt: skip


def with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): with_text_keys(below) for key, below in value.items()}
    return [with_text_keys(below) for below in value] if isinstance(value, list) else value


def parsed(text: str) -> object:
    try:
        return with_text_keys(parse_yaml(text, name="file").data)
    except ConfigError as error:
        return str(error)


def read(text: str) -> object:
    try:
        return read_dumped(text, "file")
    except ConfigError as error:
        return str(error)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_was_dumped_is_read_as_it_was(data: dict[str, object]) -> None:
    text = dump_yaml(data)
    assert read(text) == parsed(text) == data
    assert repr(read(text)) == repr(parsed(text))  # 1 is not 1.0, and not true.


@settings(max_examples=100)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_is_read_as_the_parser_reads_it(text: str) -> None:
    assert repr(read(text)) == repr(parsed(text))


@pytest.mark.parametrize(
    "text",
    [
        "a: b: c\n", 'a: "b": c\n', "a: -\n", "a: |\n  b\n", "a:\n- b\n", "a: 1\na: 2\n", "a:\n",
        "a: b # c\n", "a: 'b'\n", "a: 0x1F\nb: 0o17\n", "a: ''\n", "---\na: 1\n", "a: *b\n",
        "a:\n  - b:\n      c\n", "a: &x 1\n", "a: b\n  c: d\n", "a: [1,\n  2]\n", "null: 1\n",
        "a: 1\r\nb: 2\r\n", "a: .nan\n", "1: 2\n", "- a\n- b\n", "", "a: " + "9" * 5000 + "\n",
        "".join(f"{'  ' * depth}a:\n" for depth in range(60)) + "  " * 60 + "a: 1\n",
    ],
)  # fmt: skip
def test_hand_written_yaml_is_read_as_the_parser_reads_it(text: str) -> None:
    assert repr(read(text)) == repr(parsed(text))


def test_a_dumped_config_needs_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: bytes | str, *, name: str) -> Document:
        raise AssertionError(source)

    text = dump_yaml({"a": {"b": [1, 2.5, "x y"], "c": None}, "list": [{"name": "d"}], "e-f": -1.0})
    monkeypatch.setattr(dumped_yaml, "parse_yaml", refuse)
    assert read_dumped(text, "file")
