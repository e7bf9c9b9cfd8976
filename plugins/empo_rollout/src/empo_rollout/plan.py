"""Sizes of a run: environments, workers, blocks, segments and minibatches that fit together."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec, Order

DEFAULT_BATCH = 1024
"""Steps of a rollout of few agents, where a config names no sizes."""
SHORTEST_HORIZON, MEMORY_HORIZON = 16, 64
"""Fewest steps of a segment that such a rollout has, and most where there is a memory."""
SMALLEST_MINIBATCH = 64
"""Fewest single steps of a minibatch there."""


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
        accumulate: Backward passes per optimiser step, of equal sizes.
        adjustments: Changes that made sizes fit, e.g. "workers 3 -> 2 (...)".
        remarks: About sizes that fit, but may surprise.
    """

    agents: int
    workers: int
    blocks: int
    envs: int
    horizon: int
    segments: int
    minibatch_size: int
    accumulate: int = 1
    adjustments: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

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
    def steps_per_agent(self) -> int:
        """Steps of an agent in a rollout; the most of any where they differ."""
        return -(-self.segments // self.num_agents) * self.horizon

    @property
    def arrivals(self) -> int:
        """Arrivals of a rollout that are answered: forward passes that choose actions."""
        return self.segments // self.block_agents * self.horizon

    @property
    def minibatches(self) -> int:
        """Minibatches that a rollout divides into."""
        return self.batch_size // self.minibatch_size

    @property
    def minibatch_segments(self) -> int:
        """Segments of a minibatch, where minibatches consist of segments."""
        return self.minibatch_size // self.horizon

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
    """The sizes that a config asks for.

    Attributes:
        agents: Agents of one environment.
        bptt_horizon: Steps of a segment; None: by the number of agents, see ``DEFAULT_BATCH``.
        forward_pass_minibatch_target_size: About how many agents arrive together; it is rounded
            to what environments and workers allow, which needs no adjustment.
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
        order: Whether blocks take turns.
        strict: Refuse what does not fit, instead of adjusting it.
        processors: How many there are; None: as many as this process may use.
    """

    agents: int
    bptt_horizon: int | None
    forward_pass_minibatch_target_size: int = 4096
    envs: int | None = None
    workers: int | None = None
    async_factor: int | None = None
    batch_size: int | None = None
    minibatch_size: int | None = 16_384
    max_minibatch_size: int | None = None
    by_steps: bool = False
    remembers: bool = False
    processes: bool = True
    order: Order = "rotation"
    strict: bool = False
    processors: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes below 1.

        Raises:
            ConfigError: if a size is below 1, with a line for each.
        """
        sizes = {field.name: getattr(self, field.name) for field in fields(self)}
        wrong = [
            f"{name}: must be at least 1, not {size}"
            for name, size in sizes.items()
            if type(size) is int and size < 1
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))


def plan_vectorisation(request: SizeRequest) -> VecPlan:
    """Sizes that fit each other, as close as can be to those that are asked for.

    Raises:
        ConfigError: if ``strict``, and sizes do not fit. Has a line for each problem, with the
            nearest size that fits.
    """
    fit = _Fitter()
    workers, blocks = _team(fit, request)
    horizon = _horizon(request, workers, blocks)
    segments = None
    if request.batch_size is not None:
        why = f"must be whole segments of bptt_horizon {horizon}"
        near = _multiple(request.batch_size, horizon)
        segments = fit("batch_size", request.batch_size, near, why) // horizon
    envs, target = request.envs, None
    if envs is None:
        target, envs = _targeted(fit, request, workers, blocks, segments)
    num_agents = envs * request.agents
    if segments is None and request.bptt_horizon is None:
        segments = max(round(DEFAULT_BATCH / (horizon * num_agents)), 1) * num_agents
    segments = _segments(fit, segments, num_agents, blocks, horizon)
    unit = 1 if request.by_steps else horizon
    batch, steps = segments * horizon, request.minibatch_size
    if steps is None:
        share = max(batch // 16, SMALLEST_MINIBATCH) if request.by_steps else batch // 4
        # No size that was asked for: whatever fits next is right.
        steps = _minibatch(_Fitter(), share, batch, unit)
    minibatch = _minibatch(fit, steps, batch, unit)
    accumulate = _accumulate(fit, request.max_minibatch_size, minibatch, unit)
    if request.strict and fit.problems:
        raise ConfigError("\n".join(problem.refused() for problem in fit.problems))
    plan = VecPlan(
        request.agents, workers, blocks, envs, horizon, segments, minibatch, accumulate,
        adjustments=tuple(problem.adjusted() for problem in fit.problems),
    )  # fmt: skip
    return replace(plan, remarks=tuple(_remarks(plan, target, request.order)))


def _horizon(request: SizeRequest, workers: int, blocks: int) -> int:
    """Steps of a segment."""
    if request.bptt_horizon is not None:
        return request.bptt_horizon
    envs, batch = request.envs, request.batch_size or DEFAULT_BATCH
    if envs is None:
        _, envs = _targeted(_Fitter(), request, workers, blocks, None)
    max_horizon = MEMORY_HORIZON if request.remembers else batch
    return min(max(batch // (envs * request.agents), SHORTEST_HORIZON), max_horizon, batch)


@dataclass(frozen=True, slots=True)
class _Problem:
    """A size that does not fit, and the nearest one that does."""

    name: str
    requested: int
    fitting: int
    why: str

    def adjusted(self) -> str:
        return f"{self.name} {self.requested} -> {self.fitting} ({self.why})"

    def refused(self) -> str:
        return f"{self.name}: {self.requested} does not fit, {self.fitting} does: {self.why}"


@dataclass(slots=True)
class _Fitter:
    """Replaces sizes by those that fit, and collects the ones that did not."""

    problems: list[_Problem] = field(default_factory=list)

    def __call__(self, name: str, requested: int, fitting: int, why: str) -> int:
        """``fitting``; a problem is noted where it is not what was given.

        A size that was replaced before and still does not fit is one problem with two reasons.
        """
        if requested != fitting:
            problem = _Problem(name, requested, fitting, why)
            last = self.problems[-1] if self.problems else None
            if last is not None and (last.name, last.fitting) == (name, requested):
                self.problems.pop()
                problem = _Problem(name, last.requested, fitting, f"{last.why}; {why}")
            self.problems.append(problem)
        return fitting


def _team(fit: _Fitter, request: SizeRequest) -> tuple[int, int]:
    """Workers and blocks; blocks divide workers, and workers divide environments."""
    workers, blocks, envs = request.workers, request.async_factor, request.envs
    if not request.processes:
        why = "without worker processes, all agents arrive together"
        return fit("workers", workers or 1, 1, why), fit("async_factor", blocks or 1, 1, why)
    if blocks is None:
        blocks = 2 if all(size is None or size % 2 == 0 for size in (workers, envs)) else 1
    elif envs is not None:
        fitting = max(size for size in _divisors(envs) if size <= blocks)
        blocks = fit("async_factor", blocks, fitting, f"must divide {envs} environments")
    # At least one worker for each block, even if they have to share processors.
    max_workers = max(workers or request.processors or usable_processors(), blocks) // blocks
    why = f"must be a multiple of async_factor {blocks}"
    if envs is not None:
        max_workers = max(size for size in _divisors(envs // blocks) if size <= max_workers)
        why += f" that divides {envs} environments"
    fitting = max_workers * blocks
    return (fitting if workers is None else fit("workers", workers, fitting, why)), blocks


def _targeted(
    fit: _Fitter, request: SizeRequest, workers: int, blocks: int, segments: int | None
) -> tuple[int, int]:
    """The number of agents that should arrive together, and environments for about as many."""
    target, agents = request.forward_pass_minibatch_target_size, request.agents
    per_block = max(target // agents, 2, workers) // workers * workers
    num_agents = per_block * blocks * agents
    if segments is not None and segments < num_agents:
        # A number of agents is a target, a batch size is not.
        fewer = max(segments // (blocks * agents) // workers, 1) * workers
        if fewer < per_block:
            per_block = fewer
            why = f"{num_agents} agents need a segment each, batch_size has {segments}"
            target = fit("forward_pass_minibatch_target_size", target, fewer * agents, why)
    return target, per_block * blocks


def _segments(
    fit: _Fitter, requested: int | None, num_agents: int, blocks: int, horizon: int
) -> int:
    """Segments of a rollout: at least one per agent, and whole blocks of them."""
    if requested is None:
        return num_agents
    batch = num_agents * horizon
    why = f"each of {num_agents} agents needs one of {horizon} steps: batch_size {batch}"
    enough = fit("segments", requested, max(requested, num_agents), why)
    fitting = _multiple(enough, num_agents // blocks)
    why = (
        f"must be a multiple of the {num_agents // blocks} agents that arrive together: "
        f"batch_size {fitting * horizon}"
    )
    return fit("segments", enough, fitting, why)


def _minibatch(fit: _Fitter, requested: int, batch: int, unit: int) -> int:
    """Steps of a minibatch: whole segments (``unit`` steps each), and a divisor of the batch."""
    why = f"must be whole segments of bptt_horizon {unit}"
    whole = fit("minibatch_size", requested, _multiple(requested, unit), why)
    within = fit("minibatch_size", whole, min(whole, batch), f"must be within batch_size {batch}")
    # Nearest as a ratio: 1 instead of 2 changes as much as 4 instead of 2.
    near = min(
        _divisors(batch // unit), key=lambda size: (abs(math.log(size * unit / within)), size)
    )
    return fit("minibatch_size", within, near * unit, f"must divide batch_size {batch}")


def _accumulate(fit: _Fitter, max_size: int | None, minibatch: int, unit: int) -> int:
    """Number of equal parts of at most ``max_size`` steps that a minibatch is divided into."""
    if max_size is None or max_size >= minibatch:
        return 1
    # A segment is the least there is.
    part = (
        max(size for size in _divisors(minibatch // unit) if size <= max(max_size // unit, 1))
        * unit
    )
    segments = "" if unit == 1 else f"must be whole segments of bptt_horizon {unit} and "
    why = f"{segments or 'must '}divide minibatch_size {minibatch}"
    return minibatch // fit("max_minibatch_size", max_size, part, why)


def _remarks(plan: VecPlan, target: int | None, order: Order) -> Iterator[str]:
    """Remarks about sizes that fit, but may surprise."""
    if target is not None and target != plan.block_agents:
        yield (
            f"{plan.block_agents} agents arrive together, about "
            f"forward_pass_minibatch_target_size {target}"
        )
    if order == "rotation" and plan.segments % plan.num_agents:
        idle = -plan.segments % plan.num_agents
        better = _multiple(plan.segments, plan.num_agents) * plan.horizon
        yield (
            f"{idle} of {plan.num_agents} agents wait while others collect the last segments of "
            f"a rollout; with batch_size {better} none does"
        )


def usable_processors() -> int:
    """Number of processors that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _multiple(size: int, unit: int) -> int:
    """The multiple of ``unit`` nearest to ``size``, but at least one; the lesser of two."""
    return max(-(-(2 * size - unit) // (2 * unit)), 1) * unit


def _divisors(number: int) -> list[int]:
    """Divisors of a number, in no particular order."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return small + [number // size for size in small]
