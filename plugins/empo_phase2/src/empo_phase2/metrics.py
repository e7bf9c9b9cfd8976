"""Metrics of a run for its trackers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from empo_core.protocols import Collector, ValueNetwork
from empo_core.types import Fit, Quantity
from empo_phase2.params import QUANTITIES
from empo_phase2.replay import Replay
from empo_phase2.targets import BatchTargets
from empo_phase2.warmup import STAGES, WarmUpSchedule


def of_step(step: int, schedule: WarmUpSchedule, targets: BatchTargets) -> dict[str, float]:
    """Numbers about the targets and the schedules of one training step."""
    metrics: dict[str, float] = {}
    for name, target, weight in (
        ("q_r", targets.q_r, targets.q_r_weight),
        ("v_h_e", targets.v_h_e, targets.v_h_e_weight),
        ("x_h", targets.x_h, None),
        ("u_r", targets.u_r, None),
        ("v_r", targets.v_r, None),
    ):
        if target is not None:
            metrics[f"value/{name}_target_mean"] = _mean(target, weight)
    plan = schedule.at(step)
    metrics |= {
        "policy/beta_r": plan.current.beta_r,
        "optim/is_warm_up": float(step < schedule.warm_up_end),
        "optim/stage": float(STAGES.index(plan.stage)),
        "optim/active_quantities": float(
            sum(2 ** QUANTITIES.index(quantity) for quantity in plan.active)
        ),
        "value/gamma_h": plan.current.gamma_h,
        "value/gamma_r": plan.current.gamma_r,
        "optim/batch_successors": float(targets.items),
        "optim/batch_distinct_states": float(targets.distinct),
    }
    return metrics


def of_fit(
    quantity: Quantity, fit: Fit, lr: float, prediction: Tensor, weight: Tensor
) -> dict[str, float]:
    """Numbers about one quantity: its newest fit, and its network's output in the same batch."""
    return {
        f"loss/{quantity}": float(fit.loss),
        f"optim/grad_norm_{quantity}": float(fit.gradient_norm),
        f"optim/lr_{quantity}": lr,
        f"value/{quantity}_prediction_mean": _mean(prediction, weight),
    }


def of_collection(collector: Collector, replay: Replay) -> dict[str, float]:
    """Numbers about where experience comes from and how much is remembered."""
    counters = collector.counters()
    metrics = {f"collect/{name}": float(value) for name, value in counters.items()}
    return metrics | {
        "collect/replay_transitions": float(len(replay)),
        "collect/replay_distinct_states": float(replay.distinct_states),
        "collect/replay_bytes_per_transition": replay.bytes_per_transition(),
    }


def of_stages(seconds: Mapping[str, float], steps: int) -> dict[str, float]:
    """Milliseconds per step, and share, of each stage of target computation."""
    whole = max(sum(seconds.values()), 1e-12)
    ms = {f"time/stage_{name}_ms": 1e3 * part / steps for name, part in seconds.items()}
    shares = {f"time/stage_{name}_percent": 100 * s / whole for name, s in seconds.items()}
    return ms | shares


def profile_table(stage_ms: Mapping[str, float], steps: int) -> str:
    """Milliseconds and share of each stage, as lines of text."""
    whole = max(sum(stage_ms.values()), 1e-12)
    lines = [
        f"  {name:<24}{ms:9.3f} ms {100 * ms / whole:5.1f} %"
        for name, ms in {**stage_ms, "total": sum(stage_ms.values())}.items()
    ]
    return "\n".join([f"targets, mean of {steps:,} training steps", *lines])


def of_networks(networks: Mapping[Quantity, ValueNetwork]) -> dict[str, float]:
    """Sizes of weights, and of tables that grow."""
    metrics: dict[str, float] = {}
    for quantity, network in networks.items():
        squares = [parameter.detach().square().sum() for parameter in network.parameters()]
        if squares:
            metrics[f"optim/weight_norm_{quantity}"] = float(torch.stack(squares).sum().sqrt())
        entries = getattr(network, "num_entries", None)
        if entries is not None:
            metrics[f"value/table_entries_{quantity}"] = float(entries)
    sizes = [size for name, size in metrics.items() if name.startswith("value/table_entries_")]
    return metrics | ({"value/table_entries_total": sum(sizes)} if sizes else {})


def _mean(numbers: Tensor, weight: Tensor | None) -> float:
    if weight is None:
        return float(numbers.mean())
    counted = torch.where(weight > 0, numbers * weight, 0.0)
    return float(counted.sum() / weight.sum().clamp(min=1e-12))
