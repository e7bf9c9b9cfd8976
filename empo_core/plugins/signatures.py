"""Checks that a component has the methods of its kind, when it is built and not when it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator

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
    missing: Iterable[str] = getattr(factory, "__abstractmethods__", ())
    for name, expected in _members(PROTOCOLS[offer.component.kind]):
        if name in missing:
            raise PluginLoadError(
                f"{_name(offer)} is a {getattr(factory, '__name__', factory)}, which has no method "
                f"{name}{expected}, as every {PROTOCOLS[offer.component.kind].__name__} has"
            )
    signature = _signature(factory)
    if signature is not None and not _binds(signature, [None] * count, {}):
        raise PluginLoadError(
            f"{_name(offer)} is built with {count} argument{'s' * (count > 1)}, its params first; "
            f"{offer.component.target} takes {signature}"
        )


def check_component(offer: Offer, built: object) -> None:
    """Refuse an object that lacks a method of its kind, or has one of another signature.

    Raises:
        PluginLoadError: if a sentence with the distribution, the component, the method and the
            signature that is expected.
    """
    protocol = PROTOCOLS[offer.component.kind]
    subject = f"{_name(offer)} is a {type(built).__name__}, which"
    if not getattr(protocol, "_is_protocol", False) and not isinstance(built, protocol):
        raise PluginLoadError(
            f"{subject} does not derive from empo_core.protocols.{protocol.__name__}; make that "
            "its base class"
        )
    for name, expected in _members(protocol):
        if not _has(built, name):
            if expected is None:
                raise PluginLoadError(
                    f"{subject} has no attribute {name!r}, as every {protocol.__name__} has"
                )
            raise PluginLoadError(
                f"{subject} has no method {name}{expected}, as every {protocol.__name__} has"
            )
        if expected is None:
            continue
        method = getattr(built, name)
        signature = _signature(method) if callable(method) else None
        if not callable(method) or (signature is not None and not _serves(signature, expected)):
            signature_text = signature if signature is not None else f" = {method!r}"
            raise PluginLoadError(
                f"{subject} has {name}{signature_text} where every {protocol.__name__} has "
                f"{name}{expected}"
            )


def _name(offer: Offer) -> str:
    component = offer.component
    return f"{component.kind} {component.name!r} of {offer.provider.distribution}"


def _members(protocol: type) -> Iterator[tuple[str, inspect.Signature | None]]:
    """Names of a protocol's methods with their signatures, and of its attributes with None."""
    for name in inspect.get_annotations(protocol):
        yield name, None
    for name, member in vars(protocol).items():
        if isinstance(member, property):
            yield name, None
        elif inspect.isfunction(member) and (name == "__call__" or not name.startswith("_")):
            signature = inspect.signature(member)
            parameters = [
                parameter.replace(annotation=inspect.Parameter.empty)
                for parameter in list(signature.parameters.values())[1:]
            ]
            yield name, inspect.Signature(parameters)


def _has(built: object, name: str) -> bool:
    try:
        return hasattr(built, name)
    except Exception:
        return True  # It has a property that fails, which is another matter.


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature without annotations; None where Python does not know it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    parameters = signature.parameters.values()
    return inspect.Signature([parameter.replace(annotation=empty) for parameter in parameters])


def _serves(signature: inspect.Signature, expected: inspect.Signature) -> bool:
    """True if every call that fits the expected signature fits the one that was found."""
    for only_required in (False, True):
        positional: list[None] = []
        keywords: dict[str, None] = {}
        for parameter in expected.parameters.values():
            if only_required and parameter.default is not inspect.Parameter.empty:
                continue
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                keywords[parameter.name] = None
            else:
                positional.append(None)
        if not _binds(signature, positional, keywords):
            return False
    return True


def _binds(signature: inspect.Signature, positional: list[None], keywords: dict[str, None]) -> bool:
    try:
        signature.bind(*positional, **keywords)
    except TypeError:
        return False
    return True
