"""No config can name code: a walk over the JSON Schemas of every installed component."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from empo_core.config import installed
from empo_core.config.schema import _Lenient

NAMES = re.compile(r"(^|_)(factory|entry_point|callable|module|import|target_class|function)s?$")
SAYS = re.compile(r"\b(imported|callable|is called|module:|package\.module|entry point)")
PATTERN_OF_CODE = re.compile(r"\\w[^:]*:[^:]*\\w")


def strings(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place of a schema where a string may stand, by path."""
    if isinstance(node, list):
        for part in node:
            yield from strings(part, path)
    elif isinstance(node, dict):
        if node.get("type") == "string":
            yield path, node
        for key, part in node.items():
            if key in ("properties", "$defs"):
                for name, each in part.items():
                    yield from strings({**each, "title": ""}, f"{path}.{name}")
                    if isinstance(each, dict) and "description" in each:
                        yield from described(each, f"{path}.{name}")
            elif key not in ("description", "title", "default"):
                yield from strings(part, path)


def described(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A place with alternatives, one of which is a string."""
    alternatives = node.get("anyOf", []) + node.get("oneOf", [])
    if any(each.get("type") == "string" for each in alternatives):
        yield path, node


def names_code(path: str, node: dict[str, Any]) -> bool:
    """True if a field takes the name of code, judged by its key, description or pattern."""
    key = path.rpartition(".")[2]
    about, pattern = node.get("description", ""), node.get("pattern", "")
    return bool(NAMES.search(key) or SAYS.search(about) or PATTERN_OF_CODE.search(pattern))


def suspects(model: type[BaseModel]) -> list[str]:
    schema = model.model_json_schema(schema_generator=_Lenient)
    return sorted({path for path, node in strings(schema) if names_code(path, node)})


@pytest.mark.parametrize(
    "component",
    [offer.component for offer in installed().offers],
    ids=lambda component: f"{component.kind}-{component.name}",
)
def test_no_string_of_a_config_is_imported_or_called(component: Any) -> None:
    assert suspects(component.params_model()) == []


class Hostile(BaseModel):
    factory: str = ""
    alternative: str | None = Field(None, description="'package.module:callable'.")
    inner: dict[str, str] = Field(default_factory=dict)
    shaped: str = Field("", pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    harmless: str = Field("", description="A name.")


def test_the_walk_finds_what_it_looks_for() -> None:
    assert suspects(Hostile) == [".alternative", ".factory", ".shaped"]
