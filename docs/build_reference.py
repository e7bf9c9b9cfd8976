"""Writes what can be read off the code: ``python docs/build_reference.py``.

That is ``docs/reference/components.md`` from the plugins of this repository,
``docs/reference/protocols.md`` from the docstrings of ``empo_core.protocols``, with a page per kind
in a folder beside each, ``docs/reference/inspector.schema.json`` from the header of containers, and
``examples/empo.schema.json``. Tests fail while any of them is out of date.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from empo_core import protocols, types
from empo_core.config import installed, library_files
from empo_core.config.schema import config_schema, described
from empo_core.plugins.hookspecs import KINDS, Kind
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_inspector.container import Header
from empo_theory import inspection

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs/reference"
SCHEMA = ROOT / "examples/empo.schema.json"
HEAD = "<!-- Written by docs/build_reference.py; edit the code or that script instead. -->\n\n"

ABOUT_KINDS: dict[Kind, tuple[str, str]] = {
    "world_model": (
        "A stochastic game: state rows in, all successors with exact probabilities out.",
        "WorldModel",
    ),
    "value_network": ("One of Q_r, V_h^e, X_h, U_r, V_r as a trainable function.", "ValueNetwork"),
    "policy_loss": ("From candidate actions and their targets to a scalar.", "PolicyLoss"),
    "aggregator": ("Many items to one value per segment.", "Aggregator"),
    "tracker": ("Watches a run and changes nothing about it.", "Tracker"),
    "human_prior": ("How the humans act for each goal they might have.", "HumanPrior"),
    "explorer": ("How agents deviate from their policy to see more.", "Explorer"),
    "collector": ("Produces experience by running actors.", "Collector"),
    "environment": ("What agents act in where there is no world model.", "Environment"),
    "executor": ("Starts workers in processes of their own and calls their methods.", "Executor"),
    "callback": ("Follows a run that learns; may stop it, log, save, change its rate.", "Callback"),
    "schedule": ("How learning rates change in the course of a run.", "Schedule"),
    "policy_network": ("From observations to features of policies and critics.", "PolicyNetwork"),
    "algorithm": ("What a run does.", "Algorithm"),
}

COMPONENTS = """# Kinds and components

For whoever writes a config. A config chooses a component of each kind by name,
`{name: NAME, params: {...}}` or just `NAME`. This page lists what the core and the plugins of this
repository offer, and leads to a page per kind with every parameter (a page per algorithm).
`empo plugins` and `empo describe KIND NAME` say the same about what you have installed.
"""

PROTOCOLS = """# Protocols

