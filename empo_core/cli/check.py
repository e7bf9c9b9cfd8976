"""``empo check``: validate a config or a world without running it, and say how large it is."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, print_table, show
from empo_core.cli.streams import reserved
from empo_core.config import AlgorithmRef, RunConfig, WorldModelRef, installed, library_file
from empo_core.config.blame import located
from empo_core.errors import ConfigError, EmpoError
from empo_core.trees import JsonData

if TYPE_CHECKING:
    from empo_core.config.yaml import Document
    from empo_core.protocols import WorldModel


@reserved()
def check(
    file: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|WORLD",
            help="A config file, a world file, or a world's name as 'empo worlds' lists it.",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY.PATH=VALUE", help="Changes to a config.", show_default=False),
    ] = None,
    world_model: Annotated[
        str | None,
        typer.Option("--as", help="The world model that reads a world file.", show_default=False),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Validate a config or a world without running it, and report sizes."""
    from empo_core.config.files import load_config
    from empo_core.config.yaml import read_yaml

    path = library_world(file) or Path(file)
    with only_ours_on_stdout():
        # What a world model is to read need not be YAML.
        document = read_yaml(path) if world_model is None else None
        if overrides or (document is not None and is_config(document)):
            document = _config(path, document, overrides or [], world_model)
            config = load_config(document, overrides)
            with located(document, config, every=True):
                try:
                    report = _check_config(path, config)
                except Exception as error:
                    if not _is_lack_of_memory(error):
                        raise
                    raise _too_large(config, error) from error
        else:
            report = _check_world(path, world_model)
    if json:
        print_json(report)
        return
    show(f"{path}: ok")
    for title, part in report.items():
        if isinstance(part, Mapping):
            print_table(title, ["", ""], [[key, _words(value)] for key, value in part.items()])


def sizes(world: WorldModel) -> dict[str, str | int | None]:
    """Size of a world, as far as it is known without looking at its states."""
    spec = world.spec
    return {
        "title": spec.name,
        "humans": len(spec.humans),
        "robots": len(spec.robots),
        "goals": len(spec.goals),
        "joint_actions": spec.num_joint_actions,
        "horizon": spec.horizon,
        "state_words": spec.state_words,
        "state_bytes": spec.state_words * spec.state_dtype.itemsize,
    }


def build_named(name: str, file: Path) -> WorldModel:
    """The world in a file, as the world model called ``name`` reads it."""
    from pydantic import ValidationError

    from empo_core.experiment import build

    try:
        ref = WorldModelRef.model_validate({"name": name, "params": {"file": str(file)}})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{file}: world model {name!r} does not fit: {first['msg']}") from error
    world: WorldModel = build(ref)
    return world


def is_config(document: Document) -> bool:
    """True if a file is meant as a config; everything else is taken for a world."""
    data = document.data
    if not isinstance(data, dict):
        return data is None
    known = {"algorithm", "world_model", "trackers"}
    return not known.isdisjoint(data) or RunConfig.model_fields.keys() >= data.keys()


def _check_config(path: Path, config: RunConfig) -> dict[str, JsonData]:
    from empo_core.experiment import build_algorithm, build_world
    from empo_core.storage.inputs import refuse_changed
    from empo_core.storage.run_directory import tell_of_silent_end

    tell_of_silent_end(config.runs)
    refuse_changed(config)
    world = build_world(config)
    report: dict[str, JsonData] = {"file": str(path), "is": "config"}
    if world is not None:
        report["world"] = sizes(world)
        report |= _sizings(world, config.algorithm.name)
    report["algorithm"] = {"name": config.algorithm.name, **build_algorithm(config).check(world)}
    return report


def _is_lack_of_memory(error: Exception) -> bool:
    """True for what Python, numpy and torch raise where memory, or its addresses, run out."""
    words = ("allocate memory", "size calculation overflowed", "array is too big", "out of memory")
    return isinstance(error, MemoryError) or any(each in str(error) for each in words)


def _too_large(config: RunConfig, error: Exception) -> ConfigError:
    """The refusal of a config whose components did not see that they would not fit into RAM."""
    from empo_core.config.numbers import largest_number

    number = largest_number(config, "")
    key, value = ("algorithm", "") if number is None else (number.key, f" with {number.value:,}")
    reason = " ".join(str(error).split()) or "MemoryError"
    return ConfigError(
        f"{key}:{value} this takes more memory than there is ({reason}). Choose less."
    )


def config_at(path: Path, overrides: list[str]) -> RunConfig:
    """The config in a file; of a world file one that names the world, for overrides to complete.

    Raises:
        ConfigError: With one located line per problem.
    """
    return read_config_at(path, overrides)[1]


