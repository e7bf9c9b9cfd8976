"""Storage of a rollout while it is collected: segments of consecutive steps of one agent each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec, TimeStep
from empo_rollout.experience.rollout import Rollout
from empo_rollout.plan import VecPlan

Place: TypeAlias = tuple[int, slice]
"""Position of a block's step: its time within segments, and those segments."""


@dataclass(slots=True)
class WriteCursor:
    """Position at which a block writes.

    All agents of a block arrive together and act together, so their cursors never differ and the
    segments they write to lie side by side: one cursor stands for a cursor per agent, and a step of
    the block is a slice whatever order blocks arrive in.

    Attributes:
        rows: The segments it writes to; None: none is left for it.
        time: Position of its next step in them.
        steps: Steps that it has written since the rollout began.
        has_arrived: It has arrived in this rollout, and not been written since.
        awaits: Its last step was written, and the outcome has not arrived.
        open: The position that is kept for that outcome; None where the outcome is not stored.
        acts: Agents that acted in that step.
    """

    rows: slice | None = None
    time: int = 0
    steps: int = 0
    has_arrived: bool = False
    awaits: bool = False
    open: Place | None = None
    acts: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


class SegmentBuffer:
    """One rollout: segments that fill up as blocks arrive, in whatever order they do.

    A segment belongs to one agent until it is full; then the agent goes on in a free one, as long
    as there are any. A block without segments has to wait (``has_room``) for the next rollout. So
    every segment holds consecutive steps of one agent, and every step that was stored is learned
    from, once.

    Nothing outlives a rollout, so there is nothing to save between two of them.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        plan: VecPlan,
        *,
        memory_size: int,
        tail: Literal["bootstrap", "drop"],
        device: torch.device | str = "cpu",
        reward_clip: float | None = None,
    ) -> None:
        """Reserve memory for one rollout; ``tail`` and ``reward_clip`` as in ``ExperienceParams``.

        Raises:
            ConfigError: if blocks cannot fill that many segments.
        """
        self._spec, self._horizon, self._segments = env_spec, plan.horizon, plan.segments
        _require_fit(env_spec, plan.segments, plan.horizon)
        self._tail, self._device, self._clip = tail, torch.device(device), reward_clip
        self._rollout = _empty(env_spec, plan.segments, plan.horizon, memory_size, self._device)
        named = {field.name: getattr(self._rollout, field.name) for field in fields(Rollout)}
        self._tensors: dict[str, Tensor] = {k: v for k, v in named.items() if v is not None}
        # The same memory, to which numpy writes small blocks in a third of the time of torch.
        self._arrays: dict[str, np.ndarray] | None = None
        if self._device.type == "cpu":
            self._arrays = {name: tensor.numpy() for name, tensor in self._tensors.items()}
        self._first_step = np.zeros(plan.segments, np.int64)
        self._owner = np.zeros(plan.segments, np.int64)
        self._cursors = [WriteCursor() for _ in range(env_spec.num_blocks)]
        self._free: deque[slice] = deque()
        self._full = 0

    def begin_rollout(self) -> None:
        """Start with empty segments; what ``rollout`` returned before is overwritten from now on.

        Raises:
            RuntimeError: if the last rollout is not ready, and its steps would be lost.
        """
        if any(cursor.steps for cursor in self._cursors) and not self.ready:
            raise RuntimeError(f"{self._missing()}; a new one would lose its steps")
        size = self._spec.block_agents
        starts = range(0, self._segments, size)
        self._free = deque(slice(start, start + size) for start in starts)
        self._full = 0
        for cursor in self._cursors:
            cursor.rows, cursor.time, cursor.steps = self._free.popleft(), 0, 0
            cursor.has_arrived = False
        self._tensors["is_known"].fill_(True)
        if self._tail == "drop":
            self._tensors["is_known"][-1] = False

    def receive(
        self,
        time_step: TimeStep,
        value: Float[Tensor, " agent"],
        final_value: Float[Tensor, " final"],
    ) -> None:
        """Store the outcome of a block's last step, if that is in this rollout.

        Called once per time step, before ``store``; one that waited for this rollout has been
        received in the last one, and may be received again.

        Raises:
            RuntimeError: if the block has arrived before, and has not been stored since.
        """
        cursor = self._cursors[time_step.block]
        if cursor.has_arrived:
            raise RuntimeError(
                f"block {time_step.block} arrives twice without a step in between; store its step, "
                "or keep it waiting for the next rollout"
            )
        place, cursor.open = cursor.open, None
        cursor.has_arrived, cursor.awaits = True, False
        if place is None:
            return
        reward = np.where(cursor.acts, time_step.reward, 0)
        if self._clip is not None:
            np.clip(reward, -self._clip, self._clip, out=reward)
        terminated, truncated = (
            time_step.terminated & cursor.acts,
            time_step.truncated & cursor.acts,
        )
        unseen = truncated & ~terminated
        unseen[time_step.final_row] = False
        following = value.detach().cpu().numpy().copy()
        following[time_step.final_row] = final_value.detach().cpu().numpy()
        following[terminated | unseen | ~cursor.acts] = 0
        self._write("reward", place, reward)
        self._write("terminated", place, terminated)
        self._write("truncated", place, truncated)
        self._write("next_value", place, following)
        self._write("unseen", place, unseen)

    def has_room(self, block: int) -> bool:
        """True if a block's next step can be stored; otherwise it waits for the next rollout."""
        return self._cursors[block].rows is not None

    def store(
        self,
        time_step: TimeStep,
        action: Shaped[Tensor, "agent number"],
        log_prob: Float[Tensor, " agent"],
        value: Float[Tensor, " agent"],
        memory: Float[Tensor, "agent unit"],
        version: int,
    ) -> None:
        """Store a step of a block, and the memory before it, in its segments.

        Raises:
            RuntimeError: if the block has no room, or the outcome of its last step is missing.
        """
        cursor = self._cursors[time_step.block]
        if cursor.awaits or cursor.rows is None:
            raise RuntimeError(
                f"block {time_step.block} cannot be stored: "
                + ("what its last step led to has not been received" if cursor.awaits
                   else "its segments are full, and no others are free; keep it waiting for the "
                   "next rollout (see has_room)")
            )  # fmt: skip
        place = (cursor.time, cursor.rows)
        if cursor.time == 0:
            self._open(time_step, cursor.rows, cursor.steps, memory)
        self._write("observation", place, time_step.observation)
        self._write("action", place, action)
        self._write("log_prob", place, log_prob)
        self._write("value", place, value)
        self._write("starts", place, time_step.starts)
        self._write("valid", place, time_step.acts)
        self._write("version", place, version)
        if self._spec.masks:
            assert time_step.mask is not None
            self._write("mask", place, time_step.mask)
        # The environments may overwrite the time step's arrays once the block is sent.
        cursor.acts = time_step.acts.copy()
        cursor.has_arrived, cursor.awaits, cursor.open = False, True, place
        cursor.time += 1
        cursor.steps += 1
        if cursor.time == self._horizon:
            self._close(time_step.block, cursor, cursor.rows)

    @property
    def ready(self) -> bool:
        """True if all segments are full and every outcome that is waited for is known."""
        return self._full == self._segments and all(cursor.open is None for cursor in self._cursors)

    def rollout(self) -> Rollout:
        """The rollout: the buffer's own memory, valid and open to changes until the next one.

        Raises:
            RuntimeError: if the buffer is not ``ready``.
        """
        if not self.ready:
            raise RuntimeError(self._missing())
        return replace(self._rollout)

    def _missing(self) -> str:
        waiting = sum(cursor.open is not None for cursor in self._cursors)
        return (
            f"the rollout is not ready: {self._full} of {self._segments} segments are full, and "
            f"{waiting} of {len(self._cursors)} blocks wait for what their last step led to"
        )

    def _open(
        self, time_step: TimeStep, rows: slice, steps: int, memory: Float[Tensor, "agent unit"]
    ) -> None:
        """Let segments belong to a block."""
        agents = self._spec.agents_of(time_step.block)
        self._owner[rows] = np.arange(agents.start, agents.stop)
        self._first_step[rows] = steps
        self._tensors["agent"][rows] = torch.arange(agents.start, agents.stop, device=self._device)
        stored = self._tensors["memory"][rows]
        stored.copy_(memory.detach(), non_blocking=True)
        stored.masked_fill_(torch.tensor(time_step.starts, device=self._device)[:, None], 0)

    def _close(self, block: int, cursor: WriteCursor, rows: slice) -> None:
        """Count full segments, and let the block go on in others."""
        agents = self._spec.agents_of(block)
        # Each segment holds consecutive steps of one agent, or something here is very wrong.
        assert (self._owner[rows] == np.arange(agents.start, agents.stop)).all()
        assert (self._first_step[rows] + self._horizon == cursor.steps).all()
        self._full += rows.stop - rows.start
        cursor.rows, cursor.time = (self._free.popleft() if self._free else None), 0
        if self._tail == "drop":
            cursor.open = None

    def _write(self, name: str, place: Place, source: Tensor | np.ndarray | int) -> None:
        if self._arrays is not None:
            array = source.detach().numpy() if isinstance(source, Tensor) else source
            self._arrays[name][place] = array
        else:  # A copy first: the environments may write to theirs before it has arrived.
            tensor = source.detach() if isinstance(source, Tensor) else torch.tensor(source)
            self._tensors[name][place].copy_(tensor, non_blocking=True)