For authors of plugins: what the core asks of each kind of component, as `empo_core.protocols` says
it, the founding five first. A component derives from the base class of its kind, which has the
optional members; where there is a protocol instead, the methods are enough. A component's `target`
is called once, with its validated params first. Each kind has a conformance kit in `empo_testing`:
subclass it in your tests. Axis names are explained in [shapes](shapes.md), and
[the five founding kinds](../tutorials/first_plugin/kinds.md#the-five-founding-kinds) have a page
with the smallest component of each.

| kind | class | which is a | call | kit |
|---|---|---|---|---|
"""

COMPANIONS: dict[str, Kind] = {
    "RobotPolicy": "human_prior",
    "Regression": "value_network",
    "Actor": "collector",
    "VectorEnv": "environment",
    "Agent": "algorithm",
    "EpisodePlayer": "algorithm",
    "Result": "algorithm",
    "Inspectable": "algorithm",
    "InspectableResult": "algorithm",
    "Sketchable": "world_model",
}
"""The kind on whose page a class stands that is of no kind itself."""

DATA: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "data_of_worlds": (
        "Data of worlds",
        "The dataclasses of `empo_core.types` that worlds take and return.",
        (
            *("AgentSpec", "Goal", "WorldSpec", "InitialStates", "Segments"),
            *("Successors", "Expansion", "Overlay"),
        ),
    ),
    "data_of_learners": (
        "Data of learners",
        "The dataclasses of `empo_core.types` that learners exchange with networks, losses, "
        "explorers and trackers, and the run that callbacks see.",
        (
            *("Training", "ValueQuery", "Fit", "Experience", "Scene", "RecordedBatch"),
            *("CandidateBatch", "LossNeeds", "LossOutput", "Histogram"),
        ),
    ),
}
"""Pages of dataclasses: title, what they are, and which."""

CALLS: dict[str, str] = {
    "human_prior": ", world",
    "value_network": ", spec, quantity",
    "explorer": ", spec, agents",
    "environment": ", context",
    "policy_network": ", observations",
}
TABLE = re.compile(r"^=+(?: +=+)+$.*^=+(?: +=+)+$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Example):$")


def shipped() -> Registry:
    """What the core and the installed plugins of this repository offer."""
    registry = installed()
    ours = {path.parent.name.replace("_", "-") for path in ROOT.glob("plugins/*/pyproject.toml")}
    ours.add("empo-core")
    offers = [offer for offer in registry.offers if offer.provider.distribution in ours]
    # Ray is too large to be required; listing its plugin needs nothing of that.
    for name in sorted(ours - {provider.distribution for provider in registry.providers}):
        offers += offers_of_source(name)
    return Registry(offers, [p for p in registry.providers if p.distribution in ours])


def offers_of_source(distribution: str) -> list[Offer]:
    """What a plugin of this repository would offer if it were installed."""
    package = distribution.replace("-", "_")
    path = ROOT / f"plugins/{package}/src/{package}/plugin.py"
    if not path.is_file():  # A library.
        return []
    spec = importlib.util.spec_from_file_location(f"{package}.plugin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Pydantic looks names up there.
    spec.loader.exec_module(module)
    provider = Provider(distribution, "", distribution)
    components = getattr(module, "empo_components", tuple)()
    return [Offer(provider, component) for component in components]


def schema() -> str:
    """The JSON Schema that the examples name, as ``empo schema`` prints it."""
    return json.dumps(config_schema(shipped()), indent=2, ensure_ascii=False) + "\n"


def pages() -> dict[str, str]:
    """Every generated page of the reference by its path from there."""
    header = json.dumps(Header.model_json_schema(), indent=2) + "\n"
    return {**component_pages(), **protocol_pages(), "inspector.schema.json": header}


def component_pages() -> dict[str, str]:
    """The index, and a page per kind and per algorithm."""
    registry = shipped()
    index = f"{HEAD}{COMPONENTS}\n" + "\n".join(component_rows(registry)) + "\n"
    written = {"components.md": index}
    for kind in KINDS:
        about, protocol = ABOUT_KINDS[kind]
        head = f"{about} See [{protocol}](../protocols/{kind}.md)."
        offers = [offer for offer in registry.offers if offer.component.kind == kind]
        if kind == "algorithm":
            for offer in offers:
                path = f"components/{component_page(offer)}"
                written[path] = page(*algorithm_parts(offer))
            links = [f"[`{offer.component.name}`]({component_page(offer)})" for offer in offers]
            head += f" Each has a page of its own: {', '.join(links)}."
            offers = []
        elif not offers:
            head += (
                " No plugin of this repository offers one yet; "
                f"`empo new-plugin NAME --kind {kind}` writes one to start from."
            )
        parts = ["\n\n".join(component_section(offer)) for offer in offers]
        written[f"components/{kind}.md"] = page(f"# {kind}", head, *parts)
    return written


def algorithm_parts(offer: Offer) -> Iterator[str]:
    """One algorithm, with a table per group of params, such as ``planner.samples``."""
    title, about, table, *others = component_section(offer)
    yield title.removeprefix("#")
    yield about
    head, rule, *rows = table.splitlines()
    groups: dict[str, list[str]] = {"": []}
    for row in rows:
        name, dot, _ = row.removeprefix("| `").partition("`")[0].partition(".")
        group = name.removesuffix("[]") if dot or name in groups else ""
        if group and group not in groups:  # The row before is of the group itself.
            groups[group] = [groups[""].pop()]
        groups[group].append(row)
    links = ", ".join(f"[`{group}`](#{group})" for group in groups if group)
    yield "\n".join([head, rule, *groups.pop("")])
    yield f"Params in groups: {links}."
    for group, members in groups.items():
        yield f"## `{group}`"
        yield "\n".join([head, rule, *members])
    yield from others


def page(*parts: str) -> str:
    """A generated page."""
    return HEAD + "\n\n".join(part.strip("\n ") for part in parts) + "\n"


def component_page(offer: Offer) -> str:
    """The page that has a component, within ``components``."""
    component = offer.component
    is_alone = component.kind == "algorithm"
    return f"{component.kind}_{component.name}.md" if is_alone else f"{component.kind}.md"


def component_rows(registry: Registry) -> Iterator[str]:
    """A table row per kind and distribution, with its components."""
    yield from ("| kind | components | from |", "|---|---|---|")
    names: dict[tuple[Kind, str], list[str]] = {}
    for kind in KINDS:
        for offer in registry.offers:
            if (component := offer.component).kind == kind:
                anchor = "" if kind == "algorithm" else f"#{kind}-{component.name}"
                link = f"[`{component.name}`](components/{component_page(offer)}{anchor})"
                names.setdefault((kind, offer.provider.distribution), []).append(link)
    for (kind, distribution), links in names.items():
        about = f"[{kind}](components/{kind}.md)"
        yield f"| {about} | {', '.join(links)} | {source_link(distribution, '../..')} |"


def source_link(distribution: str, root: str) -> str:
    """The README of a distribution, where ``root`` leads to the root of the repository."""
    if distribution == "empo-core":
        return "the core"
    return f"[{distribution}]({root}/plugins/{distribution.replace('-', '_')}/README.md)"


def component_section(offer: Offer) -> Iterator[str]:
    """One component: what it is, where it comes from, its params, its library."""
    component, distribution = offer.component, offer.provider.distribution
    yield f"## {component.kind} `{component.name}`"
    yield f"{component.summary} From {source_link(distribution, '../../..')}."
    rows = list(param_rows(component.params_model()))
    head = ["| param | type | default | meaning |", "|---|---|---|---|"]
    yield "\n".join([*head, *rows]) if rows else "It has no params."
    if files := library_files(Registry([offer]), component.kind, component.name):
        names = ", ".join(f"`{component.name}/{stem}`" for stem in files)
        yield f"Ready-made: {names}."


def param_rows(model: type[BaseModel]) -> Iterator[str]:
    """A table row per param."""
    for key in described(model):
        shown = f"`{key.default}`" if key.default else ""
        cells = (f"`{key.name}`", key.type, "required" if key.required else shown, key.description)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def protocol_pages() -> dict[str, str]:
    """The index, a page per kind with the classes that belong to it, and pages of data."""
    rows = []
    members: dict[Kind, list[type]] = {}
    for kind, (_, name) in ABOUT_KINDS.items():
        protocol = getattr(protocols, name)
        sort = "protocol" if is_protocol(protocol) else "base class"
        kit = f"`empo_testing.{kind}.{name}Tests`"
        call = f"`factory(params{CALLS.get(kind, '')})`"
        rows.append(f"| {kind} | [{name}](protocols/{kind}.md) | {sort} | {call} | {kit} |")
        members[kind] = [protocol]
    for companion in companions():
        members[COMPANIONS[companion.__name__]].append(companion)
    index = [f"{HEAD}{PROTOCOLS}" + "\n".join(rows), "Other classes stand on the page of a kind:"]
    index.append("\n".join(f"* {link}" for link in companion_links()))
    index.append("Dataclasses that methods take and return have pages of their own:")
    data = {member.__name__: member for member in data_of_kinds()}
    lines = []
    written = {}
    for stem, (title, about, names) in DATA.items():
        listed = ", ".join(f"`{name}`" for name in names)
        lines.append(f"* [{title}](protocols/{stem}.md): {listed}")
        parts = ["\n\n".join(data_section(data.pop(name))) for name in names]
        written[f"protocols/{stem}.md"] = page(f"# {title}", about, *parts)
    assert not data, f"say in DATA on which page these stand: {', '.join(data)}"
    index.append("\n".join(lines))
    for kind, classes in members.items():
        about = f"{ABOUT_KINDS[kind][0]} Components: [{kind}](../components/{kind}.md)."
        parts = ["\n\n".join(protocol_section(protocol)) for protocol in classes]
        written[f"protocols/{kind}.md"] = page(f"# Protocol of {kind}", about, *parts)
    return {"protocols.md": "\n\n".join(index) + "\n", **written}


def companion_links() -> Iterator[str]:
    """A link to each class that is of no kind itself."""
    for companion in companions():
        kind, name = COMPANIONS[companion.__name__], companion.__name__
        yield f"[{name}](protocols/{kind}.md#{name.lower()}) on the page of {kind}"


def companions() -> list[type]:
    """Protocols and abstract classes that are of no kind themselves."""
    kinds = [getattr(protocols, name) for _, name in ABOUT_KINDS.values()]
    inspections = [inspection.Inspectable, inspection.InspectableResult, inspection.Sketchable]
    return [
        member
        for member in (*vars(protocols).values(), *inspections)
        if inspect.isclass(member)
        and (is_protocol(member) or inspect.isabstract(member))
        and member not in kinds
    ]


def is_protocol(member: type) -> bool:
    """Whether a class is a protocol, as opposed to a base class."""
    return bool(getattr(member, "_is_protocol", False))


def data_of_kinds() -> list[type]:
    """The dataclasses of ``empo_core.types``, in their order, and the run that callbacks see."""
    return [
        protocols.Training,
        *(
            member
            for member in vars(types).values()
            if inspect.isclass(member)
            and dataclasses.is_dataclass(member)
            and member.__module__ in (types.__name__, types.Segments.__module__)
        ),
    ]


def data_section(data: type) -> Iterator[str]:
    """One dataclass: its docstring, and its fields with their types and defaults."""
    yield f"## {data.__name__}"
    yield markdown(inspect.getdoc(data) or "")
    lines = [f"{name}: {kind}" for name, kind in inspect.get_annotations(data).items()]
    members = [
        name
        for name, member in vars(data).items()
        if isinstance(member, property) and not name.startswith("_")
    ]
    yield "```text\n" + "\n".join(lines) + "\n```"
    if members:
        yield "Properties: " + ", ".join(f"`{name}`" for name in members) + "."


def protocol_section(protocol: type) -> Iterator[str]:
    """One protocol: its docstring, and every member with signature and docstring."""
    yield f"## {protocol.__name__}"
    yield markdown(inspect.getdoc(protocol) or "")
    annotations = inspect.get_annotations(protocol)
    for name, kind in annotations.items():
        yield f"### {protocol.__name__}.{name}\n\nAttribute of type `{kind}`."
    for name, member in vars(protocol).items():
        function = member.fget if isinstance(member, property) else member
        if not inspect.isfunction(function) or (name.startswith("_") and name != "__call__"):
            continue
        if "Protocol" in function.__qualname__ or not function.__doc__:
            continue
        yield f"### {protocol.__name__}.{name}"
        yield f"```text\n{signature(name, function, isinstance(member, property))}\n```"
        optional = not (is_protocol(protocol) or getattr(function, "__isabstractmethod__", False))
        yield "Optional. " * optional + markdown(inspect.getdoc(function) or "")


def signature(name: str, function: Any, is_property: bool = False) -> str:
    """A signature with one parameter per line where it is long."""
    found = inspect.signature(function)
    empty = inspect.Signature.empty
    returns = "" if found.return_annotation is empty else f" -> {found.return_annotation}"
    if is_property:
        return f"{name}{returns}"
    listed: list[str] = []
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p.startswith("*") for p in listed):
            listed.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = "" if parameter.annotation is empty else f": {parameter.annotation}"
        default = "" if parameter.default is empty else f" = {parameter.default!r}"
        listed.append(f"{stars}{parameter.name}{kind}{default}")
    line = f"{name}({', '.join(listed)}){returns}"
    if len(line) <= 90:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in listed), f"){returns}"])


def markdown(docstring: str) -> str:
    """A Google docstring as Markdown: sections become lists."""
    lines: list[str] = []
    inside = False
    for line in escaped(docstring.replace("``", "`")).splitlines():
        if match := SECTION.match(line):
            inside = True
            lines += [f"{match[1]}:", ""]
        elif inside and re.match(r" {4}\S", line):
            name, colon, rest = line.strip().partition(": ")
            named = bool(colon) and re.fullmatch(r"\w+", name)
            lines.append(f"* `{name}`: {rest}" if named else f"* {line.strip()}")
        elif inside and line.startswith(" " * 5):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    # A section without names is one paragraph, not a list of its lines.
    text = re.sub(r"(?<=\n)\* (?!`)(.*(?:\n\* (?!`).*)*)", _paragraph, "\n".join(lines))
    return TABLE.sub(r"```text\n\g<0>\n```", text)


def escaped(text: str) -> str:
    """Text in which ``<`` is no tag, and ``::`` before a block of code is a colon."""
    pieces = re.split(r"(`[^`]*`)", text)
    pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
    return re.sub(r"::$", ":", "".join(pieces), flags=re.MULTILINE)


def _paragraph(match: re.Match[str]) -> str:
    return match[1].replace("\n* ", "\n")


def main() -> None:
    """Write everything, and remove pages of kinds that are gone."""
    written = pages()
    for folder in ("components", "protocols"):
        (REFERENCE / folder).mkdir(exist_ok=True)
        for path in (REFERENCE / folder).glob("*.md"):
            if f"{folder}/{path.name}" not in written:
                path.unlink()
    for name, text in written.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
