"""Config and world files: read with positions, validated, rejected with located messages.

``load_config`` reads a run's config. ``read_yaml``, ``validate_document`` and
``located_error`` are for plugins that have files of their own, e.g. worlds:

    document = read_yaml(path)
    world = validate_document(WorldFile, document)
    if world.width > 99:
        raise located_error(document, ["width"], "must be at most 99")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from empo_core.config.errors import ALIKE, Explainer
from empo_core.config.models import RunConfig, installed
from empo_core.config.overrides import apply_override
from empo_core.config.yaml import (
    Document,
    Loc,
    dotted,
    parse_yaml,
    problems,
    read_yaml,
)
from empo_core.errors import EXITS, ConfigError, EmpoError, event
from empo_core.plugins.registry import Registry
from empo_core.suggestions import few_suggestions

__all__ = [
    "Document",
    "ForeignFileError",
    "joined",
    "load_config",
    "located_error",
    "parse_yaml",
    "read_yaml",
    "validate_document",
]

Model = TypeVar("Model", bound=BaseModel)


def load_config(
    path: str | Path | Document | Mapping[str, object],
    overrides: Sequence[str] | None = None,
    registry: Registry | None = None,
) -> RunConfig:
    """Read and validate a config file.

    Args:
        path: The YAML or JSON file; what ``read_yaml`` returned for it; or the config as a dict.
        overrides: ``key.path=value`` each; later ones win. Values are YAML, list positions
            are numbers, and a component given by its bare name may be refined, e.g.
            ``trackers.0.params.every=10``.
        registry: The components it may name; default: the installed ones.

    Raises:
        ConfigError: if the config is not valid, with one located line per problem.
    """
    if isinstance(path, Mapping):
        data: Any = deepcopy(dict(path))  # What is no plain data, validation refuses.
        document = Document("config", data, Path.cwd(), marks={(): "config"})
    elif isinstance(path, Document):
        document = path
    elif isinstance(path, str | PathLike):
        document = read_yaml(path)
    else:
        raise ConfigError(f"a config is a path or a dict, not {type(path).__name__} ({path!r})")
    for override in overrides or ():
        apply_override(document, override)
    registry = registry if registry is not None else installed()
    return validate_document(RunConfig, document, {"registry": registry})


@few_suggestions()
def validate_document(
    model: type[Model], document: Document, context: Mapping[str, object] | None = None
) -> Model:
    """The document's data as ``model``.

    Args:
        model: What the data should be.
        document: What ``read_yaml`` returned.
        context: Handed to pydantic's validators; ``base`` defaults to the document's folder.

    Raises:
        ConfigError: if the document is not valid, with one located line per problem.
    """
    full = {"base": document.base, **(context or {})}
    candidate = full.get("registry")
    registry = candidate if isinstance(candidate, Registry) else None
    try:
        return model.model_validate(document.data, context=full)
    except ValidationError as error:
        _refuse_foreign(document, model)
        raise problems(Explainer(document, model, registry).lines(error)) from error
    except EmpoError as error:
        raise located_error(document, (), str(error)) from error
    except (Exception, *EXITS) as error:
        reason = f"a validator {event(error)}; report it to the plugin"
        raise located_error(document, (), reason) from error


class ForeignFileError(ConfigError):
    """A file that is something else than it should be; the message quotes nothing of it."""


def _refuse_foreign(document: Document, model: type[BaseModel]) -> None:
    """Refuse a file that is something else than a model's, so that errors must not quote it.

    Whoever writes a config chooses what a run reads; an error must not show what a file of
    another kind holds, e.g. passwords. A file of a model has one of its required keys, or two of
    its keys, which may be misspelt. Whoever typed the name of a config, or a text, may see it.

    Raises:
        ForeignFileError: if the file is something else.
    """
    name = Path(document.name).name
    is_file = bool(name) and (document.base / name).is_file()
    if not is_file or document.data is None or model is RunConfig:
        return
    fields = model.model_fields
    required = [key for key, field in fields.items() if field.is_required()]
    keys = list(map(str, document.data)) if isinstance(document.data, dict) else []
    alike = [key for key in keys if get_close_matches(key, fields, 1, ALIKE)]
    if {*required} & {*keys} or len(alike) >= 2:
        return
    lacks = f"lacks {', '.join(required)}" if required else "has no key that belongs here"
    shape = "a mapping that" if isinstance(document.data, dict) else "not a mapping and"
    error = located_error(
        document,
        (),
        f"should be a mapping with {', '.join(fields)}; the file is {shape} {lacks}, so it is "
        "something else, and nothing of it is shown; check the path",
    )
    raise ForeignFileError(str(error)) from None


def located_error(
    document: Document, loc: Loc, reason: str, *, at: tuple[int, int] | None = None
) -> ConfigError:
    """An error about one place of a document, to raise or to collect.

    Args:
        document: What ``read_yaml`` returned.
        loc: Keys and list positions from the root to the value.
        reason: What is wrong, the offending value, what is allowed, what to do.
        at: Row and column (from 0) of the culprit inside a string, e.g. of a map.
    """
    place = document.place_in_text(loc, *at) if at is not None else document.place(loc)
    key = dotted(loc)
    text = " ".join(line.strip() for line in reason.splitlines())
    return problems([f"{place}: {key}: {text}" if key else f"{place}: {text}"])


def joined(errors: Iterable[ConfigError]) -> ConfigError:
    """Several errors as one that reports them all."""
    return problems(line for error in errors for line in str(error).splitlines()[:-1])
