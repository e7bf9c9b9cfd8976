"""Checks that a component has the methods of its kind, when it is built and not when it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence

from empo_core import protocols
from empo_core.errors import PluginLoadError
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import Offer

PROTOCOLS: dict[Kind, type] = {
    "world_model": protocols.WorldModel,
    "value_network": protocols.ValueNetwork,
    "policy_loss": protocols.PolicyLoss,
    "aggregator": protocols.Aggregator,
    "tracker": protocols.Tracker,
    "human_prior": protocols.HumanPrior,
    "explorer": protocols.Explorer,
    "collector": protocols.Collector,
    "environment": protocols.Environment,
    "executor": protocols.Executor,
    "algorithm": protocols.Algorithm,
}
"""What a component of a kind must be."""


def check_call(offer: Offer, factory: Callable[..., object], count: int) -> None:
    """Refuse a factory that cannot be called with so many arguments, the params included.

    Raises:
        PluginLoadError: if the factory cannot be called so, or is a class that lacks abstract
            methods of its kind.
    """
    protocol = PROTOCOLS[offer.component.kind]
    abstract: Iterable[str] = getattr(factory, "__abstractmethods__", ())
    for name, expected in _members(protocol):
        if name in abstract:
            class_name = getattr(factory, "__name__", factory)
            raise PluginLoadError(
                f"{_label(offer)} is a {class_name}, which has no method {name}{expected}, as "
                f"every {protocol.__name__} has"
            )
    signature = _signature(factory)
    if signature is not None and not _binds(signature, count):
        raise PluginLoadError(
            f"{_label(offer)} is built with {count} argument{'s' * (count > 1)}, its params first; "
            f"{offer.component.target} takes {signature}"
        )


def check_component(offer: Offer, component: object) -> None:
    """Refuse an object that lacks a method of its kind, or has one of another signature.

    Raises:
        PluginLoadError: if it is no component of its kind; the message has the distribution, the
            component, the method and the expected signature.
    """
    protocol = PROTOCOLS[offer.component.kind]
    label = f"{_label(offer)} is a {type(component).__name__}, which"
    if not getattr(protocol, "_is_protocol", False) and not isinstance(component, protocol):
        raise PluginLoadError(
            f"{label} does not derive from empo_core.protocols.{protocol.__name__}; make that its "
            "base class"
        )
    for name, expected in _members(protocol):
        if isinstance(getattr(type(component), name, None), property):
            continue  # What it returns, or raises, is another matter.
        if not hasattr(component, name):
            part = f"attribute {name!r}" if expected is None else f"method {name}{expected}"
            raise PluginLoadError(f"{label} has no {part}, as every {protocol.__name__} has")
        member = getattr(component, name)
        signature = _signature(member) if callable(member) else None
        if expected is None or (callable(member) and _accepts(signature, expected)):
            continue
        actual = signature if signature is not None else f" = {member!r}"
        raise PluginLoadError(
            f"{label} has {name}{actual} where every {protocol.__name__} has {name}{expected}"
        )


def _label(offer: Offer) -> str:
    return f"{offer.component.label} of {offer.provider.distribution}"


def _members(protocol: type) -> Iterator[tuple[str, inspect.Signature | None]]:
    """Names of a protocol's methods with their signatures, and of its attributes with None."""
    for name in inspect.get_annotations(protocol):
        yield name, None
    for name, member in vars(protocol).items():
        if isinstance(member, property):
            yield name, None
        elif inspect.isfunction(member) and (name == "__call__" or not name.startswith("_")):
            yield name, _signature(member.__get__(object()))


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature without annotations; None where Python does not know it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    return inspect.Signature([parameter.replace(annotation=empty) for parameter in parameters])


def _accepts(signature: inspect.Signature | None, expected: inspect.Signature) -> bool:
    """True if each call that fits the expected signature, with and without defaults, fits."""
    if signature is None:
        return True
    full = list(expected.parameters.values())
    required = [parameter for parameter in full if parameter.default is parameter.empty]
    for parameters in (full, required):
        keywords = [item.name for item in parameters if item.kind is item.KEYWORD_ONLY]
        if not _binds(signature, len(parameters) - len(keywords), keywords):
            return False
    return True


def _binds(signature: inspect.Signature, num_positional: int, keywords: Sequence[str] = ()) -> bool:
    try:
        signature.bind(*[None] * num_positional, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True
