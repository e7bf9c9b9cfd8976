"""Runs beside each other: which there are, and in what their configs and results differ."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from empo_core.config.yaml import parse_value
from empo_core.errors import ConfigError
from empo_core.runs.directory import CONFIG
from empo_core.runs.files import reason_of
from empo_core.runs.status import STATUS
from empo_core.saved_run import SavedRun, read_run
from empo_core.suggestions import nearest
from empo_core.trees import Json

COLUMNS = ("run", "task", "algorithm", "status", "age", "duration")
_EVALUATED = re.compile(r"evaluation\.(.+\.)?(mean_return|return_mean)")
"""Keys of the mean returns of a last evaluation, by one player or several."""
NOT_COMPARED = ("seed", "runs")
"""Keys of configs that two runs of one experiment differ in."""
_MEASURES = ("seconds", "peak_memory_bytes", "steps", "env_steps", "iterations", "updates")
_RUN_NAME = re.compile(r"\d{4}-\d\d-\d\d-.+")


@dataclass(frozen=True)
class Row:
    """A run with all that can be said of it in a table.

    Attributes:
        run: The run.
        config: Values of its config by key path.
        facts: Values by key path: of the config, of the summary, and by heading of ``COLUMNS``,
            where age and duration are in seconds.
    """

    run: SavedRun
    config: Mapping[str, Json]
    facts: Mapping[str, Json]


def read_rows(folder: Path) -> list[Row]:
    """The runs in a folder, or the one whose directory it is, by name.

    Raises:
        ConfigError: if ``folder`` is no folder.
    """
    now = datetime.datetime.now().astimezone()
    return [_row(read_run(path), now) for path in run_paths(folder)]


def run_paths(folder: Path) -> list[Path]:
    """Directories of runs in a folder, damaged ones included; links are not followed.

    Raises:
        ConfigError: if ``folder`` is no folder.
    """
    try:
        if (folder / CONFIG).is_file():
            return [folder.resolve()]
        with os.scandir(folder.resolve()) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{folder}: has no runs: {reason}; name the folder that a config calls 'runs'"
        ) from error
    return sorted(path for path in folders if _is_run(path))


def _is_run(path: Path) -> bool:
    named = _RUN_NAME.fullmatch(path.name)
    return bool(named) or any(os.path.lexists(path / name) for name in (CONFIG, STATUS))


def _row(run: SavedRun, now: datetime.datetime) -> Row:
    config = leaves(run.config)
    age = None if run.started is None else (now - run.started).total_seconds()
    columns = (run.path.name, run.task, run.algorithm, run.status, age, run.seconds)
    values = {
        name: value for name, value in zip(COLUMNS, columns, strict=True) if value is not None
    }
    return Row(run, config, {**leaves(run.summary), **config, **values})


def leaves(data: Json) -> dict[str, Json]:
    """Values by key path; a list of plain values is one value."""
    flat: dict[str, Json] = {}
    _collect(data, "", flat)
    return flat


def _collect(data: Json, path: str, flat: dict[str, Json]) -> None:
    """Fill ``flat``; generators in each other would take five times as long."""
    items: Iterable[tuple[object, Json]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        below = f"{path}{key}"
        if isinstance(value, dict) or (
            isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
        ):
            _collect(value, f"{below}.", flat)
        else:
            flat[below] = value


def where(rows: Sequence[Row], conditions: Sequence[str]) -> list[Row]:
    """The rows of which all conditions ``key=value`` hold.

    Raises:
        ConfigError: if a condition is none, or no run has its key.
    """
    for condition in conditions:
        key, equals, text = condition.partition("=")
        if not equals:
            raise ConfigError(f"--where {condition}: write KEY=VALUE, e.g. status=finished")
        _check_key(rows, key, "--where")
        try:
            expected = parse_value(text)
        except ConfigError:
            expected = text
        rows = [
            row for row in rows if key in row.facts and _is_same(row.facts[key], expected, text)
        ]
    return list(rows)


def _is_same(value: Json, expected: object, text: str) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    return value in (expected, text)


def ordered(rows: Sequence[Row], key: str) -> list[Row]:
    """The rows by a key, upwards, or with ``-`` before it downwards; those without it are last.

    Raises:
        ConfigError: if no run has the key.
    """
    down = key.startswith("-")
    key = key.removeprefix("-")
    _check_key(rows, key, "--sort")
    having = [row for row in rows if row.facts.get(key) is not None]
    lacking = [row for row in rows if row.facts.get(key) is None]
    return sorted(having, key=lambda row: _rank(row.facts[key]), reverse=down) + lacking


def _rank(value: Json) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, str(value)


def _check_key(rows: Sequence[Row], key: str, option: str) -> None:
    if not rows or key in COLUMNS or any(key in row.facts for row in rows):
        return
    keys = list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row.facts)]))
    near = next((name for name in keys if name.endswith(f".{key}")), None) or nearest(key, keys)
    hint = f"did you mean {near!r}?" if near else f"columns are {', '.join(COLUMNS)}"
    raise ConfigError(
        f"{option}: no run has a key {key!r}; {hint} Other keys are paths in config.yaml and in "
        "results/summary.json, such as 'algorithm.params.keep'"
    )


def differences(rows: Sequence[Row]) -> list[dict[str, Json]]:
    """What each row's config has that not all configs of its algorithm and task have, by key."""
    configs: dict[tuple[str, str], list[Mapping[str, Json]]] = {}
    for row in rows:
        configs.setdefault((row.run.algorithm, row.run.task), []).append(row.config)
    keys = {kind: set(varying(kind_configs)) - {"runs"} for kind, kind_configs in configs.items()}
    return [
        {
            key: value
            for key, value in row.config.items()
            if key in keys[row.run.algorithm, row.run.task]
        }
        for row in rows
    ]


