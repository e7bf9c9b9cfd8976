"""What a config may contain: types in words, and a JSON Schema for editors.

Both are read off the pydantic models of the core and of the installed plugins.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

from empo_core.config import ComponentRef
from empo_core.registry import Registry

_WORDS: dict[Any, str] = {
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


@dataclass(frozen=True)
class Slot:
    """A place in a config as its model declares it: a type, and bounds on it."""

    annotation: Any
    metadata: tuple[Any, ...] = ()

    @property
    def words(self) -> str:
        """What may stand here, for people, e.g. ``number, > 0``."""
        alternatives = dict.fromkeys(_words(branch) for branch in branches(self))
        return " or ".join(alternatives)


def slot_of(field: FieldInfo) -> Slot:
    """What may stand in one field of a model."""
    return Slot(field.annotation, tuple(field.metadata))


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys a config may use for a model, each with its field."""
    keys: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            keys |= {str(choice): field for choice in alias.choices}
        else:
            keys[alias if isinstance(alias, str) else name] = field
    return keys


def default_of(field: FieldInfo) -> str:
    """The default of a field in words; empty where it must be given."""
    if field.default_factory is not None:
        value = field.get_default(call_default_factory=True, validated_data={})
    elif field.default is PydanticUndefined:
        return ""
    else:
        value = field.default
    return str(value.model_dump(mode="json")) if isinstance(value, BaseModel) else repr(value)


def branches(slot: Slot) -> Iterator[Slot]:
    """The alternatives of a type: unions taken apart, ``Annotated`` unwrapped."""
    annotation = slot.annotation
    origin = get_origin(annotation)
    if isinstance(annotation, TypeAliasType):
        yield from branches(Slot(annotation.__value__, slot.metadata))
    elif origin is Annotated:
        inner, *extra = get_args(annotation)
        yield from branches(Slot(inner, (*slot.metadata, *extra)))
    elif origin in (Union, types.UnionType):
        for alternative in get_args(annotation):
            yield from branches(Slot(alternative, slot.metadata))
    else:
        yield slot


def children(slot: Slot, part: str | int, value: Any, registry: Registry) -> list[Slot]:
    """What may stand below a place, under a key or list position; ``value`` is what is there."""
    found: list[Slot] = []
    for branch in branches(slot):
        annotation, origin = branch.annotation, get_origin(branch.annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if issubclass(annotation, ComponentRef) and part == "params":
                found += _params(annotation, value, registry)
            elif issubclass(annotation, ComponentRef) and part == "name":
                names = tuple(registry.names(annotation.kind))
                found.append(Slot(Literal[names] if names else str))
            elif field := keys_of(annotation).get(str(part)):
                found.append(slot_of(field))
        elif isinstance(origin, type):
            arguments = get_args(annotation)
            if issubclass(origin, Mapping) and len(arguments) == 2:
                found.append(Slot(arguments[1]))
            elif issubclass(origin, Sequence) and arguments and isinstance(part, int):
                fixed = origin is tuple and Ellipsis not in arguments
                found.append(Slot(arguments[min(part, len(arguments) - 1) if fixed else 0]))
    return found


def models(slots: Sequence[Slot]) -> list[type[BaseModel]]:
    """The models among some alternatives."""
    every = [branch.annotation for slot in slots for branch in branches(slot)]
    return [each for each in every if isinstance(each, type) and issubclass(each, BaseModel)]


def _params(ref: type[ComponentRef], value: Any, registry: Registry) -> list[Slot]:
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str):
        return []
    name = name.partition("/")[0]
    if name not in registry.names(ref.kind):
        return []
    return [Slot(registry.get(ref.kind, name).params)]


def _words(slot: Slot) -> str:
    annotation, origin = slot.annotation, get_origin(slot.annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        text = ", ".join(repr(choice) for choice in arguments)
    elif isinstance(annotation, type) and issubclass(annotation, ComponentRef):
        article = "an" if annotation.kind[0] in "aeiou" else "a"
        text = f"the name of {article} {annotation.kind}, or {{name, params}}"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        text = f"mapping with {', '.join(keys_of(annotation)) or 'no keys'}"
    elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        text = f"mapping of {Slot(arguments[0]).words} to {Slot(arguments[1]).words}"
    elif origin is tuple and Ellipsis not in arguments:
        text = f"list of {len(arguments)}: {', '.join(Slot(each).words for each in arguments)}"
    elif isinstance(origin, type) and issubclass(origin, Sequence) and arguments:
        text = f"list of {Slot(arguments[0]).words}"
    else:
        text = _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)).lower())
    return ", ".join([text, *_bounds(slot.metadata)])


def _bounds(metadata: Sequence[Any]) -> Iterator[str]:
    for item in metadata:
        inner = item.metadata if isinstance(item, FieldInfo) else [item]
        for each in inner:
            for name, template in _BOUNDS.items():
                bound = getattr(each, name, None)
                if bound is not None:
                    yield template.format(bound)
