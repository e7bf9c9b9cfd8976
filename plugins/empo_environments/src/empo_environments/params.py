"""Params of the environment components."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from empo_core import Config

OTHER = "other"
"""The name that trackers of episodes give a reason without one."""
PETTINGZOO_ID = r"^[A-Za-z][A-Za-z0-9_]*/[A-Za-z][A-Za-z0-9_]*$"
GYMNASIUM_ID = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"
DMC_TASK = r"^[A-Za-z0-9_]+-[A-Za-z0-9_]+$"
SMALLEST_PICTURE = 8

_LEGACY = ("GymV21Environment", "GymV26Environment")
"""Adapters that make an environment of another registry, whose ids may name modules."""
_CODE_KEYS = {
    "additional_wrappers", "entry_point", "vector_entry_point", "vector_kwargs", "wrappers",
}  # fmt: skip
"""Keyword arguments by which Gymnasium takes code."""
_IMPORTED_KEY = re.compile(
    r"(^|_)(callable|class|cls|entry_point|factory|function|import|module|target|type|wrapper)"
    r"(es|s)?$"
)
"""Keys by which environments take names of code, which some import: no dotted names there."""
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w.]*")
"""``package.module:name``, as entry points are written."""
_OF_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z0-9_./-]+)")
"""An id with the module that registers it, as ``gymnasium.make`` takes it."""
_OWN_NAMES = ("highway_env.",)
"""Packages whose environments import dotted names in their arguments, which may be their own."""


def _distinct(names: list[str]) -> list[str]:
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("each name must be another one, and none may be empty")
    if OTHER in names:
        raise ValueError(f"{OTHER!r} is the name of reasons without a name in trackers")
    return names


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    if keys := sorted(_CODE_KEYS & kwargs.keys()):
        raise ValueError(f"{', '.join(keys)}: cannot be given in a config, for they take code")
    _refuse_code(kwargs, "", "")
    return kwargs


def _refuse_code(value: Any, path: str, key: str) -> None:
    """Refuse values that are not data, and strings that name code where their key takes code.

    Args:
        value: A keyword argument, or a part of one.
        path: Dotted path of the value.
        key: Nearest key on that path.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            _refuse_code(name, path, key)
            _refuse_code(part, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _refuse_code(part, f"{path}.{index}", key)
    elif isinstance(value, str):
        takes_code = _IMPORTED_KEY.search(key) and not value.startswith(_OWN_NAMES)
        if _MODULE.fullmatch(value) or (takes_code and _DOTTED.fullmatch(value)):
            raise ValueError(
                f"{path}: {value!r} names code, and a config holds data only; give an environment "
                "made of code to empo_core.run(config, env=...), or write a component "
                "(empo new-plugin NAME --kind environment)"
            )
    elif not isinstance(value, bool | int | float | None):
        raise ValueError(f"{path}: {type(value).__name__} is no data that a config could hold")


def _of_this_registry(name: str) -> str:
    if name.startswith(_LEGACY):
        raise ValueError(f"{name!r} makes environments of other registries")
    return name


def _of_no_module(name: object) -> object:
    if isinstance(name, str) and (match := _OF_MODULE.fullmatch(name)):
        module, identifier = match.groups()
        raise ValueError(
            f"{name!r} names code, and a config holds data only; have the package imported by "
            f"'empo --import {module} run ...' (in Python: import {module}), and write "
            f"{identifier!r} here"
        )
    return name


def _written(pattern: str, form: str) -> BeforeValidator:
    """Refuses a text of another form in words, for which a pattern has none."""

    def check(text: object) -> object:
        if isinstance(text, str) and not re.search(pattern, text):
            raise ValueError(f"is not of the form {form}")
        return text

    return BeforeValidator(check)


GymnasiumId = Annotated[
    str,
    _written(GYMNASIUM_ID, "Name-v0 or package/Name-v0"),
    BeforeValidator(_of_no_module),
    Field(pattern=GYMNASIUM_ID),
    AfterValidator(_of_this_registry),
]
"""An id of Gymnasium's registry; no ``module:Name``, which Gymnasium would import."""
Kwargs = Annotated[dict[str, Any], AfterValidator(_plain)]
"""Keyword arguments of an environment: numbers, strings, flags, and lists and mappings of them."""
ReasonNames = Annotated[list[str], AfterValidator(_distinct)]
"""Names of the reasons for which episodes end."""


class WrapperParams(Config):
    """Wrappers that every single environment may get."""

    action_repeat: int = Field(
        1, ge=1, description="Environment steps per action; their rewards are added up."
    )
    frame_stack: int = Field(
        1,
        ge=1,
        le=1024,
        description="Number of newest observations that are stacked, oldest first.",
    )
    max_episode_steps: int | None = Field(
        None,
        ge=1,
        description="Truncate episodes after so many steps, each with its repetitions; null: as "
        "they come.",
    )
    picture_size: int | None = Field(
        None,
        ge=SMALLEST_PICTURE,
        le=4096,
        description="Height and width that pictures are resized to; null: as they come.",
    )


class NormaliseParams(Config):
    """Running normalisation of what agents observe and are paid, over all copies together."""

    observations: bool = Field(
        True, description="Shift and scale each word of observations to mean 0 and variance 1."
    )
    rewards: bool = Field(
        True, description="Divide rewards by the standard deviation of running discounted returns."
    )
    clip: float = Field(10.0, gt=0, description="Cut both to plus or minus this.")

    @model_validator(mode="after")
    def _has_an_effect(self) -> NormaliseParams:
        if not (self.observations or self.rewards):
            raise ValueError("normalises neither observations nor rewards: drop it")
        return self


class GymnasiumParams(WrapperParams):
    """Copies of a Gymnasium environment."""

    short: ClassVar = "id"

    id: GymnasiumId = Field(description="As gymnasium.make takes it, e.g. CartPole-v1.")
    kwargs: Kwargs = Field(
        default_factory=dict, description="Keyword arguments of the environment; plain data."
    )
    keys: list[str] | None = Field(
        None,
        min_length=1,
        description="Keys of a Dict observation to observe, e.g. [image, direction]; null: all.",
    )
    picture_high: int | None = Field(
        None,
        ge=1,
        le=255,
        description="Greatest value of pictures, which networks divide by; null: as the space "
        "declares, or as is known of the id (MiniGrid's codes reach 10 and are declared to 255).",
    )
    reasons: ReasonNames | None = Field(
        None,
        description="Names of the values of info['termination_reason'], from 0; null: 'terminated' "
        "and 'truncated', after the flags.",
    )
    stepping: Literal["auto", "copies"] = Field(
        "auto",
        description="'auto': 8 copies and more are stepped by the environment's own vector class "
        "in one call, where it has one that does all that is asked; 'copies': each by itself.",
    )


class GymnasiumVectorParams(Config):
    """One Gymnasium vector environment, which steps all its copies itself."""

    short: ClassVar = "id"

    id: GymnasiumId = Field(description="As gymnasium.make_vec takes it, e.g. CartPole-v1.")
    kwargs: Kwargs = Field(default_factory=dict, description="Its keyword arguments; plain data.")
    autoreset: Literal["next_step", "same_step", "disabled", "inside_step"] | None = Field(
        None,
        description="Autoreset mode; null reads the environment's metadata. 'inside_step': the "
        "action chosen from the last observation is applied to the new episode.",
    )


class PettingZooParams(WrapperParams):
    """Copies of a PettingZoo environment, whose agents may die, differ, or take turns."""

    short: ClassVar = "id"

    id: Annotated[
        str,
        _written(
            PETTINGZOO_ID,
            "FAMILY/NAME, e.g. mpe/simple_spread_v3; PACKAGE/NAME where --import names a package",
        ),
    ] = Field(
        pattern=PETTINGZOO_ID,
        description="Family and environment of the package pettingzoo or mpe2, e.g. "
        "butterfly/knights_archers_zombies_v11 or mpe/simple_spread_v3; what an installed "
        "distribution adds; or PACKAGE/NAME of a package that --import names.",
    )
    kwargs: Kwargs = Field(
        default_factory=dict, description="Arguments of what makes it; plain data."
    )
    reasons: ReasonNames | None = Field(None, description="As for a Gymnasium environment.")


class DmcParams(WrapperParams):
    """Copies of a task of the DeepMind Control Suite; needs ``empo-environments[dmc]``."""

    short: ClassVar = "task"

    task: Annotated[str, _written(DMC_TASK, "DOMAIN-TASK, e.g. cartpole-swingup")] = Field(
        pattern=DMC_TASK, description="Domain and task, e.g. cartpole-swingup."
    )
    action_repeat: int = Field(
        2, ge=1, description="Environment steps per action; their rewards are added up."
    )
    pixels: bool = Field(False, description="Observe pictures instead of numbers.")
    shadows: bool = Field(
        True,
        description="Whether these pictures show shadows and reflections, as the suite's do; "
        "without a graphics card they are most of what a picture costs.",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> DmcParams:
        if not self.pixels and self.picture_size is not None:
            raise ValueError("picture_size belongs to pixels: set that to true, or drop it")
        if not self.pixels and not self.shadows:
            raise ValueError("shadows belong to pixels: set that to true, or drop them")
        return self
