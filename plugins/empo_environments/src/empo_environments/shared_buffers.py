"""Shared arrays of actions and time steps between environments and the learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool

from empo_core.protocols.environments import Action, EnvSpec, TimeStep
from empo_core.trees import StateDict
from empo_environments.block_schedule import check_action
from empo_environments.single_env import StepBuffers

_ALIGNMENT = 64
Memory: TypeAlias = Any
"""Whatever ``numpy.frombuffer`` can write to."""


class SharedBuffers:
    """Arrays with a row per agent, all in one piece of memory."""

    def __init__(
        self, env_spec: EnvSpec, memory: Memory | None = None, *, terminal: bool = False
    ) -> None:
        """Lay the arrays out; what is in the memory stays.

        Args:
            env_spec: Whose agents there are.
            memory: Where, at least ``buffer_bytes`` of it; None takes new memory, all 0.
            terminal: Whether last observations of terminated episodes are told, too.
        """
        self.spec, self._terminal = env_spec, terminal
        if memory is None:
            memory = bytearray(buffer_bytes(env_spec))
        arrays: dict[str, Any] = {"mask": None}
        first = 0
        for name, dtype, shape in _layout(env_spec):
            array = np.frombuffer(memory, dtype, math.prod(shape), first).reshape(shape)
            arrays[name] = array
            first += _aligned(array.nbytes)
        self.action: np.ndarray = arrays.pop("action")
        """The agents' next actions."""
        self.outbox = StepBuffers(**arrays)
        """Step results of the agents of all environments."""
        blocks = [env_spec.agents_of(block) for block in range(env_spec.num_blocks)]
        self._blocks = [self.part(agents) for agents in blocks]
        self._actions = [self.action[agents] for agents in blocks]

    def part(self, agents: slice) -> StepBuffers:
        """Step results of some of them."""
        parts: dict[str, Any] = {}
        for field in fields(StepBuffers):
            array = getattr(self.outbox, field.name)
            parts[field.name] = None if array is None else array[agents]
        return StepBuffers(**parts)

    def part_of(self, number: int, count: int = 1) -> StepBuffers:
        """Step results of the agents of ``count`` environments."""
        return self.part(self.agents_of(number, count))

    def agents_of(self, number: int, count: int = 1) -> slice:
        """The agents of ``count`` environments."""
        agents = len(self.spec.agents)
        return slice(number * agents, (number + count) * agents)

    def answer(self, block: int, action: Action) -> None:
        """Note what the agents of a block do next.

        Raises:
            ValueError: if the environments cannot do that.
        """
        check_action(self.spec, action, self._blocks[block].acts)
        self._actions[block][...] = action

    def arrival(self, block: int) -> TimeStep:
        """The time step of a block."""
        part = self._blocks[block]
        final_row = self.finals(part).nonzero()[0]
        return TimeStep(
            block, part.observation, part.reward, part.terminated, part.truncated, part.starts,
            part.acts, final_row, part.final_observation[final_row], part.mask, part.reason,
            part.success,
        )  # fmt: skip

    def finals(self, part: StepBuffers) -> Bool[np.ndarray, " agent"]:
        """True for agents whose last observation is told."""
        return part.has_final if self._terminal else part.has_final & part.truncated

    def state_dict(self) -> StateDict:
        """All that ``arrival`` tells, but for the observations, which environments know."""
        box = self.outbox
        state = {
            name: torch.from_numpy(getattr(box, name).copy())
            for name in _OUTCOME
            if getattr(box, name) is not None
        }
        state["final_observation"] = torch.from_numpy(box.final_observation[box.has_final])
        return state

    def load_state_dict(self, state_dict: StateDict, exact: Sequence[bool]) -> None:
        """Tell again what was told, of the environments that stand where they stood.

        Args:
            state_dict: What ``state_dict`` returned.
            exact: Whether that is so, for each environment; others have begun an episode.
        """
        box = self.outbox
        rows = np.repeat(np.array(exact, bool), len(self.spec.agents))
        has_final = state_dict["has_final"].numpy()
        finals = np.zeros_like(box.final_observation)
        finals[has_final] = state_dict["final_observation"].numpy()
        box.final_observation[rows] = finals[rows]
        for name in _OUTCOME:
            array = getattr(box, name)
            if array is not None:
                array[rows] = state_dict[name].numpy()[rows]


def clear(outbox: StepBuffers) -> None:
    """Bring what environments do not write in each step to what it says by default."""
    outbox.reward.fill(0)
    outbox.terminated.fill(False)
    outbox.truncated.fill(False)
    outbox.starts.fill(False)
    outbox.acts.fill(True)
    outbox.reason.fill(-1)
    outbox.success.fill(-1)
    outbox.has_final.fill(False)


def buffer_bytes(env_spec: EnvSpec) -> int:
    """Bytes of RAM that the buffers take."""
    return sum(
        _aligned(math.prod(shape) * np.dtype(dtype).itemsize)
        for _, dtype, shape in _layout(env_spec)
    )


_OUTCOME = (
    "reward", "terminated", "truncated", "starts", "acts", "reason", "has_final", "mask", "success",
)  # fmt: skip


def _layout(env_spec: EnvSpec) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of each array."""
    agents, actions = env_spec.num_agents, env_spec.actions
    words, sight = (agents, env_spec.observations.words), env_spec.observations.dtype
    arrays: list[tuple[str, str, tuple[int, ...]]] = [
        ("action", "int64" if actions.is_discrete else "float32", (agents, actions.size)),
        ("observation", sight, words),
        ("final_observation", sight, words),
        ("reward", "float32", (agents,)),
        ("reason", "int64", (agents,)),
        ("success", "int8", (agents,)),
    ]
    arrays += [
        (name, "bool", (agents,))
        for name in ("terminated", "truncated", "starts", "acts", "has_final")
    ]
    if env_spec.masks:
        arrays.append(("mask", "bool", (agents, sum(actions.choices))))
    return arrays


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
