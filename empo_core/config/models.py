"""Configs choose components by name; the component's own model checks its params.

Reading files and locating errors in them is ``empo_core.config.files``'s job; this module
only says what a valid config is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Generic, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeVar

from empo_core.errors import (
    EXITS,
    DuplicateComponentError,
    EmpoError,
    UnknownComponentError,
    event,
)
from empo_core.plugins.discovery import discover
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import Registry
from empo_core.suggestions import nearest

_EXACT = 2**53
"""Up to which floats are whole numbers without gaps."""


@cache
def _whole_keys(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that take whole numbers, and no others."""
    return frozenset(
        name for name, field in model.model_fields.items() if field.annotation in (int, int | None)
    )


class Config(BaseModel):
    """Base of every config: frozen, strict, finite, and a misspelt key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, data: object) -> object:
        """Take ``1e6`` where a whole number is due, and nothing that would be rounded."""
        if not isinstance(data, dict):
            return data
        whole = {
            key: int(value)
            for key, value in data.items()
            if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT
            if key in _whole_keys(cls)
        }
        return {**data, **whole} if whole else data


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Typed(str):
    """A text of the command line, where a relative path counts from the working directory."""


def _resolve(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        if _URL.match(value):
            raise ValueError("is a URL; download the file, and give the path of what you have")
        if "\0" in value:
            raise ValueError("has a NUL character, which no path can have")
        if unset := re.search(r"\$(\w*[A-Za-z_]\w*|\{\w+\})", os.path.expandvars(value)):
            raise ValueError(f"has {unset[0]}, and there is no such environment variable")
        base = "." if isinstance(value, Typed) else (info.context or {}).get("base") or "."
        try:
            expanded = Path(os.path.expandvars(value)).expanduser()
            path = Path(os.path.abspath(Path(base) / expanded))
            exists = path.exists()  # Of a path that no file can have the system complains.
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"cannot be used as a path: {reason}") from error
        if exists and not (path.is_file() or path.is_dir()):
            raise ValueError(f"{str(path)!r} is a device, pipe or socket, and no plain file")
        return path
    return value


ConfigPath = Annotated[Path, BeforeValidator(_resolve, json_schema_input_type=str)]
"""The path of something that a run reads, absolute once validated.

A relative path of a config counts from the config's folder, one of the command line from the
working directory; ``~`` and ``$NAME`` are expanded.

A run keeps a copy of the file there, of the folder, or of another run's directory."""


class Output:
    """The mark of a path that a run writes to, of which no copy is kept."""


ConfigOutput = Annotated[ConfigPath, Output()]
"""As ``ConfigPath``, of something that a run writes."""


def _exists(path: Path) -> Path:
    if not path.is_file():
        reason = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ValueError(f"{str(path)!r} {reason}; a relative path starts from the config's folder")
    return path


ConfigFile = Annotated[ConfigPath, AfterValidator(_exists)]
"""As ``ConfigPath``, and a file is there; so that a wrong path is an error where it is written."""


K = TypeVar("K", bound=Kind, covariant=True, default=Kind)


