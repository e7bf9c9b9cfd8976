"""Types of configs in words, and a JSON Schema for editors.

Both are read off the pydantic models of the core and of the installed plugins.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import to_jsonable_python
from typing_extensions import TypeAliasType

from empo_core.config.models import ComponentRef, RunConfig, library_files
from empo_core.config.yaml import Loc
from empo_core.errors import DuplicateComponentError
from empo_core.plugins.hookspecs import KINDS, Component
from empo_core.plugins.registry import Registry

_WORDS: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "string",
    type(None): "null",
    dict: "mapping",
    list: "list",
}
_BOUNDS = {
    "gt": "> {}",
    "ge": ">= {}",
    "lt": "< {}",
    "le": "<= {}",
    "multiple_of": "a multiple of {}",
    "min_length": "length >= {}",
    "max_length": "length <= {}",
    "pattern": "matching {}",
}


_DEEPEST = 12


@dataclass(frozen=True)
class FieldType:
    """A place in a config as its model declares it: a type, and bounds on it."""

    annotation: object
    metadata: tuple[object, ...] = ()

    @property
    def words(self) -> str:
        """The allowed values in words, e.g. ``number, > 0``."""
        alternatives = dict.fromkeys(_words(branch) for branch in branches(self))
        return " or ".join(alternatives)


def field_type_of(field: FieldInfo) -> FieldType:
    """The allowed values of one field of a model."""
    return FieldType(field.annotation, tuple(field.metadata))


@dataclass(frozen=True)
class Key:
    """A key that a config may use for a model, in words for people.

    Attributes:
        name: Of keys in groups the whole path, ``group.key``; ``list[].key`` in lists of groups.
        type: What may stand there.
        default: As a config would write it; empty where it must be given, and of groups.
        required: Whether it must be given.
        description: What it means.
    """

    name: str
    type: str
    default: str
    required: bool
    description: str


def described(model: type[BaseModel], above: str = "") -> Iterator[Key]:
    """The keys that a config may use for a model; those of groups follow each group.

    Where one of several groups may stand, the keys of each follow in turn.
    """
    for name, field in model.model_fields.items():
        field_type = field_type_of(field)
        groups, items = _groups(field_type), _items(field_type)
        words = dict.fromkeys("mapping" if _groups(b) else _words(b) for b in branches(field_type))
        default = default_of(field)
        is_shown = not groups or default == "null"  # Else its keys have defaults of their own.
        description = field.description or (_summary(groups[0]) if len(groups) == 1 else "")
        type_ = "list of mappings" if items else " or ".join(words)
        yield Key(
            above + name, type_, default if is_shown else "", field.is_required(), description
        )
        for group in groups or items:
            yield from described(group, f"{above}{name}{'[]' if items else ''}.")


def _summary(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").partition("\n\n")[0].replace("\n", " ")


def _items(field_type: FieldType) -> list[type[BaseModel]]:
    """The models that the items of a list may be."""
    lists = [b.annotation for b in branches(field_type) if get_origin(b.annotation) is list]
    return _groups(*(FieldType(get_args(annotation)[0]) for annotation in lists))


def _groups(*field_types: FieldType) -> list[type[BaseModel]]:
    """The models among some alternatives whose keys are known; not so those of components."""
    return [model for model in models(field_types) if not issubclass(model, ComponentRef)]


def default_of(field: FieldInfo) -> str:
    """The default of a field as a config would write it; empty where it must be given."""
    if field.is_required():
        return ""
    value = to_jsonable_python(field.get_default(call_default_factory=True, validated_data={}))
    return repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def branches(field_type: FieldType) -> Iterator[FieldType]:
    """The alternatives of a type: unions taken apart, ``Annotated`` unwrapped."""
    annotation = field_type.annotation
    origin = get_origin(annotation)
    if isinstance(annotation, TypeAliasType):
        yield from branches(FieldType(annotation.__value__, field_type.metadata))
    elif origin is Annotated:
        inner, *extra = get_args(annotation)
        yield from branches(FieldType(inner, (*field_type.metadata, *extra)))
    elif origin in (Union, types.UnionType):
        for alternative in get_args(annotation):
            yield from branches(FieldType(alternative, field_type.metadata))
    else:
        yield field_type


def children(
    field_types: Sequence[FieldType], part: str | int, value: object, registry: Registry
) -> list[FieldType]:
    """The types allowed under a key or list position of a place, given its ``value``."""
    alternatives: list[FieldType] = []
    for branch in itertools.chain.from_iterable(map(branches, field_types)):
        annotation, origin = branch.annotation, get_origin(branch.annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if issubclass(annotation, ComponentRef) and part == "params":
                alternatives += _params(annotation, value, registry)
            elif issubclass(annotation, ComponentRef) and part == "name":
                names = tuple(registry.names(annotation.kind))
                alternatives.append(FieldType(Literal[names] if names else str))
            elif field := annotation.model_fields.get(str(part)):
                alternatives.append(field_type_of(field))
        elif isinstance(origin, type):
            arguments = get_args(annotation)
            if issubclass(origin, Mapping) and len(arguments) == 2:
                alternatives.append(FieldType(arguments[1]))
            elif issubclass(origin, Sequence) and arguments and isinstance(part, int):
                fixed = origin is tuple and Ellipsis not in arguments
                alternatives.append(
                    FieldType(arguments[min(part, len(arguments) - 1) if fixed else 0])
                )
    return alternatives


def key_paths(
    field_types: Sequence[FieldType], value: object, registry: Registry, above: Loc = ()
) -> Iterator[tuple[str | int, ...]]:
    """The paths of all keys that a config may have below ``above``, where ``value`` is.

    Those of components' params are known for components that the config or a default names.
    """
    if len(above) > _DEEPEST:
        return  # Of components that may hold components like themselves.
    if isinstance(value, list):
        for at, item in enumerate(value):
            inner_types = children(field_types, at, item, registry)
            yield from key_paths(inner_types, item, registry, (*above, at))
    for model in dict.fromkeys(models(field_types)):
        for name, field in model.model_fields.items():
            yield (*above, name)
            inner = value.get(name) if isinstance(value, dict) else None
            if inner is None and isinstance(field.default, ComponentRef):
                inner = field.default.name
            inner_types = children([FieldType(model)], name, value, registry)
            if not issubclass(model, ComponentRef) or name == "params":
                yield from key_paths(inner_types, inner, registry, (*above, name))


def models(field_types: Sequence[FieldType]) -> list[type[BaseModel]]:
    """The models among some alternatives."""
    candidates = [
        branch.annotation for field_type in field_types for branch in branches(field_type)
    ]
    return [
        annotation
        for annotation in candidates
        if isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ]


def _params(ref: type[ComponentRef], value: object, registry: Registry) -> list[FieldType]:
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str):
        return []
    name = name.partition("/")[0]
    if name not in registry.names(ref.kind):
        return []
    return [FieldType(registry.get(ref.kind, name).params_model())]


def _words(field_type: FieldType) -> str:
    annotation, origin = field_type.annotation, get_origin(field_type.annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        text = ", ".join(repr(choice) for choice in arguments)
    elif isinstance(annotation, type) and issubclass(annotation, ComponentRef):
        article = "an" if annotation.kind[0] in "aeiou" else "a"
        text = f"the name of {article} {annotation.kind}, or {{name, params}}"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = (_key_words(name, field) for name, field in annotation.model_fields.items())
        text = f"mapping with {', '.join(keys) or 'no keys'}"
    elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        text = f"mapping of {FieldType(arguments[0]).words} to {FieldType(arguments[1]).words}"
    elif origin is tuple and Ellipsis not in arguments:
        items = [FieldType(argument).words for argument in arguments]
        text = f"list of {len(items)}: {', '.join(items)}"
    elif isinstance(origin, type) and issubclass(origin, Sequence) and arguments:
        text = f"list of {FieldType(arguments[0]).words}"
    else:
        text = _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)).lower())
    bounds = () if annotation is type(None) else _bounds(field_type.metadata)
    return ", ".join([text, *bounds])


def _key_words(name: str, field: FieldInfo) -> str:
    """A key of a mapping, with its value where only one is allowed: that tells alternatives."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return f"{name}: {choices[0]!r}" if len(choices) == 1 else name


