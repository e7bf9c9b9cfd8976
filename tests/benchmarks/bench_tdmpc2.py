"""Cost of an update of ``latent`` beside one of TD-MPC2, in turns in one run.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_tdmpc2.py [--sizes 1M 5M] [--turns 7]

TD-MPC2 (Hansen et al. 2024) has no package that ``pip`` installs, so ``TdMpc2`` is an update of it
written here from the paper, in plain torch: heads of the ensemble are batched products, as ``vmap``
makes them, and Adam is fused. What it computes is held against what was counted in the published
code for the same shapes: giga-operations of matrix products (``PUBLISHED``), or the script ends.

One observation has 17 numbers, one action 6; batches have 256 sequences of 3 steps. Processor time
of one thread, medians; the limit is what the products take at the rate of large ones in this run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from bench_latent import ACTIONS, DISCOUNT, WORDS, Agent, Bench, Call, Clock, counted, experience
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch
from empo_learning.allocator import keep_freed_memory

BINS, GROUP, RHO, BATCH = 101, 8, 0.5, 256
PUBLISHED = {"1M": 8.7, "5M": 39.9}
"""Giga-operations of an update by the published code, counted where it could be run."""


@dataclass(frozen=True)
class Size:
    """Widths of a TD-MPC2 model, and its number of value heads."""

    encoder: int
    width: int
    latent: int
    heads: int


SIZES = {"1M": Size(256, 384, 128, 2), "5M": Size(256, 512, 512, 5)}


class Hidden(nn.Module):
    """Linear layer, layer norm and Mish, of one network or of several at once."""

    def __init__(self, inputs: int, outputs: int, heads: int | None, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = Output(inputs, outputs, heads)
        shape = (outputs,) if heads is None else (heads, 1, outputs)
        self.gain, self.shift = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        self._dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, ``[(head,) *, output]``."""
        return F.mish(self.normed(x))

    def normed(self, x: Tensor) -> Tensor:
        """The same before Mish."""
        y = F.dropout(self.linear(x), self._dropout, self.training and self._dropout > 0)
        if self.gain.ndim == 1:
            return F.layer_norm(y, self.gain.shape, self.gain, self.shift)
        return F.layer_norm(y, y.shape[-1:]) * self.gain + self.shift


