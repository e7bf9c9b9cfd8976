"""Environments by id: Gymnasium's registry and PettingZoo's packages.

Ids come from configs, so nothing here imports what an id says: packages are imported only from
the table below, from installed distributions that extend it, and from PettingZoo's own.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import TypeVar, cast

import gymnasium

from empo_core.errors import ConfigError
from empo_core.plugins.imports import extra_imports
from empo_environments.types import Value

Made = TypeVar("Made")
GROUP = "empo.gymnasium"
"""Entry points of this group extend ``PACKAGES``: ``"Prefix-" = "package"``."""
PACKAGES: dict[str, str] = {
    "ALE/": "ale_py",
    "BabyAI-": "minigrid",
    "MiniGrid-": "minigrid",
    "MiniWorld-": "miniworld",
    "highway-": "highway_env",
    "intersection-": "highway_env",
    "merge-": "highway_env",
    "parking-": "highway_env",
    "racetrack-": "highway_env",
    "roundabout-": "highway_env",
    "two-way-": "highway_env",
    "u-turn-": "highway_env",
    "exit-": "highway_env",
    "lane-keeping-": "highway_env",
    "dm_control/": "shimmy",
    "bsuite/": "shimmy",
    "mo-": "mo_gymnasium",
    "breakable-bottles-": "mo_gymnasium",
    "deep-sea-treasure-": "mo_gymnasium",
    "fishwood-": "mo_gymnasium",
    "four-room-": "mo_gymnasium",
    "fruit-tree-": "mo_gymnasium",
    "minecart-": "mo_gymnasium",
    "resource-gathering-": "mo_gymnasium",
    "water-reservoir-": "mo_gymnasium",
    "Adroit": "gymnasium_robotics",
    "AntMaze": "gymnasium_robotics",
    "Fetch": "gymnasium_robotics",
    "FrankaKitchen": "gymnasium_robotics",
    "HandManipulate": "gymnasium_robotics",
    "HandReach": "gymnasium_robotics",
    "PointMaze": "gymnasium_robotics",
    "FlappyBird-": "flappy_bird_gymnasium",
    "MiniHack-": "minihack",
    "NetHack": "nle",
    "gym_pusht/": "gym_pusht",
    "gym_aloha/": "gym_aloha",
    "Panda": "panda_gym",
    "Meta-World/": "metaworld",
}
"""Which package registers ids that begin so, when it is imported."""
PICTURE_HIGHS: dict[str, int] = {"minigrid": 10}
"""Greatest value of pictures of packages whose spaces declare more than there ever is.

