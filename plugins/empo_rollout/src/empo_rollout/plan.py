"""How many environments, workers, blocks, segments and minibatches fit together."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec, Order


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
        adjustments: What was changed to make sizes fit, for people, e.g. "workers 3 -> 2 (...)".
        remarks: What fits, but is good to know.
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
    def envs_per_worker(self) -> int:
        """Environments that one worker steps."""
        return self.envs // self.workers

    @property
    def workers_per_block(self) -> int:
        """Workers that serve one block."""
        return self.workers // self.blocks

    @property
    def envs_per_block(self) -> int:
        """Environments whose agents arrive together."""
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
        """Check that what was built is what was planned.

        Raises:
            ConfigError: It has another number of agents, environments or blocks.
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


def plan_vectorisation(
    *,
    agents: int,
    bptt_horizon: int,
    forward_pass_minibatch_target_size: int = 4096,
    envs: int | None = None,
    workers: int | None = None,
    async_factor: int | None = None,
    batch_size: int | None = None,
    minibatch_size: int = 16_384,
    max_minibatch_size: int | None = None,
    by_steps: bool = False,
    processes: bool = True,
    order: Order = "rotation",
    strict: bool = False,
    processors: int | None = None,
) -> VecPlan:
    """Sizes that fit each other, as close as can be to those that are asked for.

    Args:
        agents: Agents of one environment.
        bptt_horizon: Steps of a segment.
        forward_pass_minibatch_target_size: About how many agents arrive together; it is rounded
            to what environments and workers allow, which needs no adjustment.
        envs: Instead of that: the number of environments.
        workers: Worker processes; None: one per processor, as far as they divide.
        async_factor: Blocks; None: 2 where workers can be halved, else 1.
        batch_size: Steps of a rollout; None: one segment of every agent.
        minibatch_size: Steps per step of the optimiser.
        max_minibatch_size: Most steps per backward pass; None: any number.
        by_steps: Whether minibatches consist of single steps instead of segments.
        processes: Whether environments live in worker processes. Without them all slots arrive
            together: one block, and no workers besides this process.
        order: Whether blocks take turns.
        strict: Refuse what does not fit, instead of adjusting it.
        processors: How many there are; None: as many as this process may use.

    Raises:
        ConfigError: A size is below 1; or ``strict``, and sizes do not fit. Has a line for each
            problem, with the nearest size that fits.
    """
    _require_positive(
        agents=agents, bptt_horizon=bptt_horizon, envs=envs, workers=workers,
        forward_pass_minibatch_target_size=forward_pass_minibatch_target_size,
        async_factor=async_factor, batch_size=batch_size, minibatch_size=minibatch_size,
        max_minibatch_size=max_minibatch_size, processors=processors,
    )  # fmt: skip
    sizes = _Sizes()
    if processes:
        available = processors or usable_processors()
        workers, blocks = _team(sizes, workers, async_factor, envs, available)
    else:
        why = "without worker processes, all slots arrive together"
        workers = sizes.fit("workers", workers or 1, 1, why)
        blocks = sizes.fit("async_factor", async_factor or 1, 1, why)
    segments = None
    if batch_size is not None:
        why = f"must be whole segments of bptt_horizon {bptt_horizon}"
        batch_size = sizes.fit("batch_size", batch_size, _multiple(batch_size, bptt_horizon), why)
        segments = batch_size // bptt_horizon
    target = None
    if envs is None:
        target = forward_pass_minibatch_target_size
        target, envs = _targeted(sizes, target, agents, workers, blocks, segments)
    segments = _segments(sizes, segments, envs * agents, blocks, bptt_horizon)
    unit = 1 if by_steps else bptt_horizon
    minibatch = _minibatch(sizes, minibatch_size, segments * bptt_horizon, unit)
    accumulate = _accumulate(sizes, max_minibatch_size, minibatch, unit)
    if strict and sizes.problems:
        raise ConfigError("\n".join(problem.refused() for problem in sizes.problems))
    plan = VecPlan(
        agents, workers, blocks, envs, bptt_horizon, segments, minibatch, accumulate,
        adjustments=tuple(problem.adjusted() for problem in sizes.problems),
    )  # fmt: skip
    return replace(plan, remarks=tuple(_remarks(plan, target, order)))


@dataclass(frozen=True, slots=True)
class _Problem:
    """A size that does not fit, and the nearest one that does."""

    name: str
    given: int
    fitting: int
    why: str

    def adjusted(self) -> str:
        return f"{self.name} {self.given} -> {self.fitting} ({self.why})"

    def refused(self) -> str:
        return f"{self.name}: {self.given} does not fit, {self.fitting} does: {self.why}"


@dataclass(slots=True)
class _Sizes:
    """Puts sizes right, and remembers which were wrong."""

    problems: list[_Problem] = field(default_factory=list)

    def fit(self, name: str, given: int, fitting: int, why: str) -> int:
        """What fits; noted where it is not what was given.

        What was put right before and still does not fit is one problem, whose answer fits.
        """
        if given != fitting:
            problem = _Problem(name, given, fitting, why)
            last = self.problems[-1] if self.problems else None
            if last is not None and (last.name, last.fitting) == (name, given):
                self.problems.pop()
                problem = _Problem(name, last.given, fitting, f"{last.why}; {why}")
            self.problems.append(problem)
        return fitting