class Output(nn.Module):
    """Linear layer of one network, or of several at once."""

    def __init__(self, inputs: int, outputs: int, heads: int | None) -> None:
        super().__init__()
        some = () if heads is None else (heads,)
        self.weight = nn.Parameter(torch.empty(*some, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(*some, *([] if heads is None else [1]), outputs))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, ``[(head,) *, output]``; several networks may share inputs ``[row, input]``."""
        if self.weight.ndim == 2:
            return F.linear(x, self.weight.T, self.bias)
        return torch.baddbmm(self.bias, x.expand(len(self.weight), *x.shape[-2:]), self.weight)


class SimNorm(nn.Module):
    """Softmax in groups of ``GROUP`` numbers, after a layer norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.last = Hidden(inputs, outputs, None)

    def forward(self, x: Tensor) -> Tensor:
        """Latents, ``[*, latent]``."""
        y = self.last.normed(x)
        latent: Tensor = y.view(*y.shape[:-1], -1, GROUP).softmax(-1).flatten(-2)
        return latent


def network(
    inputs: int, width: int, last: nn.Module, heads: int | None = None, dropout: float = 0.0
) -> nn.Sequential:
    """Two hidden layers, and a last one."""
    first = Hidden(inputs, width, heads, dropout)
    return nn.Sequential(first, Hidden(width, width, heads), last)


class TdMpc2:
    """One update of TD-MPC2: model and values together, then the policy, then target values."""

    def __init__(self, size: Size) -> None:
        width, latent, both = size.width, size.latent, size.latent + ACTIONS
        self.encoder = nn.Sequential(
            Hidden(WORDS, size.encoder, None), SimNorm(size.encoder, latent)
        )
        self.dynamics = network(both, width, SimNorm(width, latent))
        self.reward = network(both, width, Output(width, BINS, None))
        self.policy = network(latent, width, Output(width, 2 * ACTIONS, None))
        self.values, self.targets = (
            network(both, width, Output(width, BINS, size.heads), size.heads, 0.01)
            for _ in range(2)
        )
        self.targets.load_state_dict(self.values.state_dict())
        self.targets.requires_grad_(False).eval()
        self._heads, self._scale = size.heads, torch.ones(())
        self._bins = torch.linspace(-10, 10, BINS)
        self.world = nn.ModuleList([self.encoder, self.dynamics, self.reward, self.values])
        slow = list(self.encoder.parameters())
        fast = list(self.world[1:].parameters())
        groups: list[dict[str, Any]] = [{"params": slow, "lr": 0.3 * 3e-4}, {"params": fast}]
        self._adam = torch.optim.Adam(groups, lr=3e-4, fused=True)
        self._policy_adam = torch.optim.Adam(
            self.policy.parameters(), lr=3e-4, eps=1e-5, fused=True
        )

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for m in (self.world, self.policy) for p in m.parameters())

    def update(self, batch: SequenceBatch) -> Tensor:
        """All steps of an update; returns the loss of model and values."""
        with torch.no_grad():
            following = self.encoder(batch.observation[1:])
            returns = batch.reward + DISCOUNT * self._least_target(following)
        latents = [self.encoder(batch.observation[0])]
        consistency = torch.zeros(())
        for time, (action, target) in enumerate(zip(batch.action, following, strict=True)):
            latents.append(self.dynamics(torch.cat([latents[-1], action], -1)))
            consistency = consistency + RHO**time * F.mse_loss(latents[-1], target)
        rolled = torch.stack(latents)
        pairs = torch.cat([rolled[:-1], batch.action], -1).flatten(0, 1)
        weight = RHO ** torch.arange(len(batch.action), dtype=torch.float32)
        reward = self._entropy(self.reward(pairs), batch.reward.flatten(0, 1))
        value = self._entropy(self.values(pairs), returns.flatten(0, 1)).mean(0)
        steps = len(weight)
        shared = (reward + value).view(steps, -1).mean(-1) @ weight / steps
        loss: Tensor = 20 * consistency / steps + 0.1 * shared
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.world.parameters(), 20)
        self._adam.step()
        self._update_policy(rolled.detach())
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.targets.parameters()), list(self.values.parameters()), 0.01
            )
        return loss.detach()

    def _update_policy(self, latents: Tensor) -> None:
        """Follow the mean of two value heads, and the entropy."""
        action, entropy = self._act(latents)
        self.values.requires_grad_(False)
        logits = self.values(torch.cat([latents, action], -1).flatten(0, 1))
        self.values.requires_grad_(True)
        chosen = torch.randperm(self._heads)[:2]
        value = self._decoded(logits[chosen]).mean(0).view(len(latents), -1)
        with torch.no_grad():
            low, high = torch.quantile(value[0], torch.tensor([0.05, 0.95]))
            self._scale.lerp_((high - low).clamp(min=1), 0.01)
        weight = RHO ** torch.arange(len(latents), dtype=torch.float32)
        gain = (value / self._scale + 1e-4 * entropy).mean(-1)
        self._policy_adam.zero_grad()
        (-(gain * weight).mean()).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.policy.parameters(), 20)
        self._policy_adam.step()

    def _act(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Sampled actions ``[*, action]``, and their entropy times its number of dimensions."""
        mean, raw = self.policy(latents).chunk(2, -1)
        log_std = -10 + 6 * (raw.tanh() + 1)
        noise = torch.randn_like(mean)
        log_density = (-0.5 * noise.square() - log_std - 0.9189385).sum(-1)
        return (mean + noise * log_std.exp()).tanh(), -ACTIONS * log_density

    def _least_target(self, latents: Tensor) -> Tensor:
        """The least of two target heads of the policy's actions, ``[time, sequence, 1]``."""
        action, _ = self._act(latents)
        logits = self.targets(torch.cat([latents, action], -1).flatten(0, 1))
        chosen = torch.randperm(self._heads)[:2]
        least = self._decoded(logits[chosen]).amin(0)
        return least.view(*latents.shape[:-1], 1)

    def _decoded(self, logits: Tensor) -> Tensor:
        mean = (logits.softmax(-1) * self._bins).sum(-1)
        return mean.sign() * mean.abs().expm1()

    def _entropy(self, logits: Tensor, number: Tensor) -> Tensor:
        """Cross-entropy with the two bins next to each number, ``[(head,) row]``."""
        place = (number.sign() * number.abs().log1p()).clamp(-10, 10)
        place = (place + 10) * (BINS - 1) / 20
        below = place.floor().clamp(max=BINS - 2)
        target = torch.zeros(len(number), BINS)
        target.scatter_(1, below.long(), 1 - (place - below))
        target.scatter_(1, below.long() + 1, place - below)
        return -(logits.log_softmax(-1) * target).sum(-1)


def ours(size: str, preset: str) -> Agent:
    """An agent of this project, by preset."""
    return Agent(
        LatentParams.model_validate(
            {
                "preset": preset,
                "size": size,
                "total_steps": 1,
                "tasks": ["gymnasium/Pendulum-v1"],
                "replay": {"batch_size": BATCH},
            }
        )
    )


def compared(size: str, turns: int, bench: Bench) -> list[list[str]]:
    """Rows of the table for one size."""
    clock = Clock(torch.device("cpu"), 0)
    batch = experience(BATCH, torch.device("cpu"))
    peer = TdMpc2(SIZES[size])
    calls: dict[str, Call] = {
        "TD-MPC2": partial(peer.update, batch),
        **{name: partial(ours(size, name).update, batch) for name in ("tdmpc2", "svg")},
    }
    work = {name: counted(call) for name, call in calls.items()}
    theirs = work["TD-MPC2"][0]
    if abs(theirs / PUBLISHED[size] - 1) > 0.02:
        raise SystemExit(
            f"{size}: TD-MPC2 as written here has {theirs:.1f} giga-operations, and the published "
            f"code {PUBLISHED[size]}: they do not compute the same"
        )
    for call in calls.values():
        call()
    bench.squares()
    times = [{name: clock.ms(call) for name, call in calls.items()} for _ in range(turns)]
    rows = []
    for name, (gigaflop, operations) in work.items():
        ms = median(each[name] for each in times)
        ratio = median(each[name] / each["TD-MPC2"] for each in times)
        limit = 1e3 * gigaflop / bench.gigaflops
        counts = [f"{gigaflop:.1f}", f"{operations:,}"]
        rows.append([size, name, *counts, f"{ms:.1f}", f"{ms / limit:.2f}", f"{ratio:.2f}"])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    table = Table(title=f"An update of {BATCH} sequences, medians of {options.turns} turns")
    for heading in ("size", "agent", "GFLOP", "operations", "CPU ms", "x limit", "of TD-MPC2"):
        table.add_column(heading, justify="left" if heading in ("size", "agent") else "right")
    bench = Bench(torch.device("cpu"), 0, compiles=False)
    for size in options.sizes:
        for row in compared(size, options.turns, bench):
            table.add_row(*row)
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
