"""Commands that list what is installed: ``plugins``, ``worlds``, ``describe`` and ``schema``."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, cast, get_args

import typer

from empo_core import __version__
from empo_core.cli.output import (
    Debug,
    Json,
    output,
    print_json,
    print_table,
    reserved,
    say,
    show,
)
from empo_core.config import installed
from empo_core.errors import ConfigError, EmpoError
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import BLOCK, Offer, Provider
from empo_core.suggestions import nearest


@reserved()
def plugins(
    context: typer.Context,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Print requirement lines: the core, plugins, versions."),
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List every installed plugin, what it offers, and why it does not work if so."""
    registry = installed()
    if freeze:
        if json:
            raise ConfigError("--freeze prints requirement lines, not JSON; leave out --json")
        _print_requirements(registry.providers)
        return
    core = context.parent.command.core if context.parent else {}  # type: ignore[attr-defined]
    clashes = registry.clashes(core)
    listed: list[dict[str, Any]] = [
        asdict(provider)
        | {
            "problem": provider.problem or None,
            "import_s": round(provider.import_s, 4),
            "components": [
                {
                    "kind": offer.component.kind,
                    "name": offer.component.name,
                    "summary": offer.component.summary,
                }
                for offer in registry.offers
                if offer.provider == provider
            ],
            "commands": [
                {"name": offer.command.name, "summary": offer.command.help}
                for offers in registry.commands.values()
                for offer in offers
                if offer.provider == provider
            ],
            "follows_runs": any(hook.provider == provider for hook in registry.run_hooks),
            "has_kernels": any(hook.provider == provider for hook in registry.kernel_hooks),
        }
        for provider in registry.providers
    ]
    if json:
        print_json({"plugins": listed, "clashes": clashes})
        return
    rows: list[list[str]] = []
    for plugin in listed:
        entries = [["", f"not usable: {plugin['problem']}"]] if plugin["problem"] else []
        entries += [[f"{c['kind']} {c['name']}", c["summary"]] for c in plugin["components"]]
        entries += [[f"command {c['name']}", c["summary"]] for c in plugin["commands"]]
        if plugin["follows_runs"]:
            entries.append(["hook empo_run_finished", "Acts on each run that has finished."])
        if plugin["has_kernels"]:
            entries.append(["hook empo_kernels", "Compiles its kernels before they are used."])
        if plugin["put_back"]:
            changed = ", ".join(plugin["put_back"])
            entries.append(["", f"its import changed {changed}; that was put back"])
        import_time = f"{1000 * plugin['import_s']:.0f} ms" if plugin["import_s"] else ""
        import_time += ", torch" * plugin["imports_torch"]
        head = [str(plugin["distribution"]), str(plugin["version"]), import_time]
        for entry in entries:
            rows.append([*head, *entry])
            head = ["", "", ""]
    if rows:
        print_table("", ["plugin", "version", "import", "offers", "about"], rows)
    else:
        show("No plugins are installed. A plugin offers an entry point of group 'empo'.")
    if any(provider.is_broken for provider in registry.providers):
        show(
            "A plugin that is not usable is mended by its author; who only uses it upgrades or "
            f"uninstalls it, or names it in {BLOCK}."
        )
    for clash in clashes:
        show(f"name clash: {clash}")


def _print_requirements(providers: Sequence[Provider]) -> None:
    """Print what pip installs to have these plugins again; of broken metadata, a warning."""
    pinned = {"empo-core": __version__}
    for provider in providers:
        if provider.entry_point:
            pinned[provider.distribution] = provider.version
        else:
            say(f"warning: {provider.distribution} is left out: {provider.problem}")
    for name in sorted(pinned):
        show(f"{name}=={pinned[name]}")


@reserved()
def worlds(json: Json = False, debug: Debug = False) -> None:
    """List the worlds that come with the plugins; a config names them as shown."""
    registry = installed()
    listed = [entry for name in registry.names("world_model") for entry in _library(name)]
    if json:
        print_json({"worlds": listed})
        return
    columns = ["world", "title", "humans", "robots", "goals", "steps", "row bytes"]
    rows = [
        [str(entry["world"]), str(entry["problem"] or entry["title"]), *(
            "" if entry[key] is None else str(entry[key])
            for key in ("humans", "robots", "goals", "horizon", "state_bytes")
        )]
        for entry in listed
    ]  # fmt: skip
    print_table("", columns, rows)


def _library(name: str) -> list[dict[str, str | int | None]]:
    """Title and size of every file of one library; a broken file says why it is."""
    from empo_core.cli.check import sizes
    from empo_core.config import library_files
    from empo_core.documents import build_named

    listed = []
    for stem, path in library_files(installed(), "world_model", name).items():
        entry: dict[str, str | int | None] = {
            "world": f"{name}/{stem}",
            "file": str(path),
            "title": None,
            "problem": None,
            **dict.fromkeys(["humans", "robots", "goals", "horizon", "state_bytes"]),
        }
        try:
            entry |= sizes(build_named(name, path))
        except EmpoError as error:
            entry["problem"] = str(error).splitlines()[0]
        listed.append(entry)
    return listed


@reserved()
def describe(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help=f"What it is, where several have the name: {', '.join(get_args(Kind))}.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="The component's name.", show_default=False)
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Explain one component: its parameters and where it comes from."""
    from empo_core.config.schema import described

    offer = _offer(kind, name)
    component = offer.component
    kind, name = component.kind, component.name
    parameters = [asdict(key) for key in described(component.params_model())]
    source = f"{offer.provider.distribution} {offer.provider.version}"
    if json:
        about = {"kind": kind, "name": name, "summary": component.summary, "source": source}
        print_json(about | {"target": component.target, "params": parameters})
        return
    show(f"{kind} {name}, from {source}")
    if component.summary:
        show(component.summary)
    if not parameters:
        show("It has no parameters.")
        return
    rows = [
        [p["name"], p["type"], "required" if p["required"] else p["default"], p["description"]]
        for p in parameters
    ]
    # The long texts are folded in a pipe, too.
    print_table("", ["parameter", "type", "default", "meaning"], rows, piped=100)


def _offer(kind: str, name: str | None) -> Offer:
    """The component of a kind and name, or of a name alone.

    Raises:
        ConfigError: if there is no such kind, no component of that name, or several.
    """
    registry, kinds = installed(), get_args(Kind)
    if name is not None:
        if kind not in kinds:
            close = nearest(kind, kinds)
            hint = f"did you mean {close!r}? " if close else ""
            raise ConfigError(f"{kind}: is no kind; {hint}kinds are {', '.join(kinds)}")
        return registry.offer(cast(Kind, kind), name)
    if kind in kinds:
        names = ", ".join(registry.names(cast(Kind, kind)))
        raise ConfigError(f"{kind}: name a component of this kind, too; installed: {names}")
    having = [other for other in kinds if kind in registry.names(other)]
    if len(having) == 1:
        return registry.offer(having[0], kind)
    if having:
        raise ConfigError(
            f"{kind}: is the name of several components; write the kind before it: "
            f"{', '.join(having)}"
        )
    close = nearest(kind, {name for other in kinds for name in registry.names(other)})
    hint = f" Did you mean {close!r}?" if close else ""
    raise ConfigError(f"{kind}: no component has this name.{hint} See: empo plugins")


@reserved()
def schema(debug: Debug = False) -> None:
    """Print the JSON Schema of configs for the installed plugins, e.g. for an editor."""
    from empo_core.config.schema import config_schema

    text = jsonlib.dumps(config_schema(installed()), indent=2, ensure_ascii=False)
    print(text, file=output())
