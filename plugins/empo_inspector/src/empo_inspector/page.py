"""The page of a run: one HTML file with its data, script and style, which asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
from pydantic import JsonValue

from empo_core.best_effort import best_effort
from empo_core.errors import ConfigError, WorldError
from empo_core.experiment import Experiment
from empo_core.protocols import WorldModel
from empo_core.runs.atomic import digest, read_json, write_file
from empo_core.runs.directory import CONFIG, ENVIRONMENT
from empo_core.stages import stage
from empo_core.threads import torch_threads
from empo_inspector.container import Header, pack, unpack
from empo_inspector.decisive import worth_a_look
from empo_inspector.error_sizes import histograms
from empo_inspector.explanation import Explanation, explain, initial_words
from empo_inspector.pictures import pictures
from empo_inspector.sentences import templates
from empo_inspector.why import Reasons
from empo_theory.inspection import (
    NO_FAILURES,
    PAGE_BYTES,
    InspectableResult,
    Inspection,
    InspectionScope,
    not_split,
)
from empo_theory.parameters import CompleteTheory, theory_data

MODULES = (
    "parts",
    "container",
    "decision",
    "why",
    "sentences",
    "play",
    "board",
    "views",
    "power",
    "app",
)
"""Files of the script, which share one scope."""
SHADES = 51
"""Colours of a heat map."""
_LEFT_OUT = re.compile(r"^(\s*//.*|\s+)\n?", re.MULTILINE)
"""Comments, and blanks at the beginning of lines."""


@cache
def script() -> str:
    """The script: all files in one, since a page on a disk cannot import others."""
    parts = [_LEFT_OUT.sub("", _source(f"{name}.js")) for name in MODULES]
    texts = json.loads(_source("texts.json"))
    data = texts | {name: _shades(texts[name]) for name in ("gains", "losses")}
    words = f"const T = {_json(data)};\nconst say = {_json(templates())};\n"
    return "".join(['"use strict";\n', words, *parts, "start();\n"])


def _shades(stops: list[list[int]]) -> list[tuple[str, str]]:
    """Colours of a heat map from one stop to the next, each with that of words on it."""
    places = np.linspace(0, len(stops) - 1, SHADES)
    channels = [np.interp(places, range(len(stops)), values) for values in zip(*stops, strict=True)]
    shades = np.stack(channels, axis=1).round().astype(int)
    dark = shades @ (0.299, 0.587, 0.114) <= 120
    return [
        (f"rgb{tuple(shade)}", "#fff" if is_dark else "#262a33")
        for shade, is_dark in zip(shades.tolist(), dark, strict=True)
    ]


@cache
def style() -> str:
    """The style sheet."""
    return _LEFT_OUT.sub("", _source("page.css"))


def page(data: bytes, title: str, start: str) -> str:
    """The page of a container.

    Args:
        data: The container.
        title: Name of the world.
        start: The decision at the start, for readers without scripts.
    """
    policy = (
        f"default-src 'none'; script-src '{_hash(script())}'; style-src '{_hash(style())}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_source("page.html")).substitute(
        policy=policy,
        title=html.escape(title),
        about=_about(unpack(data)[0]),
        start=html.escape(start),
        style=style(),
        data=base64.b64encode(data).decode(),
        script=script(),
    )


def _about(header: Header) -> str:
    """Tables of parameters, of what is kept, and of where it comes from."""
    tables: dict[str, Mapping[str, JsonValue]] = {
        "Theory": header.theory,
        "Part of the run that is kept here": header.coverage.model_dump(),
        "Where it comes from": header.provenance,
    }
    rounded = '<p class="note">Values are rounded to 6e-8.</p>'
    parts = [rounded] if header.precision == "compact" else []
    for title, table in tables.items():
        rows = "".join(
            f'<tr><th scope="row">{html.escape(key)}</th><td>{html.escape(_text(value))}</td></tr>'
            for key, value in table.items()
        )
        parts.append(
            f'<div class="wide" tabindex="0" role="region" aria-label="{title}">'
            f'<table class="about"><caption>{title}</caption><tbody>{rows}</tbody></table></div>'
        )
    return "\n".join(parts)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else _json(value)


PAGE = "inspector.html"
"""File name of a run's page."""


