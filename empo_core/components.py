"""From a config's references to objects: components are built, and checked when they are."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np  # noqa: F401  # Before torch, which would lose a Ctrl-C within its own import.

from empo_core import protocols
from empo_core.config import ComponentRef, RunConfig, installed
from empo_core.config.errors import blamed
from empo_core.config.models import references
from empo_core.errors import (
    ConfigError,
    EmpoError,
    PluginLoadError,
    exit_error,
    exits_are_errors,
    failure,
    is_exit,
    written_at,
)
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import Offer, Registry
from empo_core.protocols import Algorithm, Callback, Schedule, WorldModel

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
    "callback": protocols.Callback,
    "schedule": protocols.Schedule,
    "policy_network": protocols.PolicyNetwork,
    "algorithm": protocols.Algorithm,
}
"""What a component of a kind must be."""
_MISTAKES = (AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
"""What a constructor raises that has a mistake; files, memory and devices are other matters."""


def build(ref: ComponentRef, *args: Any, registry: Registry | None = None) -> Any:
    """The object a config's reference stands for.

    Args:
        ref: A validated reference, also one nested in a component's params.
        args: What the factories of this kind take after their params, e.g. the world.
        registry: Where to look the name up; default: the installed plugins.

    Raises:
        PluginLoadError: if the component's code does not import, has a mistake, or is not what
            its kind asks for.
    """
    registry = registry or installed()
    offer = registry.offer(ref.kind, ref.name)
    factory = offer.component.load()
    with blamed(ref):
        _check_call(offer, factory, 1 + len(args))
        with exits_are_errors(offer.component.label):
            try:
                built = factory(ref.params, *args)
            except _MISTAKES as error:
                if isinstance(error, EmpoError):
                    raise
                problem = failure(error, factory, "its constructor")
                raise PluginLoadError(f"{_label(offer)}: {problem}") from error
        _check_component(offer, built)
    return built


def build_world(config: RunConfig, registry: Registry | None = None) -> WorldModel | None:
    """The config's world, or None where it has none."""
    if config.world_model is None:
        return None
    world: WorldModel = build(config.world_model, registry=registry)
    return world


def build_algorithm(
    config: RunConfig,
    registry: Registry | None = None,
    environment: Callable[[], object] | None = None,
    callbacks: Sequence[Callback] = (),
    lr_schedule: Schedule | None = None,
) -> Algorithm:
    """The config's algorithm.

    Raises:
        ConfigError: if an environment is given that the algorithm would not act in, or callbacks
            or a schedule that it would not call.
    """
    algorithm: Algorithm = build(config.algorithm, registry=registry)
    if environment is not None and not algorithm.takes_environment:
        raise ConfigError(
            f"env=...: algorithm {config.algorithm.name!r} does not act in an environment "
            "of the caller's; see takes_environment in docs/reference/protocols/algorithm.md"
        )
    if (config.callbacks or callbacks) and not algorithm.is_learner:
        raise ConfigError(f"callbacks: algorithm {config.algorithm.name!r} calls none; drop them")
    if lr_schedule is not None and not algorithm.is_learner:
        raise ConfigError(
            f"lr_schedule=...: algorithm {config.algorithm.name!r} has no learning rate; drop it"
        )
    return algorithm


def build_callbacks(
    config: RunConfig,
    algorithm: Algorithm,
    registry: Registry | None = None,
    of_caller: Sequence[Callback] = (),
) -> list[Callback]:
    """The callbacks of the config, and behind them those of the caller.

    Raises:
        ConfigError: if a hook takes other arguments than it is called with, or a callback watches
            evaluations and the run has none while it learns.
    """
    named: list[Callback] = [build(ref, registry=registry) for ref in config.callbacks]
    for place, item in enumerate(of_caller):
        label = f"callbacks.{place}: is a {type(item).__name__}, which"
        if (problem := _misfit(label, item, Callback)) is not None:
            raise ConfigError(problem)
    callbacks = [*named, *of_caller]
    for callback in callbacks:
        if callback.needs_evaluations:
            algorithm.require_evaluations(f"callback {type(callback).__name__}")
    return callbacks


def require_loadable(config: RunConfig, registry: Registry | None = None) -> None:
    """Import all components that a config names, without building them.

    Raises:
        PluginLoadError: if the code of one does not import.
    """
    registry = registry or installed()
    for _, ref in references(config):
        with blamed(ref):
            registry.offer(ref.kind, ref.name).component.load()


@contextlib.contextmanager
def exits_of_components(config: RunConfig, registry: Registry) -> Iterator[None]:
    """Raise what would end the process as an error that names the component of a config."""
    try:
        yield
    except BaseException as error:
        if is_exit(error):
            raise exit_error(error, _component_at(error, config, registry)) from error
        raise


def _component_at(error: BaseException, config: RunConfig, registry: Registry) -> str:
    """The component of a config whose code raised an error, e.g. ``world_model 'mine/maze'``.

    That is the one in whose package the innermost line of all lies that lies in one.
    """
    packages: dict[str, ComponentRef] = {}
    for _, ref in references(config):
        packages.setdefault(registry.get(ref.kind, ref.name).package, ref)
    modules = [
        str(frame.f_globals.get("__name__", "")).split(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    for module in reversed(modules):
        if module in packages:
            return f"{packages[module].kind} {packages[module].name!r}"
    return "a component"


def _check_call(offer: Offer, factory: Callable[..., object], count: int) -> None:
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


def _check_component(offer: Offer, component: object) -> None:
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
    if (problem := _misfit(label, component, protocol)) is not None:
        raise PluginLoadError(problem)


def _misfit(label: str, component: object, protocol: type) -> str | None:
    """What an object lacks to be of its kind, with file and line; None: nothing."""
    for name, expected in _members(protocol):
        if isinstance(getattr(type(component), name, None), property):
            continue  # What it returns, or raises, is another matter.
        if not hasattr(component, name):
            part = f"attribute {name!r}" if expected is None else f"method {name}{expected}"
            return f"{label} has no {part}, as every {protocol.__name__} has"
        member = getattr(component, name)
        signature = _signature(member) if callable(member) else None
        if expected is None or (callable(member) and _accepts(signature, expected)):
            continue
        actual = signature if signature is not None else f" = {member!r}"
        return (
            f"{label} has {name}{actual} where every {protocol.__name__} has {name}{expected}"
            f"{written_at(member)}"
        )
    return None


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
