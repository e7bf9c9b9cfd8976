"""Pages of the site made from docstrings: one per part of the core, one per plugin."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pydantic
from build_reference import markdown, param_rows, signature

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"__main__", "cli", "templates"}


@functools.cache
def api_pages() -> dict[str, str]:
    """Every page by its file name, e.g. ``api/empo_core.types.md``."""
    return {f"api/{name}.md": api_page(name) for name in packages()}


def api_list() -> str:
    """A link and a sentence for every page."""
    rows = []
    for name in packages():
        about = inspect.getdoc(importlib.import_module(name)) or ""
        rows.append(f"* [`{name}`](api/{name}.md): {markdown(about.partition(chr(10))[0])}")
    return "\n".join(rows) + "\n"


def packages() -> list[str]:
    """The parts of the core, then the plugins that are installed."""
    core = importlib.import_module("empo_core")
    parts = [m.name for m in pkgutil.iter_modules(core.__path__) if m.name not in LEFT_OUT]
    found = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
    # One that needs something large, as a cluster does, may not be installed.
    plugins = [name for name in found if importlib.util.find_spec(name)]
    return ["empo_core", *(f"empo_core.{part}" for part in sorted(parts)), *plugins]


def api_page(name: str) -> str:
    """What a package or a module offers, module by module."""
    parts = [f"# {name}"]
    for module in modules(name):
        members, is_whole = list(public(module)), module.__name__ == name
        if not (members or is_whole):
            continue
        parts += [] if is_whole else [f"## {module.__name__}"]
        parts.append(markdown(inspect.getdoc(module) or ""))
        level = "##" if is_whole else "###"
        parts += ["\n\n".join(section(member, level)) for member in members]
    parts += [exports()] if name == "empo_core" else []
    return "\n\n".join(parts) + "\n"


def exports() -> str:
    """The pages of what ``empo_core`` itself offers, but defines elsewhere."""
    core = importlib.import_module("empo_core")
    homes = {name: getattr(getattr(core, name), "__module__", "") for name in core.__all__}
    ours = {name: home for name, home in homes.items() if home.startswith("empo_core.")}
    rows = (f"* `{n}`: [{home}]({'.'.join(home.split('.')[:2])}.md)" for n, home in ours.items())
    return "\n".join(rows)


def modules(name: str) -> Iterator[ModuleType]:
    """A module and those below it; of ``empo_core`` itself only what it exports."""
    module = importlib.import_module(name)
    yield module
    if name != "empo_core":
        below = pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}.")
        for found in below:
            if not any(part.startswith("_") for part in found.name.split(".")):
                yield importlib.import_module(found.name)


def public(module: ModuleType) -> Iterator[type | FunctionType]:
    """Classes and functions that a module defines, in their order."""
    for name, member in vars(module).items():
        found = getattr(member, "py_func", member)  # A compiled function wraps the one written.
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        # A class made from another, as generic models are, has the docstring of that one.
        if isinstance(found, type | FunctionType) and found.__doc__ and "[" not in found.__name__:
            yield found


def section(member: type | FunctionType, level: str) -> Iterator[str]:
    """A class with its public methods, or a function, under a heading of this level."""
    yield f"{level} {member.__name__}"
    if isinstance(member, FunctionType):
        yield from described_function(member.__name__, member)
        return
    if dataclasses.is_dataclass(member) or "__init__" in vars(member):
        yield f"```python\n{signature(member.__name__, member)}\n```"
    yield markdown(inspect.getdoc(member) or "")
    if issubclass(member, pydantic.BaseModel):
        if rows := list(param_rows(member)):
            yield "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])
        return
    for name, entry in vars(member).items():
        function = entry
        for inner in ("fget", "func", "__func__"):
            function = getattr(function, inner, function)
        if isinstance(function, FunctionType) and function.__doc__ and not name.startswith("_"):
            yield f"{level}# {name}"
            is_property = isinstance(entry, property | functools.cached_property)
            yield from described_function(name, function, is_property)


def described_function(
    name: str, function: FunctionType, is_property: bool = False
) -> Iterator[str]:
    """A signature, with shapes, and the docstring."""
    yield f"```python\n{signature(name, function, is_property)}\n```"
    yield markdown(inspect.getdoc(function) or "")
