"""``empo check``: validate a config or a world without running it, and say how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import (
    Debug,
    Json,
    only_ours_on_stdout,
    print_json,
    print_table,
    reserved,
    show,
)
from empo_core.config import AlgorithmRef, RunConfig, installed
from empo_core.documents import (
    document_at,
    is_config,
    library_world,
    read_document,
    world_in,
)
from empo_core.errors import ConfigError, EmpoError
from empo_core.trees import JsonData

if TYPE_CHECKING:
    from empo_core.protocols import Algorithm, WorldModel


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
    is_complete: Annotated[
        bool,
        typer.Option("--all", help="Say what other choices of an algorithm would take, too."),
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Validate a config or a world without running it, and report sizes."""
    from empo_core.config.errors import located
    from empo_core.config.files import load_config

    path = Path(file)
    if (world := library_world(file)) is not None:
        world_model, path = world
    with only_ours_on_stdout():
        # What a world model is to read need not be YAML.
        if overrides or (world_model is None and is_config(read_document(path))):
            document = document_at(path, overrides or [], world_model)
            config = load_config(document, overrides)
            with located(document, config, all_errors=True):
                try:
                    report = _check_config(path, config, is_complete)
                except Exception as error:
                    if not _is_lack_of_memory(error):
                        raise
                    raise _too_large(config, error) from error
        else:
            report = _check_world(path, world_model, is_complete)
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


def _check_config(path: Path, config: RunConfig, is_complete: bool) -> dict[str, JsonData]:
    from empo_core.components import (
        build,
        build_algorithm,
        build_callbacks,
        build_world,
        require_loadable,
    )
    from empo_core.runs.directory import warn_of_silent_end
    from empo_core.runs.inputs import refuse_changed

    warn_of_silent_end(config.runs)
    refuse_changed(config)
    world = build_world(config)
    report: dict[str, JsonData] = {"file": str(path), "is": "config"}
    if world is not None:
        report["world"] = sizes(world)
        report |= _sizings(world, is_complete, config.algorithm.name)
    require_loadable(config)
    for ref in config.trackers:
        build(ref)
    algorithm = build_algorithm(config)
    build_callbacks(config, algorithm)
    needs = _needs(algorithm, world, is_complete)
    report["algorithm"] = {"name": config.algorithm.name, **needs}
    return report


def _is_lack_of_memory(error: Exception) -> bool:
    """True for what Python, numpy and torch raise where memory, or its addresses, run out."""
    words = ("allocate memory", "size calculation overflowed", "array is too big", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _too_large(config: RunConfig, error: Exception) -> ConfigError:
    """The refusal of a config whose components did not see that they would not fit into RAM."""
    from empo_core.config.numbers import largest_number

    number = largest_number(config, "")
    key, value = ("algorithm", "") if number is None else (number.key, f" with {number.value:,}")
    reason = " ".join(str(error).split()) or "MemoryError"
    return ConfigError(
        f"{key}:{value} this takes more memory than there is ({reason}). Choose less."
    )


def _check_world(path: Path, name: str | None, is_complete: bool) -> dict[str, JsonData]:
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
        **_sizings(world, is_complete),
        "agents": agents,
        "goals": goals,
    }


def _needs(
    algorithm: Algorithm, world: WorldModel | None, is_complete: bool
) -> dict[str, JsonData]:
    """The needs of a run; if ``is_complete`` those by other choices, too."""
    needs = dict(algorithm.check(world))
    return needs | dict(algorithm.alternatives(world)) if is_complete else needs


def _sizings(
    world: WorldModel, is_complete: bool, chosen: str | None = None
) -> dict[str, JsonData]:
    """The needs of the algorithms that size any world, with their defaults, but for one."""
    from empo_core.components import build

    registry, sizes_by_name = installed(), dict[str, JsonData]()
    for name in registry.names("algorithm"):
        if name == chosen or not registry.trait("algorithm", name, "sizes_worlds"):
            continue
        try:
            algorithm: Algorithm = build(AlgorithmRef.model_validate(name))
            sizes_by_name[name] = _needs(algorithm, world, is_complete)
        except EmpoError as error:
            sizes_by_name[name] = {"refused": str(error)}
    return sizes_by_name


def _words(value: JsonData) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
