"""State of an object of another library, read from and written to its attributes."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from torch import Tensor

from empo_core.trees import StateDict
from empo_environments.types import Value


def attribute_state(thing: Value) -> StateDict | None:
    """All that an object remembers, where its attributes are plain data; else None.

    Plain are numbers, strings, flags, None, arrays of numbers that are no views, and PCG64
    generators. Such attributes refer to nothing that remembers more; spaces and specs never change.
    """
    if any(vars(base).get("__slots__") for base in type(thing).__mro__):
        return None
    state: StateDict = {}
    for name, value in vars(thing).items():
        if isinstance(value, Space | EnvSpec):
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.base is None:
            state[name] = torch.from_numpy(value.copy())
        elif _is_generator(value):
            state[name] = value.bit_generator.state
        elif value is None or type(value) in (bool, int, float, str):
            state[name] = value
        else:
            return None
    return state


def set_attribute_state(thing: Value, state: StateDict) -> None:
    """Restore what ``attribute_state`` returned for an object made in the same way."""
    for name, value in state.items():
        if _is_generator(getattr(thing, name, None)):
            getattr(thing, name).bit_generator.state = value
        else:
            setattr(thing, name, value.numpy().copy() if isinstance(value, Tensor) else value)


def _is_generator(value: Value) -> bool:
    return isinstance(value, np.random.Generator) and isinstance(
        value.bit_generator, np.random.PCG64
    )
