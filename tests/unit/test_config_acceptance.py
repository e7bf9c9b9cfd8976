"""No key of any installed component, nor of a run's config, accepts nonsense in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest
from pydantic import BaseModel, Field

from empo_core import Config
from empo_core.config import ComponentRef, RunConfig, installed
from empo_core.config.files import parse_yaml, validate_document
from empo_core.config.schema import FieldType, branches, field_type_of
from empo_core.config.yaml import dump_yaml
from empo_core.errors import ConfigError


class Own(Config):
    """One of each sort of field, so that this is tested without plugins too."""

    number: float = Field(1.0, gt=0, le=2)
    count: int = Field(1, ge=1)
    flag: bool = False
    choice: Literal["a", "b"] = "a"
    names: list[str] = Field(default_factory=list)
    by_name: dict[str, float] = Field(default_factory=dict)


MODELS: dict[str, type[BaseModel]] = {
    "own": Own,
    "config": RunConfig,
    **{
        f"{offer.component.kind} {offer.component.name}": offer.component.params_model()
        for offer in installed().offers
    },
}
WRONG: list[Any] = [True, 10**9 + 7, 0.123, "§ no such thing", [[[]]], {"§": [[]]}]


def accepted_types(field_type: FieldType) -> set[type]:
    """The plain types that may stand in a place at all."""
    types: set[type] = set()
    for branch in branches(field_type):
        annotation, origin = branch.annotation, get_origin(branch.annotation) or branch.annotation
        if annotation is Any or annotation is object:
            return {bool, int, float, str, list, dict}
        if isinstance(origin, type) and issubclass(origin, ComponentRef | Path):
            types |= {dict} if issubclass(origin, ComponentRef) else {str}
        elif isinstance(origin, type) and issubclass(origin, BaseModel):
            types |= {dict}
        elif origin is float:
            types |= {int, float}
        elif isinstance(origin, type):
            types |= {each for each in (bool, int, str, list, dict) if issubclass(origin, each)}
            types -= {int} if origin is bool else set()
    return types


def out_of_bounds(field_type: FieldType) -> Iterator[float]:
    """A number just outside each bound."""
    for branch in branches(field_type):
        step: float = 1 if branch.annotation is int else 1e-6
        for item in branch.metadata:
            for each in getattr(item, "metadata", [item]):
                for name, sign in (("gt", 0), ("ge", -1), ("lt", 0), ("le", 1)):
                    bound = getattr(each, name, None)
                    if isinstance(bound, int | float):
                        yield bound + sign * step


def complaints(model: type[BaseModel], text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate_document(model, parse_yaml(text, name="f.yaml"))
    return str(caught.value).splitlines()[:-1]


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_value_is_refused_at_its_key(name: str) -> None:
    model = MODELS[name]
    for key, field in model.model_fields.items():
        field_type = field_type_of(field)
        wrong = [value for value in WRONG if type(value) not in accepted_types(field_type)]
        wrong += out_of_bounds(field_type)
        if accepted_types(field_type) & {float}:
            wrong += [float("nan")]
        assert wrong, key
        for value in wrong:
            lines = complaints(model, dump_yaml({key: value}))
            assert any(line.startswith("f.yaml:1:") and f": {key}" in line for line in lines), (
                f"{key}: {value!r} is not refused: {lines}"
            )


@pytest.mark.parametrize("name", MODELS)
def test_a_misspelt_key_is_refused_with_the_right_one(name: str) -> None:
    for key in MODELS[name].model_fields:
        misspelt = f"{key[:-1]}q{key[-1]}"
        lines = complaints(MODELS[name], f"{misspelt}: 1\n")
        (line,) = (line for line in lines if f": {misspelt}: unknown key (got 1)" in line)
        assert "did you mean" in line
        assert key in line


def test_a_key_given_twice_is_refused() -> None:
    for key in {key for model in MODELS.values() for key in model.model_fields}:
        with pytest.raises(ConfigError, match=r"f:2:1: .*line 1"):
            parse_yaml(f"{key}: 1\n{key}: 1\n", name="f")


def test_a_value_is_shown_with_its_blanks() -> None:
    with pytest.raises(ConfigError, match=r"seed.*'1   2'"):
        validate_document(RunConfig, parse_yaml("algorithm: exact\nseed: '1   2'\n", name="f"))