def read_config_at(path: Path, overrides: list[str]) -> tuple[Document, RunConfig]:
    """As ``config_at``, and the document that it was read from."""
    from empo_core.config.files import load_config

    document = document_at(path, overrides)
    return document, load_config(document, overrides)


def document_at(path: Path, overrides: Sequence[str]) -> Document:
    """As ``config_at``, before the overrides are applied and it is validated."""
    from empo_core.config.yaml import read_yaml

    path = library_world(str(path)) or path
    return _config(path, read_yaml(path), overrides)


def _config(
    path: Path,
    document: Document | None,
    overrides: Sequence[str],
    world_model: str | None = None,
) -> Document:
    """As ``document_at``; without ``document``, of a file that this world model reads."""
    from empo_core.config.yaml import dump_yaml, parse_yaml

    if document is not None and is_config(document):
        return document
    logging.disable()  # The world is built again, and warns then.
    try:
        name, _ = world_in(path, world_model)
    except EmpoError as error:
        if document is not None and _num_foreign(error):
            return document  # Whoever validates it says what a config has to have.
        raise
    finally:
        logging.disable(logging.NOTSET)
    if not any(override.startswith("algorithm") for override in overrides):
        algorithms = ", ".join(installed().names("algorithm")) or "none is installed"
        raise ConfigError(
            f"{path} is a world ({name}), not a config; add algorithm=NAME, where NAME is one of "
            f"{algorithms}; or give a config, and world_model.params.file={path.resolve()}"
        )
    named: JsonData = {"world_model": {"name": name, "params": {"file": str(path.resolve())}}}
    return parse_yaml(dump_yaml(named), name=str(path))


def _num_foreign(error: EmpoError) -> int:
    """How many keys a world model does not know; more than any file has where it knows none."""
    from empo_core.config.files import ForeignFileError

    if isinstance(error, ForeignFileError):
        return sys.maxsize
    lines = str(error).splitlines()
    return sum(bool(re.search(r": [^.\s]+: unknown key", line)) for line in lines)


def _check_world(path: Path, name: str | None) -> dict[str, JsonData]:
    candidate, world = world_in(path, name)
    spec = world.spec
    agents = {
        a.name: f"{a.role}, {len(a.actions)} actions: {', '.join(a.actions)}" for a in spec.agents
    }
    goals = {f"{spec.agents[g.human].name}: {g.name}": g.weight for g in spec.goals}
    return {
        "file": str(path),
        "is": "world",
        "world_model": candidate,
        "world": sizes(world),
        **_sizings(world),
        "agents": agents,
        "goals": goals,
    }


def world_in(path: Path, name: str | None) -> tuple[str, WorldModel]:
    """The world model that reads a file (None: the one it fits best), and the world."""
    registry = installed()
    names = [name] if name is not None else registry.names("world_model")
    failures: list[tuple[tuple[int, int], str, EmpoError]] = []
    for candidate in names:
        if "file" not in registry.get("world_model", candidate).params_model().model_fields:
            continue
        try:
            return candidate, build_named(candidate, path)
        except EmpoError as error:
            size = _num_foreign(error), len(str(error).splitlines())
            failures.append((size, candidate, error))
    if not failures:
        raise ConfigError(f"{path}: no installed world model reads files; see: empo plugins")
    # The format it nearly fits is most likely the one that was meant: whose keys it has.
    size, nearest, failure = min(failures, key=lambda failure: failure[:2])
    if len(failures) > 1 and size[0] == sys.maxsize:
        tried = ", ".join(kind for _, kind, _ in failures)
        raise ConfigError(
            f"{path}:1:1: is neither a config nor a world of any installed kind ({tried}), and "
            "nothing of it is shown; check the path"
        ) from failure
    if len(failures) > 1:
        # The file is named as it was typed.
        reason = str(failure).replace(str(path.absolute()), str(path))
        message = f"{reason}\nread as a world of {nearest!r}; '--as NAME' says otherwise"
        raise ConfigError(message) from failure
    raise failure


def _sizings(world: WorldModel, chosen: str | None = None) -> dict[str, JsonData]:
    """The needs of the algorithms that size any world, with their defaults, but for one."""
    from empo_core.experiment import build

    registry, found = installed(), dict[str, JsonData]()
    for name in registry.names("algorithm"):
        if name == chosen or not registry.get("algorithm", name).sizes_worlds:
            continue
        try:
            found[name] = dict(build(AlgorithmRef.model_validate(name)).check(world))
        except EmpoError as error:
            found[name] = {"refused": str(error)}
    return found


def library_world(name: str) -> Path | None:
    """The file of a world named as in a config, e.g. ``grid/small``."""
    component, slash, stem = name.partition("/")
    registry = installed()
    if Path(name).exists() or not slash or component not in registry.names("world_model"):
        return None
    try:
        return library_file(registry, "world_model", component, stem)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _words(value: JsonData) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