class ComponentRef(Config, Generic[K]):
    """A component by name, and its parameters as the component's own model.

    Params models use it for one kind: ``ComponentRef[Literal["tracker"]]``, short ``TrackerRef``.

    Validate with ``context={"registry": registry, "base": folder}``; without a context the
    installed plugins and the working directory are used. A bare string is short for a name
    with default parameters. ``name: <component>/<stem>`` picks a file of the component's
    library, e.g. ``grid/small``, or gives the param that the component calls ``short``,
    e.g. ``suite/CartPole-v1``.
    """

    kind: ClassVar[Kind]
    name: str = Field(description="Of the component.")
    params: SerializeAsAny[BaseModel] = Field(description="Of that component.")

    def __class_getitem__(cls, literal: object) -> type[ComponentRef]:
        """The class for one kind; pydantic's own way would build its validators at once."""
        (kind,) = get_args(literal)
        name = f"{kind.title().replace('_', '')}Ref"
        return type(name, (cls,), {"kind": kind, "__module__": __name__, "__qualname__": name})

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A mark; what may stand here depends on the installed plugins."""
        return {"x-component": cls.kind}

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: object, info: ValidationInfo) -> object:
        name = data.get("name") if isinstance(data, dict) else data
        if isinstance(name, type) or (callable(name) and not isinstance(name, Config)):
            word = getattr(name, "__name__", type(name).__name__)
            raise ValueError(
                f"{word} is code, and a config names components, by which a run can be opened "
                f"again: put it into a plugin ('empo new-plugin NAME --kind {cls.kind}' writes "
                "one), install it (pip install -e NAME), and give the component's name"
            )
        if isinstance(data, str):
            data = {"name": data}
        if not isinstance(data, dict):
            return data
        data = {"params": {}, **data}
        name = data.get("name")
        if isinstance(name, str) and "/" in name and isinstance(data["params"], dict):
            name, _, stem = name.partition("/")
            data |= {"name": name}
            if name in registry_of(info).names(cls.kind):
                registry = registry_of(info)
                if (short := registry.trait(cls.kind, name, "short")) is not None:
                    data |= {"params": {short: stem, **data["params"]}}
                else:
                    file = library_file(registry, cls.kind, name, stem)
                    data |= {"params": {"file": str(file), **data["params"]}}
        return data

    @field_validator("name")
    @classmethod
    def _is_installed(cls, name: str, info: ValidationInfo) -> str:
        registry = registry_of(info)
        try:
            registry.get(cls.kind, name)
        except DuplicateComponentError as error:
            raise ValueError(str(error)) from error  # So that it gets a place in the file.
        except UnknownComponentError as error:
            hint = suggested_name(registry, cls.kind, name)
            raise ValueError(f"{error} {hint}" if hint else str(error)) from error
        return name

    @field_validator("params", mode="plain")
    @classmethod
    def _fit_component(cls, params: object, info: ValidationInfo) -> BaseModel:
        if "name" not in info.data:  # Already reported against the name.
            return Config()
        component = registry_of(info).get(cls.kind, info.data["name"])
        try:
            return component.params_model().model_validate(params, context=info.context)
        except (ValueError, AssertionError, EmpoError):
            raise
        except (Exception, *EXITS) as error:  # A bug of a plugin must get a place in the file.
            raise ValueError(f"a validator {event(error)}; report it to the plugin") from error


WorldModelRef = ComponentRef[Literal["world_model"]]
HumanPriorRef = ComponentRef[Literal["human_prior"]]
ValueNetworkRef = ComponentRef[Literal["value_network"]]
PolicyLossRef = ComponentRef[Literal["policy_loss"]]
AggregatorRef = ComponentRef[Literal["aggregator"]]
TrackerRef = ComponentRef[Literal["tracker"]]
CollectorRef = ComponentRef[Literal["collector"]]
ExplorerRef = ComponentRef[Literal["explorer"]]
EnvironmentRef = ComponentRef[Literal["environment"]]
ExecutorRef = ComponentRef[Literal["executor"]]
CallbackRef = ComponentRef[Literal["callback"]]
ScheduleRef = ComponentRef[Literal["schedule"]]
PolicyNetworkRef = ComponentRef[Literal["policy_network"]]
AlgorithmRef = ComponentRef[Literal["algorithm"]]


class RunConfig(Config):
    """Everything one run needs to know."""

    world_model: WorldModelRef | None = Field(None, description="The world, where one is used.")
    algorithm: AlgorithmRef = Field(description="Algorithm of the run.")
    trackers: list[TrackerRef] = Field(
        default_factory=list,
        description="Trackers of the run; left out: those that plugins declare as the default.",
    )
    on_tracker_error: Literal["fail", "warn"] = Field(
        "fail",
        description="Whether a tracker that fails ends the run, which can then be resumed, or is "
        "switched off with a warning.",
    )
    callbacks: list[CallbackRef] = Field(
        default_factory=list,
        description="Callbacks of the learner, e.g. early-stopping; called in this order.",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seeds every random generator of the run.")
    runs: ConfigOutput = Field(
        default_factory=lambda: Path("runs").resolve(),
        description="Folder that receives the run's own directory.",
    )

    @field_validator("trackers", "callbacks")
    @classmethod
    def _differ(cls, refs: list[ComponentRef]) -> list[ComponentRef]:
        for place, ref in enumerate(refs):
            if ref in refs[:place]:
                raise ValueError(f"{ref.name!r} is there twice; remove one of the two")
        return refs

    @model_validator(mode="before")
    @classmethod
    def _metrics_are_kept(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, dict) and "trackers" not in data:
            return {**data, "trackers": registry_of(info).default_trackers("config")}
        return data


def walk(
    value: object, loc: tuple[str | int, ...] = (), field: FieldInfo | None = None
) -> Iterator[tuple[tuple[str | int, ...], object, FieldInfo | None]]:
    """All values of a config: the keys of each, the value, and its field where a model has it."""
    yield loc, value, field
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, BaseModel):
        items = iter(value)
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    fields = type(value).model_fields if isinstance(value, BaseModel) else {}
    for key, child in items:
        yield from walk(child, (*loc, key), fields.get(str(key)))


def references(value: object) -> Iterator[tuple[tuple[str | int, ...], ComponentRef]]:
    """All components that a config names, and those that their params name, each with its keys."""
    for loc, child, _ in walk(value):
        if isinstance(child, ComponentRef):
            yield loc, child


def merged(preset: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The given values, with a preset's where none is given; mappings key by key."""
    result = dict(preset)
    for key, value in values.items():
        preset_value = preset.get(key)
        # Python callers give models.
        if isinstance(preset_value, Mapping) and isinstance(value, Config):
            value = value.model_dump(exclude_unset=True)
        if isinstance(value, Mapping) and isinstance(preset_value, Mapping):
            value = merged(preset_value, value)
        result[key] = value
    return result


