"""Sizes of tasks, and batches of experience.

Axes: ``time`` counts the steps of a sequence of experience (T), ``moment`` its observations (T+1),
``sequence`` the sequences of a batch (B).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTaskSpec:
    """Sizes and names of the tasks of a run, which never change.

    Attributes:
        words: Numbers of an observation, of the task that has most; others are padded with 0.
        pictures: Whether they are bytes, channel-first pictures of ``shape``.
        shape: Shape of an observation, e.g. ``(3,)`` or ``(9, 64, 64)``.
        actions: Numbers of an action, of the task that has most; each in [-1, 1].
        active: Per task, which of them it uses.
        tasks: Names of the tasks, e.g. ``Pendulum-v1`` or ``cartpole-swingup``.
        action_repeats: Per task, environment steps per step.
        episode_lengths: Per task, most steps of an episode.
        scale: Greatest value of pictures, which the encoder divides by.
        sizes: Per task, numbers of an observation; not given: ``words``.
        bounds: Per task, least and greatest of each number of an action that it uses, in the
            environment's own units; not given: -1 and 1.
    """

    words: int
    pictures: bool
    shape: tuple[int, ...]
    actions: int
    active: tuple[tuple[bool, ...], ...]
    tasks: tuple[str, ...]
    action_repeats: tuple[int, ...]
    episode_lengths: tuple[int, ...]
    scale: float = 255.0
    sizes: tuple[int, ...] = ()
    bounds: tuple[tuple[tuple[float, float], ...], ...] = ()

    def __post_init__(self) -> None:
        """Fill in what is not given."""
        if not self.sizes:
            object.__setattr__(self, "sizes", (self.words,) * len(self.tasks))
        if not self.bounds:
            bounds = tuple(((-1.0, 1.0),) * sum(used) for used in self.active)
            object.__setattr__(self, "bounds", bounds)


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """Consecutive steps of single episodes, as they happened.

    Attributes:
        observation: What was seen, flat.
        action: What was done, from moment t to t+1.
        reward: What it paid.
        terminated: 1 where it ended the episode; nothing is worth anything after it. Nor does
            anything happen in the steps that follow, which are there to have T of them.
        task: Which task each sequence is of; None where there is one.
        expert: Mean and log standard deviation of the planner's action (before it is bounded as
            the policy's are) at the first T moments; None where no loss needs them.
        valid: 0 at padding, steps that never happened: they follow the last step of an episode
            that was cut off after fewer than T. None: every step happened.
    """

    observation: Shaped[Tensor, "moment sequence word"]
    action: Float[Tensor, "time sequence action"]
    reward: Float[Tensor, "time sequence 1"]
    terminated: Float[Tensor, "time sequence 1"]
    task: Int[Tensor, " sequence"] | None = None
    expert: Float[Tensor, "time sequence 2 action"] | None = None
    valid: Float[Tensor, "time sequence 1"] | None = None

    def to(self, device: torch.device | str) -> SequenceBatch:
        """The same where a device can read it; from pinned memory without waiting."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {
            name: part.to(device, non_blocking=True)
            for name, part in parts.items()
            if part is not None
        }
        return replace(self, **tensors)
