"""Flags of ``empo run`` that installed algorithms declare."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from empo_core.errors import DuplicateComponentError
from empo_core.plugins.registry import CORE, Provider, clash

if TYPE_CHECKING:
    from empo_core.plugins.registry import Registry


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that stands for one override.

    Attributes:
        flag: As typed, e.g. ``"--more-details"``.
        path: Key path of the boolean that it sets, from the config's root.
        help: One line about it.
        provider: Who declares it.
    """

    flag: str
    path: str
    help: str
    provider: Provider


def declared_flags(registry: Registry) -> list[Flag]:
    """The flags that algorithms declare; one that several declare alike is listed once.

    Raises:
        DuplicateComponentError: Two algorithms mean different params by one flag.
    """
    found: dict[str, Flag] = {}
    for offer in registry.offers:
        for option in offer.component.options:
            path = f"algorithm.params.{option.key}"
            flag = Flag(option.flag, path, option.help, offer.provider)
            known = found.setdefault(option.flag, flag)
            if known.path != path:
                raise DuplicateComponentError(_clash(option.flag, known.provider, offer.provider))
    return list(found.values())


def with_flags(function: Callable[..., None], flags: Sequence[Flag]) -> Callable[..., None]:
    """A command's function with more flags, each of which adds ``PATH=true`` to ``overrides``.

    Raises:
        DuplicateComponentError: The command has an option of that name already.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = dict(inspect.signature(function).parameters)
    names: dict[str, Flag] = {}
    for index, flag in enumerate(flags):
        if flag.flag.removeprefix("--").replace("-", "_") in (*hints, "help"):
            raise DuplicateComponentError(_clash(flag.flag, CORE, flag.provider))
        name = f"flag_{index}"
        names[name] = flag
        text = f"{flag.help} Short for {flag.path}=true."
        hints[name] = Annotated[bool, typer.Option(flag.flag, help=text)]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters[name] = inspect.Parameter(name, kind, default=False)

    @functools.wraps(function)
    def wrapper(**given: Any) -> None:
        added = [f"{flag.path}=true" for name, flag in names.items() if given.pop(name)]
        given["overrides"] = [*(given["overrides"] or []), *added]
        function(**given)

    # Typer reads both.
    wrapper.__annotations__ = hints
    signature = inspect.Signature(
        [parameter.replace(annotation=hints[name]) for name, parameter in parameters.items()]
    )
    vars(wrapper)["__signature__"] = signature
    return wrapper


def _clash(flag: str, one: Provider, other: Provider) -> str:
    return clash(f"option {flag!r} of 'empo run'", [one, other])
