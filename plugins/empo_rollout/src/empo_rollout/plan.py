"""Sizes of a run: environments, workers, blocks, segments and minibatches that fit together."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec

log = logging.getLogger(__name__)

DEFAULT_BATCH = 1024
"""Steps of a rollout of few agents, where a config names no sizes."""
SHORTEST_HORIZON, MEMORY_HORIZON = 16, 64
"""Fewest steps of a segment that such a rollout has, and most where there is a memory."""
MINIBATCHES = 64, 16_384
"""Fewest single steps, and most steps, of a minibatch where a config does not say."""


@dataclass(frozen=True, slots=True)
class VecPlan:
    """Sizes that fit each other; ``plan_vectorisation`` makes them.

    Attributes:
        agents: Agents of one environment (M).
        workers: Worker processes (W); 1 without any.
        blocks: Blocks in flight (alpha).
        envs: Environments.
        horizon: Steps of a segment (T).
        segments: Segments of a rollout (S).
        minibatch_size: Steps of a minibatch, which the optimiser makes one step from; whole
            segments, unless single steps are shuffled.
        accumulate: Backward passes per optimiser step, of (almost) equal sizes.
    """

    agents: int
    workers: int
    blocks: int
    envs: int
    horizon: int
    segments: int
    minibatch_size: int
    accumulate: int = 1

    @property
    def envs_per_block(self) -> int:
        """Environments of a block, whose agents arrive together."""
        return self.envs // self.blocks

    @property
    def num_agents(self) -> int:
        """Agents of all environments (A)."""
        return self.envs * self.agents

    @property
    def block_agents(self) -> int:
        """Agents that arrive together (B), and that one forward pass is about."""
        return self.envs_per_block * self.agents

    @property
    def batch_size(self) -> int:
        """Steps of a rollout, of all agents together."""
        return self.segments * self.horizon

    @property
    def minibatches(self) -> int:
        """Minibatches that a rollout divides into."""
        return self.batch_size // self.minibatch_size

    def require(self, env_spec: EnvSpec) -> None:
        """Check that environments were built as planned.

        Raises:
            ConfigError: if there is another number of agents, environments or blocks.
        """
        planned = {"agents": self.agents, "envs": self.envs, "blocks": self.blocks}
        built = {
            "agents": len(env_spec.agents), "envs": env_spec.num_envs, "blocks": env_spec.num_blocks
        }  # fmt: skip
        wrong = [
            f"{built[key]} {key} instead of {n}" for key, n in planned.items() if built[key] != n
        ]
        if wrong:
            raise ConfigError(
                f"environment: the environments that were built have {', '.join(wrong)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """The sizes that a config asks for, each at least 1.

    Attributes:
        agents: Agents of one environment.
        bptt_horizon: Steps of a segment; None: by the number of agents, see ``DEFAULT_BATCH``.
        forward_pass_minibatch_target_size: About how many agents arrive together; it is rounded
            to what environments and workers allow.
        envs: Instead of that: the number of environments.
        workers: Worker processes; None: one per processor, as far as they divide.
        async_factor: Blocks; None: 2 where workers can be halved, else 1.
        batch_size: Steps of a rollout; None: one segment of every agent, and where
            ``bptt_horizon`` is None as well, about ``DEFAULT_BATCH`` steps or more.
        minibatch_size: Steps per step of the optimiser; None: by the size of the rollout.
        max_minibatch_size: Most steps per backward pass; None: any number.
        by_steps: Whether minibatches consist of single steps instead of segments.
        remembers: Whether the policy has a memory, which learns step by step through segments.
        processes: Whether environments live in worker processes. Without them all agents arrive
            together: one block, and no workers besides this process.
        processors: How many there are; None: as many as this process may use.
    """

    agents: int
    bptt_horizon: int | None
    forward_pass_minibatch_target_size: int = 4096
    envs: int | None = None
    workers: int | None = None
    async_factor: int | None = None
    batch_size: int | None = None
    minibatch_size: int | None = None
    max_minibatch_size: int | None = None
    by_steps: bool = False
    remembers: bool = False
    processes: bool = True
    processors: int | None = None


def plan_vectorisation(request: SizeRequest) -> VecPlan:
    """Sizes that fit each other: those of the request, and others by the formulas of the loop.

    With ``F`` agents per forward pass, ``M`` of an environment, ``W`` workers, ``alpha`` blocks and
    segments of ``T`` steps, where the request says nothing else::

        environments of a block = max(F // M, 2), rounded down to whole workers, one each at least
        environments            = alpha * environments of a block
        agents A                = environments * M
        rollout                 = A * T steps, in segments of T

    Raises:
        ConfigError: if sizes of the request do not fit each other; the message names the nearest
            size that does.
    """
    workers, blocks = _workers_and_blocks(request)
    horizon, envs = request.bptt_horizon, request.envs
    if envs is None:  # As many as a forward pass should be about, in whole workers.
        per_block = max(request.forward_pass_minibatch_target_size // request.agents, 2)
        if request.batch_size is not None and horizon is not None:
            segments = request.batch_size // horizon  # Each agent needs one.
            per_block = min(per_block, segments // (blocks * request.agents))
        envs = max(per_block // workers, 1) * workers * blocks
    agents = envs * request.agents
    if horizon is None:
        batch = request.batch_size or DEFAULT_BATCH
        longest = min(MEMORY_HORIZON, batch) if request.remembers else batch
        horizon = min(max(batch // agents, SHORTEST_HORIZON), longest)
    batch = request.batch_size or agents * horizon
    if request.batch_size is None and request.bptt_horizon is None:
        batch *= max(round(DEFAULT_BATCH / batch), 1)
    _require_batch(batch, agents, agents // blocks, horizon)
    unit = 1 if request.by_steps else horizon
    minibatch = request.minibatch_size
    if minibatch is None:
        fewest, largest = MINIBATCHES
        share = max(batch // 16, fewest) if request.by_steps else max(batch // 4, unit)
        minibatch = _nearest_minibatch(min(share, largest), batch, unit)
    _require_minibatch(minibatch, batch, unit)
    part = max((request.max_minibatch_size or minibatch) // unit, 1) * unit
    return VecPlan(
        request.agents, workers, blocks, envs, horizon, batch // horizon, minibatch,
        accumulate=-(-minibatch // part),
    )  # fmt: skip


def usable_processors() -> int:
    """Number of processors that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def script_can_be_imported() -> bool:
    """True unless worker processes would run the whole script again that runs now.

    A worker imports the script of its parent, which must therefore begin its own work under
    ``if __name__ == "__main__":``. A warning tells of one that does not.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:
        return True  # A notebook or a console, or a module that was run by its name.
    try:
        has_guard = re.search(r"\b__name__\s*==", Path(file).read_text("utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return True
    if not has_guard:
        log.warning(
            "%s: environments step in this process, for worker processes would run the whole "
            'script again; put what it does under: if __name__ == "__main__":',
            file,
        )
    return has_guard


def _workers_and_blocks(request: SizeRequest) -> tuple[int, int]:
    """Workers and blocks; blocks divide workers, and workers divide environments.

    Raises:
        ConfigError: if those of the request do not.
    """
    workers, blocks, envs = request.workers, request.async_factor, request.envs
    if not request.processes:
        return 1, 1
    if blocks is None:
        blocks = 2 if all(size is None or size % 2 == 0 for size in (workers, envs)) else 1
    workers_per_block = max(workers or request.processors or usable_processors(), blocks) // blocks
    if envs is not None:
        if envs % blocks:
            nearest = max(size for size in _divisors(envs) if size <= blocks)
            raise _misfit(
                "vectorisation.async_factor", blocks, nearest, f"must divide {envs} environments"
            )
        workers_per_block = max(
            size for size in _divisors(envs // blocks) if size <= workers_per_block
        )
    if workers is not None and workers != workers_per_block * blocks:
        why = f"must be a multiple of async_factor {blocks}"
        why += "" if envs is None else f" that divides {envs} environments"
        raise _misfit("vectorisation.workers", workers, workers_per_block * blocks, why)
    return workers_per_block * blocks, blocks


def _require_batch(batch: int, agents: int, block_agents: int, horizon: int) -> None:
    """Refuse rollouts that are not whole segments of whole blocks, one or more of every agent.

    Raises:
        ConfigError: if the rollout is something else.
    """
    unit, fewest = block_agents * horizon, agents * horizon
    nearest = max(_multiple(batch, unit), fewest)
    if batch != nearest:
        why = (
            f"must be whole segments of experience.bptt_horizon {horizon} of the {block_agents} "
            f"agents that arrive together, and one at least of each of {agents} agents"
        )
        raise _misfit("experience.batch_size", batch, nearest, why)


def _require_minibatch(minibatch: int, batch: int, unit: int) -> None:
    """Refuse minibatches that are not whole segments, or do not divide the rollout.

    Raises:
        ConfigError: if a minibatch is something else.
    """
    nearest = _nearest_minibatch(minibatch, batch, unit)
    if minibatch != nearest:
        segments = "" if unit == 1 else f"be whole segments of experience.bptt_horizon {unit} and "
        why = f"must {segments}divide experience.batch_size {batch}"
        raise _misfit("update.minibatch_size", minibatch, nearest, why)


def _misfit(name: str, size: int | None, nearest: int, why: str) -> ConfigError:
    return ConfigError(f"algorithm.params.{name}: {size} does not fit, {nearest} does: it {why}")


def _nearest_minibatch(size: int, batch: int, unit: int) -> int:
    """The divisor of a rollout, in whole segments of ``unit`` steps, that is nearest to a size."""
    # Nearest as a ratio: 1 instead of 2 changes as much as 4 instead of 2.
    near = min(
        _divisors(batch // unit), key=lambda count: (abs(math.log(count * unit / size)), count)
    )
    return near * unit


def _multiple(size: int, unit: int) -> int:
    """The multiple of ``unit`` nearest to ``size``, but at least one; the lesser of two."""
    return max(-(-(2 * size - unit) // (2 * unit)), 1) * unit


def _divisors(number: int) -> list[int]:
    """Divisors of a number, in no particular order."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return small + [number // size for size in small]
