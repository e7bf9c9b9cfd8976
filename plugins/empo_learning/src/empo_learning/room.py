"""Refusal of networks and experience that no RAM could hold, by arithmetic: nothing is allocated.

Networks are made on torch's device ``meta``, where tensors have sizes and no room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import psutil
import torch
from pydantic import BaseModel
from torch import nn

from empo_core.config.numbers import largest_number
from empo_core.errors import ConfigError

NUMBER_BYTES, COPIES = 4, 4
"""Bytes of a weight, and how many numbers are held for each: itself, its gradient, two moments of
Adam."""
GIB = 1 << 30


def num_parameters(build: Callable[[], Iterable[object]]) -> float:
    """How many numbers the networks among some components learn; infinite where none counts them.

    Args:
        build: Makes the components; what fails on device ``meta``, as components of others may,
            counts as nothing.
    """
    try:
        with torch.device("meta"):
            modules = [module for module in build() if isinstance(module, nn.Module)]
    except (NotImplementedError, TypeError):
        return 0
    except RuntimeError as error:
        return math.inf if "overflow" in str(error) else 0
    return sum(weight.numel() for module in modules for weight in module.parameters())


def require_room(key: str, params: BaseModel, needed_bytes: float, purpose: str) -> None:
    """Refuse what takes more RAM than this machine has.

    Args:
        key: Of ``params``, in a config.
        params: The number in them, or below, that is the largest multiple of its default is named.
        needed_bytes: Bytes.
        purpose: What takes them, for the message.

    Raises:
        ConfigError: if the size exceeds the RAM of this machine.
    """
    total_bytes = psutil.virtual_memory().total
    if needed_bytes <= total_bytes:
        return
    # The length of a run, which may be great, changes no size.
    number = largest_number(params.model_copy(update={"total_steps": 1}), key)
    where = key if number is None else number.key
    size = (
        f"{needed_bytes / GIB:,.1f} GiB" if math.isfinite(needed_bytes) else "more than 2^63 bytes"
    )
    count_text = "" if number is None else f"with {number.value:,} "
    raise ConfigError(
        f"{where}: {count_text}{purpose} {size} of RAM, and this machine has "
        f"{total_bytes / GIB:,.1f} GiB. Choose less."
    )


def require_room_for_networks(key: str, params: BaseModel, numbers: float) -> None:
    """Refuse networks that learn so many numbers if their training takes more RAM than there is.

    Raises:
        ConfigError: if the size exceeds the RAM of this machine.
    """
    count = f"{numbers:,} numbers" if math.isfinite(numbers) else "more numbers than can be counted"
    purpose = f"networks learn {count}, and training them takes"
    require_room(key, params, COPIES * NUMBER_BYTES * numbers, purpose)
