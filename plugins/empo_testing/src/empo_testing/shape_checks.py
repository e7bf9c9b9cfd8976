"""Check the shapes in signatures while tests run, each combination of them once.

Call ``install`` in a ``conftest.py`` before the modules to be checked are imported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import is_dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, isclass, signature
from typing import Any, Literal, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.door import is_bearable
from jaxtyping import TypeCheckError

_jaxtyped = jaxtyping.jaxtyped
_UNKNOWN = object()
"""The kind of a value that must be looked at each time."""
_CONF = BeartypeConf(is_pep484_tower=True)
"""Whole numbers are floats too, as for static checks."""
FAMILIAR, SELDOM = 20, 50
"""After so many calls without a new combination only every fiftieth one is looked at."""


def install(modules: Sequence[str]) -> None:
    """Check the calls of all functions of these modules, which must not be imported yet."""
    jaxtyping.jaxtyped = check_new_shapes  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, None)


def check_new_shapes(target: Any = None, *, typechecker: None = None) -> Any:
    """As ``jaxtyping.jaxtyped``, but checks each combination of types, dtypes and shapes once.

    Training calls the same functions with the same shapes thousands of times; to check every
    one of these calls takes longer than what they compute, and even to look at it takes long.
    Only what says a shape is checked: static checks see to the rest.

    Args:
        target: A function, or a class, of which the constructor is checked if it is a dataclass.
        typechecker: None, which ``jaxtyping`` passes on.
    """
    if target is None:
        return check_new_shapes
    if isclass(target):
        if is_dataclass(target):
            target.__init__ = check_new_shapes(target.__init__)  # type: ignore[method-assign]
        return target
    if any("{" in str(hint) for hint in target.__annotations__.values()):
        # An axis as long as an argument says.
        return _jaxtyped(target, typechecker=beartype(conf=_CONF))
    shapes: _Shapes | None = None
    familiar = 0
    accepted: dict[Hashable, set[Hashable]] = {}

    @wraps(target)
    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal shapes, familiar
        if shapes is None:
            shapes = _Shapes(target)
        if not shapes.hints or jaxtyping.config.jaxtyping_disable:
            return target(*args, **kwargs)
        familiar += 1
        if familiar > FAMILIAR and familiar % SELDOM:
            return target(*args, **kwargs)
        argument_kind = _kind((args, kwargs))
        returned = accepted.get(argument_kind)
        if returned is not None:
            result = target(*args, **kwargs)
            if _kind(result) in returned:
                return result
        familiar = 0
        with _jaxtyped("context"):
            shapes.check_arguments(args, kwargs)
            if returned is None:
                result = target(*args, **kwargs)
            shapes.check("return", result)
        if argument_kind is not _UNKNOWN:
            kind = _kind(result)
            accepted.setdefault(argument_kind, set()).update(() if kind is _UNKNOWN else (kind,))
        return result

    return check


class _Shapes:
    """What a function says of shapes.

    Attributes:
        hints: The annotations that have a shape, by parameter; ``return`` is that of the result.
    """

    def __init__(self, target: Callable[..., Any]) -> None:
        self.hints = {name: hint for name, hint in _hints(target) if _has_shape(hint)}
        self._signature: Signature = signature(target)
        self._name = target.__qualname__

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Check the arguments of a call; those that the function does not take, it refuses."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            values = [value]
            if kind is Parameter.VAR_POSITIONAL:
                values = value
            elif kind is Parameter.VAR_KEYWORD:
                values = value.values()
            for item in values:
                self.check(name, item)

    def check(self, name: str, value: Any) -> None:
        """Check one argument, or the result, whose name is ``return``.

        Raises:
            TypeCheckError: if it does not have the shape or the dtype of its annotation, or an
                axis has another length than the same one of an argument checked before.
        """
        if name not in self.hints:
            return
        # Of a long list a random item is looked at, and what is tested may draw numbers too.
        state = random.getstate()
        try:
            fits = is_bearable(value, self.hints[name], conf=_CONF)
        finally:
            random.setstate(state)
        if not fits:
            shape = getattr(value, "shape", None)
            raise TypeCheckError(
                f"{self._name}: {name} is not {self.hints[name]}: {type(value).__name__} "
                f"{getattr(value, 'dtype', '')} {'' if shape is None else tuple(shape)}"
            )


def _hints(target: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The annotations of a function, without those that name what only static checks import."""
    for name, annotation in target.__annotations__.items():
        try:
            yield name, get_type_hints(_Annotated({name: annotation}), target.__globals__)[name]
        except NameError:
            continue


class _Annotated:
    """Has annotations, as a function does."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _has_shape(hint: Any) -> bool:
    if isclass(hint):
        return issubclass(hint, jaxtyping.AbstractArray)
    return any(map(_has_shape, get_args(hint)))


def _kind(value: Any) -> Hashable:
    """All that decides whether a value fits an annotation."""
    kinds: list[Hashable] = []
    return tuple(kinds) if _describe(value, kinds.append) else _UNKNOWN


def _describe(value: Any, note: Callable[[Hashable], None]) -> bool:
    """Note all that decides whether a value fits an annotation; False where that is unknown."""
    kind: type = type(value)
    sort = _sort(kind)
    note(kind)
    if sort == "plain":
        return True
    if sort == "array":
        note(value.dtype)
        note(value.shape)
        return True
    if sort == "text":
        note(value)
        return True
    if sort == "unknown":
        return False
    note(len(value))
    if sort == "mapping":
        for key in value:
            note(key)
        value = value.values()
    return all(_describe(item, note) for item in value)


@cache
def _sort(kind: type) -> Literal["array", "mapping", "plain", "sequence", "text", "unknown"]:
    import numpy as np
    import torch

    if issubclass(kind, (torch.Tensor, np.ndarray)):
        return "array"
    if issubclass(kind, str):
        return "text"
    if issubclass(kind, (tuple, list)):
        return "sequence"
    if kind is dict:
        return "mapping"
    return "unknown" if issubclass(kind, (Mapping, Set, Iterator)) else "plain"