def _bounds(metadata: Sequence[object]) -> Iterator[str]:
    for item in metadata:
        inner = item.metadata if isinstance(item, FieldInfo) else [item]
        for constraint in inner:
            for name, template in _BOUNDS.items():
                bound = getattr(constraint, name, None)
                if bound is not None:
                    yield template.format(bound)


class _Lenient(GenerateJsonSchema):
    """Params may hold what JSON cannot, e.g. functions; a file leaves them out."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012  (pydantic declares it so)

    def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> JsonSchemaValue:
        """Accept any value for types without a JSON Schema."""
        return {}


def config_schema(registry: Registry) -> JsonSchemaValue:
    """The JSON Schema (draft 2020-12) of configs that name components of ``registry``."""
    components = list(_usable_components(registry))
    models: list[type[BaseModel]] = [RunConfig, *(c.params_model() for c in components)]
    references, schema = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], schema_generator=_Lenient
    )
    definitions = schema["$defs"]
    for name, definition in definitions.items():
        if (kind := definition.get("x-component")) is not None:
            choices: list[JsonSchemaValue] = []
            for component in components:
                if component.kind == kind:
                    reference = references[component.params_model(), "validation"]
                    params = definitions[reference["$ref"].removeprefix("#/$defs/")]
                    choices += _choices(registry, component, params, reference)
            # Nothing fits where no component is installed.
            definitions[name] = {"oneOf": choices or [{"not": {}}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config of an empo run",
        **references[RunConfig, "validation"],
        "$defs": definitions,
    }


def _usable_components(registry: Registry) -> Iterator[Component]:
    """All components whose names are not provided twice."""
    for kind in KINDS:
        for name in registry.names(kind):
            with suppress(DuplicateComponentError):
                yield registry.get(kind, name)


def _choices(
    registry: Registry, component: Component, params: JsonSchemaValue, reference: JsonSchemaValue
) -> Iterator[JsonSchemaValue]:
    """Schemas of what names a component: a bare name, or name and params."""
    kind, name = component.kind, component.name
    required = params.get("required", [])
    yield from _spellings(component, {"const": name}, reference, required)
    library = [f"{name}/{stem}" for stem in library_files(registry, kind, name)]
    short = registry.trait(kind, name, "short")
    if library or short is not None:
        spelt = {"enum": library} if library else {"pattern": f"^{re.escape(name)}/.+"}
        required = [key for key in required if key != ("file" if library else short)]
        others = {**params, "required": required}
        yield from _spellings(component, {"type": "string", **spelt}, others, required)


def _spellings(
    component: Component, name: JsonSchemaValue, params: JsonSchemaValue, required: list[str]
) -> Iterator[JsonSchemaValue]:
    description = {"description": component.summary} if component.summary else {}
    if not required:
        yield {**description, **name}
    yield {
        **description,
        "type": "object",
        "properties": {"name": name, "params": params},
        "required": ["name", "params"] if required else ["name"],
        "additionalProperties": False,
    }
