"""Check the shapes in signatures while tests run, each combination of them once.

Call ``install`` in a ``conftest.py`` before the modules to be checked are imported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from inspect import isclass
from types import FunctionType
from typing import Any, Literal, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

_jaxtyped = jaxtyping.jaxtyped
_UNKNOWN = object()
"""The kind of a value that must be looked at each time."""
FAMILIAR, SELDOM = 100, 10
"""After so many calls without a new combination only every tenth one is looked at."""


def install(modules: Sequence[str]) -> None:
    """Check the calls of all functions of these modules, which must not be imported yet."""
    jaxtyping.jaxtyped = check_new_shapes  # type: ignore[assignment]
    jaxtyping.install_import_hook(modules, f"{__name__}.{_check_types.__name__}")


def check_new_shapes(target: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """As ``jaxtyping.jaxtyped``, but checks each combination of types, dtypes and shapes once.

    Training calls the same functions with the same shapes thousands of times; to check every
    one of these calls takes longer than what they compute, and even to look at it takes long.

    Args:
        target: A function, or a class, of which the constructor is checked if it is a dataclass.
        typechecker: From a function to one that checks its arguments and its result.
    """
    if target is None:
        return partial(check_new_shapes, typechecker=typechecker)
    if isclass(target):
        if is_dataclass(target):
            initialise = check_new_shapes(target.__init__, typechecker=typechecker)
            target.__init__ = initialise  # type: ignore[method-assign]
        return target
    if any("{" in str(hint) for hint in target.__annotations__.values()):
        return _jaxtyped(target, typechecker=typechecker)  # An axis as long as an argument says.
    says_shapes: bool | None = None
    familiar = 0
    results: list[Any] = []
    accepted: dict[Hashable, set[Hashable]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        return results.pop() if results else target(*args, **kwargs)

    @cache
    def checked() -> Callable[..., Any]:
        # On the first call, since most functions of most modules are never called by a test.
        # With the globals of the function, where jaxtyping looks for the names in annotations.
        late = FunctionType(call.__code__, target.__globals__, closure=call.__closure__)
        return _jaxtyped(wraps(target)(late), typechecker=typechecker)

    @wraps(target)
    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal says_shapes, familiar
        if says_shapes is None:
            says_shapes = _says_shapes(target)
        if not says_shapes or jaxtyping.config.jaxtyping_disable:
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
            results.append(result)
        familiar = 0
        result = checked()(*args, **kwargs)
        if argument_kind is not _UNKNOWN:
            kind = _kind(result)
            accepted.setdefault(argument_kind, set()).update(() if kind is _UNKNOWN else (kind,))
        return result

    return check


def _says_shapes(target: Callable[..., Any]) -> bool:
    """True where a signature has shapes, or names that cannot be looked up."""
    try:
        hints = get_type_hints(target)
    except NameError:  # Imported for static checks only.
        return True
    return any(map(_has_shape, hints.values()))


def _has_shape(hint: Any) -> bool:
    if isclass(hint):
        return issubclass(hint, jaxtyping.AbstractArray)
    return any(map(_has_shape, get_args(hint)))


def _check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """A type checker for jaxtyping."""
    # Whole numbers are floats too, as for static checks.
    checked = beartype(conf=BeartypeConf(is_pep484_tower=True))(function)

    @wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        # Of a long list it looks at a random item, and what is tested may draw numbers too.
        state = random.getstate()
        try:
            return checked(*args, **kwargs)
        finally:
            random.setstate(state)

    return check


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
