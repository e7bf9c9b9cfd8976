"""Time of the rollout learner's policies for acting and for training.

Run ``python tests/benchmarks/bench_policies.py``. Everything uses one thread and counts its CPU
time. Acting is compared with the policy's products of matrices (and convolutions) alone, on rows of
the same sizes, and with those and one tanh behind each layer that has an activation. Learning,
forwards and backwards, is compared with the loop over steps that acting consists of. Ratios compare
the best times of contenders that take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, build_policy

ROWS = (64, 512, 4096)
TIMES, SEGMENTS = 64, (64, 256)
CASE_S = 1.5
"""The contenders of a case take turns for this long, at least five times each."""
GRID = (6, 7, 7)
VECTOR, PICTURE = ObservationSpec(8), ObservationSpec(6 * 7 * 7, "uint8", GRID)


def policy_of(network: str, **params: Any) -> PolicyParams:
    """A policy whose critic reads the features of this network."""
    return PolicyParams.model_validate(
        {"network": {"name": network, "params": params}, "critic": "shared"}
    )


KINDS: dict[str, tuple[ObservationSpec, int, PolicyParams]] = {
    "mlp": (VECTOR, 1, PolicyParams()),
    "mlp, shared critic": (VECTOR, 1, PolicyParams(critic="shared")),
    "mlp, 4 agents apart": (VECTOR, 4, PolicyParams(agents="separate")),
    "lstm": (VECTOR, 1, policy_of("lstm")),
    "gru": (VECTOR, 1, policy_of("lstm", cell="gru")),
    "conv": (PICTURE, 1, policy_of("conv", channels=[16, 16])),
}


def best_ms(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest CPU time of each contender, after one call to warm up; they take turns."""
    best = dict.fromkeys(contenders, float("inf"))
    begin, rounds = time.perf_counter(), -1
    while rounds < 5 or time.perf_counter() - begin < CASE_S:
        rounds += 1
        for name, call in contenders.items():
            start = time.thread_time()
            call()
            if rounds:
                best[name] = min(best[name], 1e3 * (time.thread_time() - start))
    return best


def built(kind: str) -> Networks:
    """The policy of one row of ``KINDS``."""
    seen, agents, params = KINDS[kind]
    names = tuple(f"agent {i}" for i in range(agents))
    place = EnvSpec(seen, ActionSpec(choices=(5,)), names, num_envs=1)
    return build_policy(params, place, generator=torch.Generator().manual_seed(0))


def observed(kind: str, *batch: int) -> Tensor:
    """Observations of this kind."""
    seen, generator = KINDS[kind][0], torch.Generator().manual_seed(1)
    if seen.dtype == "uint8":
        return torch.randint(256, (*batch, seen.words), generator=generator).to(torch.uint8)
    return torch.randn(*batch, seen.words, generator=generator)


def bare(policy: Networks, rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A policy's products of matrices alone, and with what follows them."""
    products: list[tuple[Callable[..., Tensor], Tensor, Tensor]] = []
    followed = []
    share = rows // len(policy.networks)
    for layer in policy.modules():
        if isinstance(layer, nn.Linear):
            products.append((torch.mm, torch.randn(share, layer.in_features), layer.weight.t()))
            followed.append(layer.out_features == 64)
        elif isinstance(layer, nn.Conv2d):
            picture = torch.randn(share, layer.in_channels, *GRID[1:])
            picture = picture.contiguous(memory_format=torch.channels_last)
            products.append((lambda x, w: torch.conv2d(x, w, padding=1), picture, layer.weight))
            followed.append(True)
        elif isinstance(layer, nn.LSTM | nn.GRU):
            for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
                products.append((torch.mm, torch.randn(share, weight.shape[1]), weight.t()))
            followed.extend([False, True])

    def matrices() -> None:
        for product, left, right in products:
            product(left, right)

    def activations() -> None:
        for (product, left, right), follows in zip(products, followed, strict=True):
            result = product(left, right)
            if follows:
                result.tanh()

    return matrices, activations


def acting(console: Console) -> None:
    """Print how long a step takes."""
    table = Table("policy", "rows", "matrices ms", "+ tanh ms", "step ms", "ratios", "+ draw ms")
    for kind in KINDS:
        policy = built(kind)
        for rows in ROWS:
            memory, starts = policy.initial_memory(rows), torch.zeros(rows, dtype=torch.bool)
            given = observed(kind, rows), memory, starts, torch.arange(rows) % KINDS[kind][1]

            def step(policy: Networks = policy, inputs: tuple[Tensor, ...] = given) -> None:
                policy.step(*inputs)

            def draw(policy: Networks = policy, inputs: tuple[Tensor, ...] = given) -> None:
                chosen = policy.step(*inputs).distribution
                chosen.log_prob(chosen.sample())

            matrices, activations = bare(policy, rows)
            with torch.inference_mode():
                best = best_ms(
                    {"matrices": matrices, "tanh": activations, "step": step, "draw": draw}
                )
            ratios = f"{best['step'] / best['matrices']:.1f}, {best['step'] / best['tanh']:.1f}"
            times = [f"{best[name]:.3f}" for name in ("matrices", "tanh", "step")]
            table.add_row(kind, f"{rows:,}", *times, ratios, f"{best['draw']:.3f}")
    console.print(table)


def learning(console: Console) -> None:
    """Print how long a pass forwards and backwards over segments takes."""
    table = Table("policy", "segments", "starts", "by steps ms", "unroll ms", "ratio")
    for kind in KINDS:
        policy = built(kind)
        for segments in SEGMENTS:
            for share in (0.0, 0.005, 0.05) if policy.memory_size else (0.05,):
                torch.manual_seed(2)
                starts = torch.rand(TIMES, segments) < share
                agent = torch.arange(segments) % KINDS[kind][1]
                best = best_ms(passes(policy, observed(kind, TIMES, segments), starts, agent))
                table.add_row(
                    kind,
                    f"{segments} x {TIMES}",
                    f"{share:.1%}",
                    *(f"{best[name]:.1f}" for name in ("steps", "unroll")),
                    f"{best['unroll'] / best['steps']:.2f}",
                )
    console.print(table)


def passes(
    policy: Networks, observation: Tensor, starts: Tensor, agent: Tensor
) -> dict[str, Callable[[], None]]:
    """Log-probabilities and values, and their gradient, by both ways."""
    action = torch.zeros(observation.shape[1], 1, dtype=torch.long)

    def by_steps() -> None:
        memory, total = policy.initial_memory(len(agent)), torch.zeros(())
        for seen, start in zip(observation, starts, strict=True):
            step = policy.step(seen, memory, start, agent)
            memory = step.memory
            total = total + (step.distribution.log_prob(action) + step.value).sum()
        policy.zero_grad()
        total.backward()

    def unrolled() -> None:
        memory = policy.initial_memory(len(agent))
        hidden, value, _ = policy.unroll(observation, memory, starts, agent)
        chosen = policy.distribution(hidden.flatten(0, 1), agent.repeat(len(starts)))
        total = chosen.log_prob(action.repeat(len(starts), 1)).sum() + value.sum()
        policy.zero_grad()
        total.backward()

    return {"steps": by_steps, "unroll": unrolled}


if __name__ == "__main__":
    torch.set_num_threads(1)
    acting(Console(width=110))
    learning(Console(width=110))
