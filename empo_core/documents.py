"""Files that commands take: configs, and worlds, which become configs that name them."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from empo_core.config import RunConfig, WorldModelRef, installed, library_file, suggested_name
from empo_core.errors import ConfigError, EmpoError
from empo_core.suggestions import CONFIG_SUFFIXES
from empo_core.trees import JsonData

if TYPE_CHECKING:
    from empo_core.config.yaml import Document
    from empo_core.protocols import WorldModel


FORMATS = {
    "a JANI model": [r'"jani-version"'],
    "a PRISM model": [
        r"(?m)^[ \t]*(mdp|dtmc|ctmc|pomdp|smg|pta)[ \t]*$",
        r"(?m)^[ \t]*module[ \t]",
    ],
    "a training config of the public implementation": [
        r"\b(epsilon_r_start|beta_r_rampup_steps|lr_v_h_e|use_sqrt_lr_decay"
        r"|constant_lr_then_1_over_t|use_z_space_transform|num_training_steps)[\"']?[ \t]*:"
    ],
    "a layout of the game Overcooked-AI": [r'"grid"[ \t]*:[ \t]*"""'],
}
"""Formats of other programs, and signs that files of each have; sought in time linear in a file."""
BINARY = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
}
"""The first bytes of files that are no text."""


def read_config_at(path: Path, overrides: list[str]) -> tuple[Document, RunConfig]:
    """The config in a file, and its document; of a world file one that names the world.

    Raises:
        ConfigError: if the config is not valid, with one located line per problem.
    """
    from empo_core.config.files import load_config

    document = document_at(path, overrides)
    return document, load_config(document, overrides)


def document_at(path: Path, overrides: Sequence[str], world_model: str | None = None) -> Document:
    """As ``read_config_at``, before the overrides are applied and it is validated.

    Args:
        path: A config, or a world as a file or as its name.
        overrides: Have to choose an algorithm for a world.
        world_model: The world model that reads the file, which is no config; None: that it fits.
    """
    from empo_core.config.yaml import dump_yaml, parse_yaml

    if (world := library_world(str(path))) is not None:
        world_model, path = world
    if world_model is None:
        document = read_document(path)
        if document is None:
            world_model = world_in(path, None)[0]
        elif is_config(document) or (world_model := _world_model_of(path)) is None:
            return document  # Whoever validates it says what a config has to have.
    if not any(override.startswith("algorithm") for override in overrides):
        algorithms = ", ".join(installed().names("algorithm")) or "none is installed"
        raise ConfigError(
            f"{path} is a world ({world_model}), not a config; add algorithm=NAME, where NAME is "
            f"one of {algorithms}; or give a config, and world_model.params.file={path.resolve()}"
        )
    params: JsonData = {"file": str(path.resolve())}
    named: JsonData = {"world_model": {"name": world_model, "params": params}}
    return parse_yaml(dump_yaml(named), name=str(path))


def _meant(path: Path) -> str | None:
    """What a path that leads nowhere was most likely meant to be; None if nothing is like it."""
    name = str(path)
    if path.exists() or path.suffix in CONFIG_SUFFIXES:
        return None
    if len(path.parts) > 1 and path.parts[0] in installed().names("environment"):
        return (
            f"{name!r} is an environment, which a config names under algorithm.params.environment"
        )
    if path.suffix or len(path.parts) != 1:
        return None
    if world := suggested_name(installed(), "world_model", name):
        return world
    if environment := suggested_name(installed(), "environment", name):
        return f"{environment} A config names it under algorithm.params.environment"
    return None


def read_document(path: Path) -> Document | None:
    """The document in a file that may be a config or a world; None where it is no config.

    Raises:
        ConfigError: if the file cannot be read, or is no YAML or JSON.
    """
    from empo_core.config.yaml import BLANK, NO_BLANK, FileTooLargeError, problems, read_yaml

    if _readers(path.suffix):
        return None
    if hint := _meant(path):
        raise problems([f"{path}: there is no such file. {hint}"])
    if binary := _binary_format(path):
        raise _unreadable(path, binary)
    try:
        document = read_yaml(path)
    except FileTooLargeError:  # Worlds may be larger.
        return None
    except ConfigError as error:
        if other := _other_format(path):
            raise _unreadable(path, other) from error
        raise
    if isinstance(document.data, str) and (match := NO_BLANK.match(document.data)):
        line, column = document.locate([])
        raise problems([f"{path}:{line}:{column + match.start('colon')}: {BLANK}"])
    return document


def is_config(document: Document | None) -> bool:
    """True if a file is meant as a config; everything else is taken for a world."""
    if document is None:
        return False
    data = document.data
    if not isinstance(data, dict):
        return data is None
    config_keys = {"algorithm", "world_model", "trackers"}
    return not config_keys.isdisjoint(data) or RunConfig.model_fields.keys() >= data.keys()


