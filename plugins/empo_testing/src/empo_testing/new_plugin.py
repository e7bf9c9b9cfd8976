"""``empo new-plugin``: a complete plugin folder to start from."""

from __future__ import annotations

import contextlib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from empo_core import __version__
from empo_core.config import installed
from empo_core.plugins.discovery import NAME
from empo_core.plugins.hookspecs import KINDS
from empo_core.suggestions import nearest

RESERVED = {"core", "plugin", "plugins"}
"""Names that would be taken for the core itself."""


def new_plugin(
    name: Annotated[
        str, typer.Argument(help="Name of the component, e.g. 'gentle-robot'.", show_default=False)
    ],
    kind: Annotated[
        str, typer.Option("--kind", help=f"One of {', '.join(KINDS)}.", show_default=False)
    ],
    directory: Annotated[
        Path, typer.Option("--directory", help="Folder that receives the plugin's folder.")
    ] = Path(),
) -> None:
    """Write a complete, installable, tested plugin folder."""
    folder = write_plugin(name, kind, directory)
    Console().print(
        f"Wrote {escape(str(folder))}. Go on with:\n"
        f"  python -m pip install -e '{escape(str(folder))}\\[testing]'\n"
        f"  python -m pytest {escape(str(folder))}\n"
        f"  empo describe {kind} {_component(name)}",
        highlight=False,
        soft_wrap=True,
    )


def write_plugin(name: str, kind: str, directory: Path) -> Path:
    """Write the folder of a new plugin and return it.

    Args:
        name: The component's name; a leading ``empo-`` and underscores are understood.
        kind: One of ``KINDS``.
        directory: The existing folder to write into.

    Raises:
        typer.BadParameter: if the name, kind or folder cannot be used; nothing was written.
    """
    component = _component(name)
    _check_kind(kind)
    _check_name(name, component, kind)
    package = f"empo_{component.replace('-', '_')}"
    folder = directory / package
    if not directory.is_dir():
        reason = "is no folder" if directory.exists() else "does not exist; create it first"
        raise typer.BadParameter(f"{str(directory)!r} {reason}", param_hint="--directory")
    if folder.exists():
        raise typer.BadParameter(
            f"{str(folder)!r} exists; choose another name or folder, or remove it first",
            param_hint="NAME",
        )
    major, minor, *_ = (int(part) for part in __version__.split("."))
    substitutes = {
        "component": component,
        "class_name": "".join(word.capitalize() for word in component.split("-")),
        "core_limit": f"{major}.{minor + 1}",
        "core_version": f"{major}.{minor}",
        "distribution": f"empo-{component}",
        "kind": kind,
        "package": package,
    }
    templates = files("empo_testing") / "templates"
    try:
        for part in ("common", kind):
            _write(templates / part, folder, substitutes)
    except OSError as error:
        raise typer.BadParameter(
            f"{str(error.filename or folder)!r} cannot be made: {error.strerror}; choose another "
            "folder",
            param_hint="--directory",
        ) from error
    return folder


def _component(name: str) -> str:
    return name.replace("_", "-").removeprefix("empo-")


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        close = nearest(kind, KINDS)
        hint = f" Did you mean {close!r}?" if close else ""
        raise typer.BadParameter(
            f"there is no kind {kind!r}.{hint} Kinds: {', '.join(KINDS)}.", param_hint="--kind"
        )


def _check_name(name: str, component: str, kind: str) -> None:
    if not NAME.fullmatch(component):
        raise typer.BadParameter(
            f"{name!r} cannot be a name; use lower-case words of letters and digits joined by "
            "hyphens, e.g. 'gentle-robot'",
            param_hint="NAME",
        )
    if component in RESERVED:
        raise typer.BadParameter(
            f"empo-{component} is reserved for EMPO itself; choose another name", param_hint="NAME"
        )
    registry = installed()
    conflicts = [
        f"{offer.provider.distribution} provides {kind} {component!r}"
        for offer in registry.offers
        if (offer.component.kind, offer.component.name) == (kind, component)
    ]
    with contextlib.suppress(PackageNotFoundError):
        conflicts.append(f"a distribution {distribution(f'empo-{component}').name} is installed")
    if conflicts:
        raise typer.BadParameter(f"{conflicts[0]} already; choose another name", param_hint="NAME")


def _write(source: Traversable, target: Path, substitutes: dict[str, str]) -> None:
    """Fill in every template below ``source``; ``src`` gets the package's folder."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            inner = target / entry.name
            if entry.name == "src":
                inner /= substitutes["package"]
            _write(entry, inner, substitutes)
        else:
            text = Template(entry.read_text(encoding="utf-8")).substitute(substitutes)
            (target / entry.name.removesuffix(".tmpl")).write_text(text, encoding="utf-8")