def _require_positive(**sizes: int | None) -> None:
    wrong = [
        f"{name}: must be at least 1, not {size}"
        for name, size in sizes.items()
        if size is not None and size < 1
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))


def _team(
    sizes: _Sizes, workers: int | None, blocks: int | None, envs: int | None, processors: int
) -> tuple[int, int]:
    """Workers and blocks; blocks divide workers, and workers divide environments."""
    if blocks is None:
        blocks = 2 if all(size is None or size % 2 == 0 for size in (workers, envs)) else 1
    elif envs is not None:
        fitting = max(size for size in _divisors(envs) if size <= blocks)
        blocks = sizes.fit("async_factor", blocks, fitting, f"must divide {envs} environments")
    # At least one worker for each block, even if they have to share processors.
    most = max(workers or processors, blocks) // blocks
    why = f"must be a multiple of async_factor {blocks}"
    if envs is not None:
        most = max(size for size in _divisors(envs // blocks) if size <= most)
        why += f" that divides {envs} environments"
    fitting = most * blocks
    return (fitting if workers is None else sizes.fit("workers", workers, fitting, why)), blocks


def _targeted(
    sizes: _Sizes, target: int, agents: int, workers: int, blocks: int, segments: int | None
) -> tuple[int, int]:
    """The number of agents that should arrive together, and environments for about as many."""
    per_block = max(target // agents, 2, workers) // workers * workers
    slots = per_block * blocks * agents
    if segments is not None and segments < slots:
        # A number of agents is a target, a batch size is not.
        fewer = max(segments // (blocks * agents) // workers, 1) * workers
        if fewer < per_block:
            per_block = fewer
            why = f"{slots} slots need a segment each, batch_size has {segments}"
            target = sizes.fit("forward_pass_minibatch_target_size", target, fewer * agents, why)
    return target, per_block * blocks


def _segments(sizes: _Sizes, given: int | None, slots: int, blocks: int, horizon: int) -> int:
    """Segments of a rollout: at least one per slot, and whole blocks of them."""
    if given is None:
        return slots
    why = f"each of {slots} slots needs one of {horizon} steps: batch_size {slots * horizon}"
    enough = sizes.fit("segments", given, max(given, slots), why)
    fitting = _multiple(enough, slots // blocks)
    why = (
        f"must be a multiple of the {slots // blocks} slots that arrive together: "
        f"batch_size {fitting * horizon}"
    )
    return sizes.fit("segments", enough, fitting, why)


def _minibatch(sizes: _Sizes, given: int, batch: int, unit: int) -> int:
    """Steps of a minibatch: whole segments (``unit`` steps each), and a divisor of the batch."""
    why = f"must be whole segments of bptt_horizon {unit}"
    whole = sizes.fit("minibatch_size", given, _multiple(given, unit), why)
    within = sizes.fit(
        "minibatch_size", whole, min(whole, batch), f"must be within batch_size {batch}"
    )
    # Nearest as a ratio: 1 instead of 2 changes as much as 4 instead of 2.
    near = min(
        _divisors(batch // unit), key=lambda size: (abs(math.log(size * unit / within)), size)
    )
    return sizes.fit("minibatch_size", within, near * unit, f"must divide batch_size {batch}")


def _accumulate(sizes: _Sizes, most: int | None, minibatch: int, unit: int) -> int:
    """Into how many equal parts of at most ``most`` steps a minibatch divides."""
    if most is None or most >= minibatch:
        return 1
    # A segment is the least there is.
    part = max(size for size in _divisors(minibatch // unit) if size <= max(most // unit, 1)) * unit
    segments = "" if unit == 1 else f"must be whole segments of bptt_horizon {unit} and "
    why = f"{segments or 'must '}divide minibatch_size {minibatch}"
    return minibatch // sizes.fit("max_minibatch_size", most, part, why)


def _remarks(plan: VecPlan, target: int | None, order: Order) -> Iterator[str]:
    """What fits, but is good to know."""
    if target is not None and target != plan.block_agents:
        yield (
            f"{plan.block_agents} agents arrive together, about "
            f"forward_pass_minibatch_target_size {target}"
        )
    if order == "rotation" and plan.segments % plan.num_agents:
        idle = -plan.segments % plan.num_agents
        better = _multiple(plan.segments, plan.num_agents) * plan.horizon
        yield (
            f"{idle} of {plan.num_agents} slots wait while the others collect the last segments of "
            f"a rollout; with batch_size {better} none does"
        )


def usable_processors() -> int:
    """How many this process may use; not every system says that."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _multiple(size: int, unit: int) -> int:
    """The multiple of ``unit`` nearest to ``size``, but at least one; the lesser of two."""
    return max(-(-(2 * size - unit) // (2 * unit)), 1) * unit


def _divisors(number: int) -> list[int]:
    """What divides a number, in no particular order."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return small + [number // size for size in small]
