"""What worlds answer in which every joint action is available and has one successor."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Int16
from torch import Tensor

from empo_core.types import Successors, WorldSpec


def certain_successors(rows: Int16[np.ndarray, "item word"]) -> Successors:
    """One successor of each item, for certain."""
    successors = torch.from_numpy(rows)
    count = len(successors)
    return Successors(torch.arange(count + 1), successors, torch.ones(count, dtype=torch.float64))


def every_action(spec: WorldSpec, num_states: int) -> Bool[Tensor, "state agent action"]:
    """All actions of all agents, in so many states."""
    counts = torch.tensor(spec.num_actions)
    has_action = torch.arange(int(counts.max())) < counts[:, None]
    return has_action.repeat(num_states, 1, 1)