@torch_threads(1)
def container(
    inspection: Inspection,
    world: WorldModel,
    scope: InspectionScope,
    directory: Path | None = None,
    reasons: Reasons | None = None,
) -> bytes:
    """The container of a run.

    Args:
        inspection: What the run knows.
        world: Its world.
        scope: What was asked for.
        directory: Its directory, which says where the data come from; None: they are not saved.
        reasons: Why the robots prefer an action at the start, if that is known.

    Raises:
        ConfigError: if the robots are averse to risk, whose decisions the page cannot work out, or
            may fail.
    """
    is_whole = inspection.first_failed is None
    if reason := not_split(inspection.theory) or (None if is_whole else NO_FAILURES):
        raise ConfigError(f"a page cannot show this run: {reason}")
    start = start_of(inspection, scope)
    return pack(
        inspection,
        scope,
        start,
        *pictures(world, inspection.rows),
        worth_a_look(inspection, start),
        histograms(inspection, scope),
        _provenance(directory, inspection.theory) | _beginning(inspection, world, start),
        reasons,
    )


def start_of(inspection: Inspection, scope: InspectionScope) -> int:
    """Position of the state with which an inspection begins."""
    if scope.start is None:
        return int(np.flatnonzero(inspection.number == 0)[0])
    if not scope.start.ndim:
        return int(np.flatnonzero(inspection.number == scope.start)[0])
    return int(np.flatnonzero((inspection.rows == scope.start).all(1))[0])


def first_words(explanation: Explanation) -> str:
    """A decision as text."""
    reasons = explanation.reasons
    names, policy = reasons.spec.robot_action_names, reasons.policies.pi_r[0].tolist()
    lines = [f"{name}: {chance:.6f}" for name, chance in zip(names, policy, strict=True)]
    head = [explanation.initial, ""] if explanation.initial else []
    return "\n".join([*head, explanation.description, "", *lines, "", *explanation.sentences()])


def who_holds_power(inspection: Inspection) -> str:
    """Who holds the power at the start, as text; empty where that was not measured."""
    if inspection.power is None:
        return ""
    return "\n".join(["", "", "Who holds the power", *inspection.power.in_words()])


def whole_page(
    inspection: Inspection,
    world: WorldModel,
    scope: InspectionScope,
    directory: Path | None = None,
) -> tuple[bytes, str]:
    """The container of a run, and its page; arguments are those of ``container``."""
    reasons = None
    try:
        explanation = explain(inspection, world, start_of(inspection, scope))
        words, reasons = first_words(explanation), explanation.reasons
    except WorldError as error:  # There is nothing to decide, or too little is kept.
        words = str(error)
    data = container(inspection, world, scope, directory, reasons)
    return data, page(data, inspection.spec.name, words + who_holds_power(inspection))


def write_page(
    inspection: Inspection,
    world: WorldModel,
    directory: Path,
    file: Path,
    scope: InspectionScope,
) -> bytes:
    """Write the page of a run; returns its container.

    Raises:
        StorageError: if the disk refuses.
    """
    data, text = whole_page(inspection, world, scope, directory)
    write_file(file, text)
    return data


def write_page_of(run: Experiment) -> None:
    """Write the page of a finished run that wants one; a failure is a warning."""
    result, scope = run.result, InspectionScope(max_bytes=PAGE_BYTES)
    if not isinstance(result, InspectableResult) or not result.wants_page:
        return
    progress = run.context.tracker.progress
    with best_effort(f"writing {PAGE}"), stage(progress, "writing the page"):
        inspection = result.inspection(scope)
        write_page(inspection, result.world, run.directory, run.directory / PAGE, scope)


def _provenance(directory: Path | None, theory: CompleteTheory) -> dict[str, JsonValue]:
    """Where an inspection comes from, as far as the run's directory says."""
    provenance: dict[str, JsonValue] = {
        "run": "" if directory is None else directory.name,
        "theory": digest(theory_data(theory)),
    }
    if directory is None or not (directory / ENVIRONMENT).is_file():
        return provenance
    recorded = read_json(directory / ENVIRONMENT)
    provenance["config sha256"] = hashlib.sha256((directory / CONFIG).read_bytes()).hexdigest()
    if isinstance(recorded, dict):
        provenance |= {
            key: recorded[key] for key in ("seed", "python", "versions", "git") if key in recorded
        }
    return provenance


def _beginning(inspection: Inspection, world: WorldModel, start: int) -> dict[str, JsonValue]:
    """That an inspection begins in one of several initial states, if it does."""
    words = initial_words(world, inspection.rows[start], inspection.first_time)
    return {"start": words} if words else {}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)


def _source(name: str) -> str:
    return resources.files("empo_inspector").joinpath("page", name).read_text("utf-8")
