"""Targets and losses as their equations are written: one state, head and step at a time.

Slow, without gradients, and made to check the fast ones by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_latent.networks.model import LatentModel, Network
from empo_latent.params import LatentParams
from empo_latent.params.networks import Heads, ValueParams
from empo_latent.types import PolicyRollout, SequenceBatch

JOINED: Mapping[Heads, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}
"""Reductions of the outputs of several heads to one, by name."""


@torch.no_grad()
def td_targets_reference(
    model: LatentModel,
    rollout: PolicyRollout,
    discount: Float[Tensor, "*per_task"],
    network: Network = "target",
) -> Float[Tensor, "step reward dynamics value m 1"]:
    """First return value of ``td_targets``; critic ``q`` is evaluated at the mode of the policy."""

    def later(after: Tensor, task: Tensor | None, row: int) -> list[float]:
        action = None
        if model.critic == "q":
            policy = model.policy(after, task=task)
            action = policy.bounded(policy.mode)
        factor = float(discount if discount.ndim == 0 else discount[row, 0])
        values = model.value(after, action, task=task, network=network)
        return [factor * float(value) for value in values]

    return _returns(model, rollout, later)


@torch.no_grad()
def auxiliary_targets_reference(
    model: LatentModel, rollout: PolicyRollout, discounts: Sequence[float]
) -> Float[Tensor, "step reward dynamics gamma m 1"]:
    """Reference for ``auxiliary_targets``."""

    def later(after: Tensor, task: Tensor | None, row: int) -> list[float]:
        values = model.auxiliary(after, task=task, network="target")
        return [gamma * float(value) for gamma, value in zip(discounts, values, strict=True)]

    return _returns(model, rollout, later)


def _returns(
    model: LatentModel,
    rollout: PolicyRollout,
    later: Callable[[Tensor, Tensor | None, int], list[float]],
) -> Float[Tensor, "step reward dynamics head m 1"]:
    """Rewards plus ``later`` values of each step; no later value after a terminal step."""
    steps, rows = rollout.action.shape[:2]
    found = []
    for step in range(steps):
        for row in range(rows):
            task, action = _task(rollout.task, row), rollout.action[step, row]
            for head, latent in enumerate(rollout.latent[step, :, row]):
                after = model.next_latent(latent, action, task=task)[head]
                going_on = 1 - float(model.termination(after, task=task))
                values = later(after, task, row)
                for reward in model.reward(latent, action, task=task):
                    found += [float(reward) + going_on * value for value in values]
    shape = (steps, rows, rollout.latent.shape[1], len(rollout.reward[0]), -1)
    # From [step m dynamics reward head].
    numbers = torch.tensor(found, dtype=rollout.action.dtype)
    return numbers.view(shape).permute(0, 3, 2, 4, 1).unsqueeze(-1)


def value_target_reference(
    td: Float[Tensor, "step reward dynamics value m 1"],
    params: ValueParams,
    moments: int,
    sequences: int,
    candidates: int,
    weights: Float[Tensor, "start candidate"] | None = None,
    pair: Sequence[int] = (),
) -> Float[Tensor, "value {moments} {sequences} target 1"]:
    """Reference for ``value_target``; ``pair`` names the two heads that were drawn, if any."""
    heads = td.shape[3]
    found = []
    for head in range(heads):
        for start in range(moments * sequences):
            each = []
            for candidate in range(candidates):
                m = start * candidates + candidate
                by_head = [
                    JOINED[params.dynamics](td[0, :, :, e, m, 0].flatten().tolist())
                    for e in range(heads)
                ]
                if params.bootstrap == "local":
                    each.append(by_head[head])
                elif params.bootstrap == "mean":
                    each.append(fmean(by_head))
                else:
                    each.append(min(by_head[e] for e in pair or range(heads)))
            if params.average == "cross_entropy":
                found.append(each)
            elif weights is None:
                found.append([fmean(each)])
            else:
                found.append([_dot(each, weights[start].tolist())])
    return torch.tensor(found, dtype=td.dtype).view(heads, moments, sequences, -1, 1)


@torch.no_grad()
def value_loss_reference(
    model: LatentModel,
    latents: Float[Tensor, "moment sequence latent"],
    target: Float[Tensor, "value moment sequence target 1"],
    weight: Float[Tensor, "moment sequence"],
    task: Int[Tensor, " sequence"] | None = None,
    weights: Float[Tensor, "start target"] | None = None,
) -> float:
    """The value loss before its coefficient, for critic ``v``."""
    moments, sequences = weight.shape
    terms = []
    for s in range(moments):
        for b in range(sequences):
            heads = model.logits("value", latents[s, b], task=_task(task, b))
            losses = []
            for head, logits in enumerate(heads):
                each = [cross_entropy_reference(model, logits, y) for y in target[head, s, b, :, 0]]
                shares = [1 / len(each)] * len(each)
                if weights is not None:
                    shares = weights[s * sequences + b].tolist()
                losses.append(_dot(each, shares))
            terms.append(float(weight[s, b]) * fmean(losses))
    return fmean(terms)


@torch.no_grad()
def world_losses_reference(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    targets: Float[Tensor, "moment sequence latent"],
    params: LatentParams,
    rho: Float[Tensor, " time"],
) -> Mapping[str, float]:
    """All losses of the world model before their coefficients, by name."""
    found: dict[str, list[float]] = {
        name: [] for name in ("consistency", "encoder_consistency", "reward", "termination")
    }
    steps, number = sequences.action.shape[:2]
    for b in range(number):
        task = _task(sequences.task, b)
        mask = 1.0
        latents = encodings[0, b].expand(params.latents.heads, -1)
        for t in range(steps):
            if sequences.valid is not None and not sequences.valid[t, b, 0]:
                mask = 0.0  # Padding never happened.
            action = sequences.action[t, b]
            after = torch.stack(
                [model.next_latent(z, action, task=task)[h] for h, z in enumerate(latents)]
            )
            factor = mask * float(rho[t])
            distance = float((after - targets[t + 1, b]).square().mean())
            found["consistency"].append(factor * distance)
            distance = float((encodings[t + 1, b] - after).square().mean())
            found["encoder_consistency"].append(factor * distance)
            from_rollout = params.reward.predict_from == "rollout"
            here = latents if from_rollout else encodings[t, b][None]
            there = after if from_rollout else encodings[t + 1, b][None]
            losses = [
                cross_entropy_reference(model, logits, sequences.reward[t, b, 0])
                for z in here
                for logits in model.logits("reward", z, action, task=task)
            ]
            found["reward"].append(factor * fmean(losses))
            if params.reward.episodic:
                ended = float(sequences.terminated[t, b, 0])
                odds = [float(model.logits("termination", z, task=task)[0]) for z in there]
                losses = [math.log1p(math.exp(odd)) - ended * odd for odd in odds]
                found["termination"].append(mask * fmean(losses))
                mask *= 1 - ended
            latents = after
    return {name: fmean(terms) for name, terms in found.items() if terms}


def cross_entropy_reference(
    model: LatentModel, logits: Float[Tensor, " bin"], y: Float[Tensor, ""]
) -> float:
    """That of one number, all of which lies on the two bins next to its symlog."""
    centres: list[float] = model.two_hot.centres.tolist()
    place = math.copysign(math.log1p(abs(float(y))), float(y))
    place = min(max(place, centres[0]), centres[-1])
    scores: list[float] = logits.tolist()
    top = max(scores)
    normaliser = top + math.log(sum(math.exp(score - top) for score in scores))
    width = centres[1] - centres[0]
    nearness = [max(0.0, 1 - abs(place - centre) / width) for centre in centres]
    return sum(share * (normaliser - score) for share, score in zip(nearness, scores, strict=True))


def _dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def _task(task: Int[Tensor, " row"] | None, row: int) -> Tensor | None:
    return None if task is None else task[row]