def varying(configs: Sequence[Mapping[str, Json]]) -> list[str]:
    """The keys that not all configs have with the same value."""
    keys = dict.fromkeys(key for config in configs for key in config)
    # 1 is not 1.0 here, and not true.
    return [key for key in keys if len({repr(config.get(key, KeyError)) for config in configs}) > 1]


def key_results(run: SavedRun) -> dict[str, Json]:
    """The few values of a run's summary that say most; of returns those of the last evaluation."""
    values: dict[str, Json] = {
        key: value for key, value in leaves(run.summary).items() if value is not None
    }
    evaluated = [key for key in values if _EVALUATED.fullmatch(key)]
    # The average of training has exploration in it.
    keys = ("root.V_r", *(evaluated or ["return_mean"]), "solved")
    results = {key: values[key] for key in keys if key in values}
    numbers = {
        key: value
        for key, value in run.summary.items()
        if isinstance(value, int | float) and key not in _MEASURES
    }
    return results or dict(list(numbers.items())[:2])


def warnings_of(run: SavedRun) -> list[str]:
    """The warnings that a run's results come with."""
    warnings = run.summary.get("warnings")
    return (
        [warning for warning in warnings if isinstance(warning, str)]
        if isinstance(warnings, list)
        else []
    )


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """For each key path its last word, or as many as tell it from the others."""
    keys = list(dict.fromkeys(keys))
    names = {}
    for key in keys:
        parts = key.split(".")
        for first in range(len(parts) - 1, -1, -1):
            names[key] = ".".join(parts[first:])
            if not any(other != key and f".{other}".endswith(f".{names[key]}") for other in keys):
                break
    return names


def value_text(value: Json) -> str:
    """A value as a cell of a table."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def span(seconds: Json) -> str:
    """A length of time for people, e.g. ``3.4 h``; a dash where it is not known."""
    if not isinstance(seconds, int | float):
        return "\N{EN DASH}"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
