"""Checks configs with one huge number each, within little memory; prints what went wrong as JSON.

Run as a program: the first argument is a file with a JSON list of [config, overrides, key] to
check; an empty key stands for every number that may stand anywhere in that config.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

MEMORY = 6 << 30
"""Bytes of address space: libraries and kernels take about two."""
VALUES = {int: ["4611686018427387904", "1000000000", "1000000"], float: ["1e300", "1e9"]}


def keys_of_config(file: str, overrides: list[str]) -> Iterator[tuple[str, type]]:
    """Every key of a config that takes a number, and of which kind."""
    from pydantic import BaseModel

    from empo_core.config.files import load_config
    from empo_core.config.schema import branches, field_type_of

    def below(value: BaseModel, before: str) -> Iterator[tuple[str, type]]:
        for name, field in type(value).model_fields.items():
            kinds = {branch.annotation for branch in branches(field_type_of(field))}
            yield from ((f"{before}{name}", kind) for kind in (int, float) if kind in kinds)
            child = getattr(value, name, None)
            if isinstance(child, BaseModel):
                yield from below(child, f"{before}{name}.")

    yield from below(load_config(file, overrides), "")


def is_named(key: str, text: str) -> bool:
    """True if a message names a key, or the component or group of keys that it belongs to."""
    parts = key.split(".")
    parents = (".".join(parts[:count]) for count in range(3, len(parts) + 1))
    return any(parent in text for parent in (*parents, ".".join(parts[2:])))


def main() -> None:
    """Check all, and print a list of [key, value, what it ended with]."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from typer.testing import CliRunner

    from empo_core.cli.app import app

    wrong = []
    for file, overrides, key in json.loads(Path(sys.argv[1]).read_text()):
        found = keys_of_config(file, overrides) if not key else [(key, int)]
        for each, kind in dict.fromkeys(found):
            for value in VALUES[kind]:
                done = CliRunner().invoke(app, ["check", file, *overrides, f"{each}={value}"])
                text = done.output
                located = done.exit_code == 0 or is_named(each, text)
                if done.exit_code not in (0, 2) or not located or "should not happen" in text:
                    wrong.append([each, value, done.exit_code, text[-300:]])
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
