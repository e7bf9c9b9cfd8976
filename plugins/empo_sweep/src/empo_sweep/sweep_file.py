"""Sweeps read from a file, or from a run's config and values on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from empo_compare.run_table import short_names
from empo_core.config.files import read_yaml, validate_document
from empo_core.config.overrides import COMMAND_LINE, apply_override
from empo_core.config.yaml import Document, Plain, parse_value, problems
from empo_core.documents import document_at, library_world
from empo_core.errors import ConfigError
from empo_sweep.arms import Sweep
from empo_sweep.sweep_config import SEED, WHOLE_NUMBERS, SweepConfig, expanded

_TABLES = ("over", "baseline")
"""Keys whose own keys are paths with dots."""


def read_sweep(file: str, overrides: Sequence[str]) -> Sweep:
    """The sweep in a file, or that of a run's config or a world by the values in ``overrides``.

    Raises:
        ConfigError: if the sweep is not valid, with one located line per problem.
    """
    world = library_world(file)
    path = Path(file) if world is None else world[1]
    data = (document := read_yaml(path)).data
    name: str | None = path.stem
    if isinstance(data, dict) and "base" in data:
        for override in overrides:
            _apply(document, override)
    else:
        document, name = _of_config(str(path.resolve()) if world is None else file, overrides), None
    config = validate_document(SweepConfig, document)
    name = config.name or name or "-".join([path.stem, *_short(config)])
    return Sweep(config=config, name=name, base=_base(config, document), document=document)


def _of_config(base: str, overrides: Sequence[str]) -> Document:
    """A sweep of a run's config; overrides with keys of sweeps belong to the sweep."""
    document = Document(
        name=COMMAND_LINE,
        data={"base": base, "over": {}},
        base=Path.cwd(),
        marks={("base",): COMMAND_LINE, ("over",): COMMAND_LINE},
    )
    for override in overrides:
        head = override.partition("=")[0].partition(".")[0]
        of_sweep = head in SweepConfig.model_fields
        _apply(document, override if of_sweep else f"over.{override}")
    return document


def _apply(document: Document, override: str) -> None:
    """Set a value of a sweep; those of ``over`` may be several."""
    key, equals, text = override.partition("=")
    head, dot, path = key.strip().partition(".")
    if head not in _TABLES or not dot:
        apply_override(document, override)
        return
    if not equals or not path:
        raise problems([f"{COMMAND_LINE}: {path}: write key.path=value (got {override!r})"])
    assert isinstance(document.data, dict)
    table = document.data.setdefault(head, {})
    if not isinstance(table, dict):
        raise problems([f"{document.place((head,))}: {head}: should be a mapping"])
    try:
        table[path] = _values(text) if head == "over" else parse_value(text)
    except (ConfigError, ValueError) as error:
        reason = str(error).splitlines()[0].removeprefix("value:1:1: ")
        raise problems([f"{COMMAND_LINE}: {path}: {reason}"]) from error
    document.marks[head, path] = COMMAND_LINE


def _values(text: str) -> list[Plain]:
    """Values between commas; ``[1, 2]`` and ``{a: 1}`` are one value, ``0..4`` are five."""
    values: list[Plain] = []
    for part in _parts(text):
        value = parse_value(part)
        is_range = isinstance(value, str) and ".." in value and not part.strip().startswith('"')
        try:
            several = expanded(value) if is_range else [value]
        except ValueError:
            if WHOLE_NUMBERS.fullmatch(str(value).strip()):
                raise
            several = [value]  # A path, or the like.
        values += several if isinstance(several, list) else [value]
    return values


def _parts(text: str) -> Iterator[str]:
    """The text between commas that are in no bracket and no quotes."""
    depth, quote, begin = 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:index]
            begin = index + 1
    yield text[begin:]


def _short(config: SweepConfig) -> list[str]:
    """The last words of the keys that vary."""
    varying = [key for key, values in config.over.items() if len(values) > 1 or key == SEED]
    return list(short_names([*varying, *config.swept()][: max(1, len(varying))]).values())


def _base(config: SweepConfig, document: Document) -> Document:
    """The config that all trials change."""
    if isinstance(config.base, str):
        path = Path(config.base)
        if library_world(config.base) is None:
            path = document.base / path.expanduser()
        return document_at(path, config.swept())
    return document.below("base")
