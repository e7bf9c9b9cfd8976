"""Changed params with which a run goes on: what differs from its config, and who may change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from empo_core.config import RunConfig
from empo_core.config.files import load_config
from empo_core.config.yaml import read_yaml
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.runs.directory import CONFIG, resolved

PARAMS = "algorithm.params."
MISSING = "(not there)"

Changes = Mapping[str, tuple[JsonValue, JsonValue]]
"""The value before and the value now by dotted key."""


def extended(
    config: RunConfig, path: Path, overrides: Sequence[str], registry: Registry
) -> tuple[RunConfig, Changes]:
    """The config of a run with overrides, and what they change.

    Args:
        config: The run's config.
        path: The run directory.
        overrides: ``key.path=value`` each; a key that no config has is one of the algorithm's
            params, e.g. ``total_steps=2000000``.
        registry: The components that the config may name.

    Returns:
        The config, and the changes by key of the algorithm's params.

    Raises:
        ConfigError: if the config is not valid so, or an override changes something else than
            params of the algorithm.
    """
    full = [_full(override) for override in overrides]
    for key, _, _ in (override.partition("=") for override in full):
        if not key.strip().startswith(PARAMS):
            raise ConfigError(
                f"command line: {key.strip()}: a run goes on with the {key.partition('.')[0]!r} "
                f"that it began with; only params of its algorithm may change; start a new run "
                f"with: empo run {path / CONFIG} {key.strip()}=..."
            )
    changed = load_config(read_yaml(path / CONFIG), full, registry)
    before, now = (dict(_leaves(resolved(data))) for data in (config, changed))
    return changed, {
        key.removeprefix(PARAMS): (before.get(key, MISSING), now.get(key, MISSING))
        for key in dict.fromkeys([*before, *now])
        if before.get(key, MISSING) != now.get(key, MISSING)
    }


def _full(override: str) -> str:
    first = override.partition("=")[0].partition(".")[0].strip()
    return override if first in RunConfig.model_fields else f"{PARAMS}{override.strip()}"


def _leaves(value: JsonValue, key: str = "") -> Iterator[tuple[str, JsonValue]]:
    """The values of plain data that hold no others, by dotted key."""
    items: dict[str, JsonValue] = {}
    if isinstance(value, dict):
        items = value
    elif isinstance(value, list):
        items = {str(place): item for place, item in enumerate(value)}
    if not items:
        yield key, value
    for name, item in items.items():
        yield from _leaves(item, f"{key}.{name}" if key else name)
