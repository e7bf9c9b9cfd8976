"""Time to compute advantages, against a pass over the same bytes.

Run ``python tests/benchmarks/bench_advantages.py [--horizon 64] [--segments 8192]``. A pass copies
every array that the computation reads (values, rewards, flags; ratios for V-trace) or writes
(advantages, returns) once, by numpy, into memory that is there already. All contenders use one
thread and take turns; what counts is the least processor time, which depends less on what else the
machine does. ``naive`` is a torch loop over time that makes new tensors in each step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_learning.allocator import keep_freed_memory
from empo_rollout.buffer import Rollout, advantages
from empo_rollout.params import AdvantageParams

ROUNDS = 60
ENDS = 0.01
"""Probability per step that an episode terminates, and that it is truncated."""

GAMMA = 0.99
PLAIN = AdvantageParams()
VTRACE = AdvantageParams(vtrace="minibatch")


def random_rollout(horizon: int, segments: int) -> Rollout:
    """Steps whose outcome is known, some of which end an episode."""
    generator = torch.Generator().manual_seed(0)
    shape = (horizon, segments)
    value, reward, next_value = (torch.randn(shape, generator=generator) for _ in range(3))
    terminated, truncated = (torch.rand(shape, generator=generator) < ENDS for _ in range(2))
    none = torch.zeros(shape, dtype=torch.bool)
    return Rollout(
        observation=torch.zeros(*shape, 0),
        action=torch.zeros(*shape, 0),
        log_prob=torch.zeros(shape),
        value=value,
        reward=reward,
        terminated=terminated,
        truncated=truncated & ~terminated,
        next_value=next_value.masked_fill(terminated, 0.0),
        unseen=none,
        starts=none.clone(),
        valid=~none,
        is_known=~none,
        mask=None,
        memory=torch.zeros(segments, 0),
        agent=torch.arange(segments),
        version=torch.zeros(shape, dtype=torch.int64),
    )


def inputs(rollout: Rollout) -> list[Tensor]:
    """Tensors that advantages are computed from."""
    return [
        rollout.value, rollout.reward, rollout.next_value, rollout.terminated, rollout.truncated,
        rollout.unseen, rollout.valid, rollout.is_known,
    ]  # fmt: skip


def a_pass(arrays: list[np.ndarray]) -> Callable[[], None]:
    """A function that copies the arrays."""
    copies = [np.zeros_like(array) for array in arrays]

    def copy() -> None:
        for array, into in zip(arrays, copies, strict=True):
            np.copyto(into, array)

    return copy


def naive(rollout: Rollout, params: AdvantageParams, ratio: Tensor | None) -> Tensor:
    """The equations, step by step."""
    ratio = torch.ones_like(rollout.value) if ratio is None else ratio
    later, rows = torch.zeros_like(rollout.value[0]), []
    for t in reversed(range(len(rollout.value))):
        delta = rollout.reward[t] + GAMMA * rollout.next_value[t] - rollout.value[t]
        rho, c = ratio[t].clamp(max=params.rho_clip), ratio[t].clamp(max=params.c_clip)
        goes_on = 1 - (rollout.terminated[t] | rollout.truncated[t]).float()
        later = rho * delta + GAMMA * params.gae_lambda * c * goes_on * later
        later = torch.where(rollout.valid[t] & rollout.is_known[t], later, 0.0)
        rows.append(later)
    return torch.stack(rows[::-1])


def best_ms(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest processor time of each contender."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            # The first call finds caches as others left them.
            for _ in range(2):
                start = time.process_time()
                call()
                best[name] = min(best[name], 1e3 * (time.process_time() - start))
    return best


def measured(rollout: Rollout, params: AdvantageParams, ratio: Tensor | None) -> Table:
    """Times of all contenders, as a table."""
    read = inputs(rollout) + ([] if ratio is None else [ratio])
    arrays = [tensor.numpy() for tensor in [*read, *advantages(rollout, params, GAMMA, ratio)]]
    torch.testing.assert_close(
        advantages(rollout, params, GAMMA, ratio)[0],
        naive(rollout, params, ratio),
        rtol=1e-5,
        atol=1e-5,
    )
    best = best_ms(
        {
            "a pass: copies of all inputs and outputs": a_pass(arrays),
            "copies of the inputs alone": a_pass(arrays[: len(read)]),
            "advantages": lambda: advantages(rollout, params, GAMMA, ratio),
            "naive torch loop": lambda: naive(rollout, params, ratio),
        }
    )
    size = sum(array.nbytes for array in arrays) / 1e6
    table = Table(
        title=f"{list(rollout.value.shape)} {'GAE' if ratio is None else 'V-trace'}, {size:.1f} MB"
    )
    for heading in ("", "ms", "passes"):
        table.add_column(heading, justify="right" if heading else "left")
    floor = next(iter(best.values()))
    for name, ms in best.items():
        table.add_row(name, f"{ms:.3f}", f"{ms / floor:.2f}")
    return table


def main() -> None:
    """Measure both forms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--horizon", type=int, default=64)
    parser.add_argument("--segments", type=int, default=8192)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # As while training.
    keep_freed_memory()
    rollout = random_rollout(options.horizon, options.segments)
    generator = torch.Generator().manual_seed(1)
    ratio = (0.1 * torch.randn(rollout.value.shape, generator=generator)).exp()
    console = Console()
    console.print(measured(rollout, PLAIN, None))
    console.print(measured(rollout, VTRACE, ratio))


if __name__ == "__main__":
    main()