def world_in(path: Path, name: str | None) -> tuple[str, WorldModel]:
    """The world model that reads a file (None: the one it fits best), and the world."""
    from empo_core.config.files import ForeignFileError
    from empo_core.config.yaml import FileTooLargeError

    failures: list[tuple[tuple[int, int], str, EmpoError]] = []
    candidates = [name] if name is not None else _readers(path.suffix) or _world_models()
    for candidate in candidates:
        try:
            return candidate, build_named(candidate, path)
        except EmpoError as error:
            size = _num_foreign(error), len(str(error).splitlines())
            failures.append((size, candidate, error))
    if not failures:
        raise ConfigError(f"{path}: no installed world model reads files; see: empo plugins")
    # The format it nearly fits is most likely the one that was meant: whose keys it has.
    _, nearest, failure = min(failures, key=lambda failure: failure[:2])
    kinds = {type(error) for _, _, error in failures}
    foreign = len(failures) > 1 and ForeignFileError in kinds
    if foreign and kinds <= {ForeignFileError, FileTooLargeError}:
        raise _unreadable(path, _other_format(path)) from failure
    if len(failures) > 1:
        # The file is named as it was typed.
        reason = str(failure).replace(str(path.absolute()), str(path))
        message = f"{reason}\nread as a world of {nearest!r}; '--as NAME' says otherwise"
        raise ConfigError(message) from failure
    raise failure


def _world_models() -> list[str]:
    """Names of the world models that read files."""
    registry = installed()
    return [
        name
        for name in registry.names("world_model")
        if "file" in registry.get("world_model", name).params_model().model_fields
    ]


def _readers(suffix: str) -> list[str]:
    """Names of the world models whose ``suffixes`` say that files of such a name are theirs."""
    registry = installed()
    return [
        name
        for name in _world_models()
        if suffix in getattr(registry.get("world_model", name).params_model(), "suffixes", ())
    ]


def _unreadable(path: Path, other: str | None) -> ConfigError:
    """The error of a file that is neither a config nor a world; quotes nothing of the file."""
    tried = ", ".join(_world_models())
    return ConfigError(
        f"{path}:1:1: is neither a config nor a world of any installed kind ({tried})"
        + (f"; it looks like {other}" if other else ", and nothing of it is shown; check the path")
    )


def _binary_format(path: Path) -> str | None:
    """What a file is that is no text; None if it may be one, or cannot be read."""
    begin = _begin(path, max(map(len, BINARY)))
    return next((name for sign, name in BINARY.items() if begin.startswith(sign)), None)


def _other_format(path: Path) -> str | None:
    """The format of another program that a file seems to have; None if it cannot be read."""
    from empo_core.config.yaml import MAX_BYTES

    text = _begin(path, MAX_BYTES).decode("utf-8", "replace")
    matches = (name for name, signs in FORMATS.items() if all(re.search(s, text) for s in signs))
    return next(matches, None)


def _begin(path: Path, size: int) -> bytes:
    """So many bytes of a file at most; none if it cannot be read."""
    try:
        if not path.is_file():  # A pipe, which would be waited for.
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, ValueError):  # ValueError: a NUL byte in the path.
        return b""


def build_named(name: str, file: Path) -> WorldModel:
    """The world in a file, as the world model called ``name`` reads it."""
    from pydantic import ValidationError

    from empo_core.components import build

    try:
        ref = WorldModelRef.model_validate({"name": name, "params": {"file": str(file)}})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{file}: world model {name!r} does not fit: {first['msg']}") from error
    world: WorldModel = build(ref)
    return world


def library_world(name: str) -> tuple[str, Path] | None:
    """The world model and the file of a world named as in a config, e.g. ``grid/small``."""
    component, slash, stem = name.partition("/")
    registry = installed()
    if Path(name).exists() or not slash or component not in registry.names("world_model"):
        return None
    try:
        return component, library_file(registry, "world_model", component, stem)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _world_model_of(path: Path) -> str | None:
    """Name of the world model that a file fits; None where it has keys that none of them has."""
    logging.disable()  # The world is built again, and warns then.
    try:
        return world_in(path, None)[0]
    except EmpoError as error:
        if _num_foreign(error):
            return None
        raise
    finally:
        logging.disable(logging.NOTSET)


def _num_foreign(error: EmpoError) -> int:
    """How many keys a world model does not know; more than any file has where it knows none."""
    from empo_core.config.files import ForeignFileError
    from empo_core.config.yaml import FileTooLargeError

    if isinstance(error, ForeignFileError):
        return sys.maxsize
    if isinstance(error, FileTooLargeError):  # The kind with the largest files is likeliest.
        return sys.maxsize - 1 - error.limits.bytes
    lines = str(error).splitlines()
    return sum(bool(re.search(r": [^.\s]+: unknown key", line)) for line in lines)