def registry_of(info: ValidationInfo) -> Registry:
    """The registry a config is validated against."""
    registry: Registry | None = (info.context or {}).get("registry")
    return registry if registry is not None else installed()


@cache
def installed() -> Registry:
    """The installed plugins, discovered once."""
    return discover()


def library_files(registry: Registry, kind: Kind, name: str) -> dict[str, Path]:
    """The files of a component's library by stem; empty where it has none."""
    library: Path | None = registry.trait(kind, name, "library")
    if library is None:
        return {}
    paths = sorted([*library.rglob("*.yaml"), *library.rglob("*.json")])
    return {
        path.relative_to(library).with_suffix("").as_posix(): path
        for path in paths
        if not path.name.endswith(".schema.json")
    }


def suggested_name(registry: Registry, kind: Kind, name: str) -> str | None:
    """What the name of no component was most likely meant to be; None if nothing is like it."""
    worlds = {
        stem.rpartition("/")[2]: f"{component}/{stem}"
        for component in registry.names(kind)
        for stem in library_files(registry, kind, component)
    }
    if close := nearest(name, worlds):
        return f"Did you mean {worlds[close]!r}?"
    components = [c for c in registry.names(kind) if registry.trait(kind, c, "short") is not None]
    if components and re.search(r"-v\d+$", name):
        return f"Did you mean COMPONENT/{name}, with one of {', '.join(components)}?"
    return None


def library_file(registry: Registry, kind: Kind, name: str, stem: str) -> Path:
    """The file ``stem`` of a component's library.

    Raises:
        ValueError: if the component has no library, or no such file.
    """
    files = library_files(registry, kind, name)
    if not files:
        raise ValueError(f"{kind} {name!r} has no library; give its params instead")
    if stem not in files:
        close = nearest(stem, files)
        hint = f"did you mean {close!r}? " if close else ""
        raise ValueError(f"{name!r} has no file {stem!r}; {hint}it has {', '.join(files)}")
    return files[stem]