MiniGrid's picture has a code of an object, of a colour and of a state per cell, and declares them
as bytes up to 255; so divided, they would reach a network as at most 0.039.
"""
EXTRAS = {"imageio": "mujoco"}
"""Which extra of this distribution installs a module that environments of Gymnasium import."""
PETTINGZOO_GROUP = "empo.pettingzoo"
"""Entry points of this group are environments: ``"family/name_v0" = "package.module:function"``."""
PETTINGZOO = {"mpe": "mpe2"}
"""Families of PettingZoo that moved to a package of their own."""
FAMILIES = ("atari", "butterfly", "classic", "mpe", "sisl")


@cache
def packages() -> Mapping[str, str]:
    """``PACKAGES``, and what installed distributions add to it."""
    return PACKAGES | {
        entry_point.name: entry_point.value for entry_point in entry_points(group=GROUP)
    }


def make_gymnasium(
    make: Callable[..., Made], name: str, kwargs: Mapping[str, Value], **ours: Value
) -> Made:
    """An environment of Gymnasium's registry.

    Args:
        make: ``gymnasium.make`` or ``gymnasium.make_vec``.
        name: The id, without a module.
        kwargs: Arguments of the environment; plain data.
        **ours: Further arguments of ``make``.

    Raises:
        ConfigError: if the id is not registered, or the environment lacks a package that it needs
            or refuses its arguments.
    """
    if ":" in name:
        raise ConfigError(f"id: {name!r} names a module; a config names registered ids only")
    if name not in gymnasium.registry:
        _register(name)
    try:
        return make(name, **ours, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"{name!r} cannot be made: {error}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(
            f"id: {error} Where another package registers {name!r}, name that package at the "
            "command line: empo --import PACKAGE run ..."
        ) from error
    except Exception as error:
        extra = EXTRAS.get(error.name or "") if isinstance(error, ModuleNotFoundError) else None
        hint = f'; pip install "empo-environments[{extra}]"' if extra else ""
        raise ConfigError(
            f"{name!r} cannot be made with {kwargs}: {type(error).__name__}: {error}{hint}"
        ) from error


def make_pettingzoo(name: str, kwargs: Mapping[str, Value]) -> Value:
    """A ParallelEnv or AECEnv, by the first of these that has the name.

    1. Installed distributions that offer it by an entry point;
    2. the families of the packages ``pettingzoo`` and ``mpe2``;
    3. packages that the command line names (``--import PACKAGE``), as ``PACKAGE/NAME``: a module
       with ``parallel_env`` or ``env``, as PettingZoo's are, or a class.

    Raises:
        ConfigError: if there is none of this name, or it refuses its arguments.
    """
    make = _offered(name) or _maker(name)
    try:
        return make(**kwargs)
    except Exception as error:
        raise ConfigError(
            f"{name!r} cannot be made with {kwargs}: {type(error).__name__}: {error}"
        ) from error


def _offered(name: str) -> Callable[..., Value] | None:
    """What an installed distribution offers by this name, if any does.

    Raises:
        ConfigError: if it cannot be imported.
    """
    for entry_point in entry_points(group=PETTINGZOO_GROUP, name=name):
        try:
            return cast(Callable[..., Value], entry_point.load())
        except Exception as error:
            raise ConfigError(
                f"id: {name!r} is offered as {entry_point.value}, which cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    return None


def _maker(name: str) -> Callable[..., Value]:
    """What makes the environment of a family, or of a package that the command line names.

    Raises:
        ConfigError: if there is none.
    """
    family, _, stem = name.partition("/")
    imported = [package for package in extra_imports() if "." not in package]
    if family in FAMILIES:
        package = PETTINGZOO.get(family, "pettingzoo")
        base = package if package != "pettingzoo" else f"pettingzoo.{family}"
    elif family in imported:
        package = base = family
        if hasattr(sys.modules[package], stem):
            try:
                return _maker_of(getattr(sys.modules[package], stem), name)
            except TypeError as error:
                raise ConfigError(f"id: {error}") from error
    else:
        offers = sorted(entry_point.name for entry_point in entry_points(group=PETTINGZOO_GROUP))
        raise ConfigError(
            f"id: there is no family {family!r}; families: {', '.join(FAMILIES)}; packages of "
            f"--import: {', '.join(imported) or 'none'}; offered by installed distributions: "
            f"{', '.join(offers) or 'none'}"
        )
    module = f"{base}.{stem}"
    try:
        return _maker_of(importlib.import_module(module), module)
    except Exception as error:
        versions = _versions(module)
        exist = f"there is: {versions}" if versions else "is it installed, with what it needs?"
        raise ConfigError(
            f"id: {name!r} cannot be imported from the package {package}: "
            f"{type(error).__name__}: {error}; {exist}"
        ) from error


def _maker_of(maker: Value, place: str) -> Callable[..., Value]:
    """What makes environments: a class of them, or a function of a module as PettingZoo's.

    Other functions are none: a config must not be able to call what it likes of a package.

    Raises:
        TypeError: if there is no such class or function.
    """
    if isinstance(maker, ModuleType):
        make: Value = getattr(maker, "parallel_env", None) or getattr(maker, "env", None)
    else:
        is_class = isinstance(maker, type) and hasattr(maker, "reset") and hasattr(maker, "step")
        make = maker if is_class else None
    if make is None:
        raise TypeError(
            f"{place} is neither a class of environments nor a module with parallel_env or env"
        )
    return cast(Callable[..., Value], make)


def _versions(module: str) -> str:
    """Other versions of an environment of PettingZoo, found without importing them."""
    package, _, stem = module.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", [])
    base = stem.rpartition("_v")[0] + "_v"
    names = (name.name for name in pkgutil.iter_modules(folders))
    return ", ".join(sorted(name for name in names if name.startswith(base) and name != stem))


def package_of(name: str) -> str | None:
    """The package that registers an id, where one is known."""
    prefixes = packages()
    matching = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(matching, key=len)] if matching else None


def has_vector_class(name: str) -> bool:
    """Whether an id of Gymnasium's registry, if it is one, has a vector class of its own.

    Raises:
        ConfigError: if its package cannot be imported.
    """
    if name not in gymnasium.registry:
        _register(name)
    spec = gymnasium.registry.get(name)
    return spec is not None and spec.vector_entry_point is not None


def picture_high(name: str) -> int | None:
    """The greatest value of an environment's pictures; None: it is what their space declares."""
    return PICTURE_HIGHS.get(package_of(name) or "")


def _register(name: str) -> None:
    """Import the package that registers an id, where one is known."""
    package = package_of(name)
    if package is None:
        return
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"id: {name!r} comes with the package {package!r}, which is not installed ({error}): "
            f"pip install {package.replace('_', '-')}"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"id: {name!r} comes with the package {package!r}, which cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