def _require_fit(env_spec: EnvSpec, segments: int, horizon: int) -> None:
    """Check that blocks fill all segments, and that every agent gets one."""
    size = env_spec.block_agents
    if segments >= env_spec.num_agents and segments % size == 0:
        return
    above = max(-(-segments // size) * size, env_spec.num_agents)
    below = segments // size * size
    nearest = (
        f"{below * horizon} or {above * horizon}"
        if below >= env_spec.num_agents
        else above * horizon
    )
    raise ConfigError(
        f"experience.batch_size: {segments * horizon} steps are {segments} segments of {horizon}, "
        f"but there are {env_spec.num_agents} agents in blocks of {size}: segments must be a "
        f"multiple of {size} and at least {env_spec.num_agents}; use a batch_size of {nearest}"
    )


def _empty(
    env_spec: EnvSpec, segments: int, horizon: int, memory_size: int, device: torch.device
) -> Rollout:
    """A rollout of zeros."""

    def steps(dtype: torch.dtype, *width: int) -> Shaped[Tensor, "time segment *rest"]:
        return torch.zeros(horizon, segments, *width, dtype=dtype, device=device)

    actions, observations = env_spec.actions, env_spec.observations
    number, flag, count = torch.float32, torch.bool, torch.int64
    return Rollout(
        observation=steps(getattr(torch, observations.dtype), observations.words),
        action=steps(count if actions.is_discrete else number, actions.size),
        log_prob=steps(number),
        value=steps(number),
        reward=steps(number),
        terminated=steps(flag),
        truncated=steps(flag),
        next_value=steps(number),
        unseen=steps(flag),
        starts=steps(flag),
        valid=steps(flag),
        is_known=steps(flag),
        mask=steps(flag, sum(actions.choices)) if env_spec.masks else None,
        memory=torch.zeros(segments, memory_size, device=device),
        agent=torch.zeros(segments, dtype=count, device=device),
        version=steps(count),
    )
