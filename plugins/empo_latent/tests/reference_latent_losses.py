"""Targets and losses as their equations are written: one state, head and step at a time.

Slow, without gradients, and made to check the fast ones by.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_latent.networks.model import LatentModel
from empo_latent.params import Heads, LatentParams
from empo_latent.types import SequenceBatch

JOINED: Mapping[Heads, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}
"""Reductions of the outputs of several heads to one, by name."""


@torch.no_grad()
def losses_reference(
    model: LatentModel,
    params: LatentParams,
    sequences: SequenceBatch,
    actions: Float[Tensor, "candidate start action"],
    following: Float[Tensor, "time sequence action"],
    discounts: Sequence[float],
    pair: Sequence[int] = (),
) -> Mapping[str, float]:
    """All losses of the model before their coefficients, by name.

    Args:
        model: The networks; without dropout.
        params: What is learned.
        sequences: The batch.
        actions: The candidates at each start.
        following: Actions that the policy draws after each recorded one, for critic ``q``.
        discounts: Of each task.
        pair: The value heads of a pair; none: all of them.
    """
    terms: dict[str, list[float]] = defaultdict(list)
    steps, number = sequences.action.shape[:2]
    z = model.encode(sequences.observation, task=sequences.task)
    aims = z
    if params.encoder.average_rate is not None:
        aims = model.encode(sequences.observation, task=sequences.task, average=True)
    for b in range(number):
        task = None if sequences.task is None else sequences.task[b]
        gamma = discounts[0 if task is None else int(task)]
        alive = 1.0
        latents = z[0, b].expand(params.latents.heads, -1)
        for t in range(steps + 1):
            place = latents[0] if params.value.gradient == "rollout" else z[t, b]
            start = latents[0] if params.imagination.start == "rollout" else z[t, b]
            # The moment that ends an episode counts, as one that is worth nothing.
            ended = t > 0 and bool(sequences.terminated[t - 1, b, 0])
            counts = alive > 0 or (ended and not bool(sequences.terminated[: t - 1, b].any()))
            weight = counts * params.imagination.rho**t
            candidates = [u[t * number + b] for u in actions]
            if params.value.critic == "v":
                heads = [returns(model, start, u.tanh(), task, gamma, params) for u in candidates]
                estimates = [
                    [JOINED[params.value.dynamics](by_pair[e]) for e in range(params.value.heads)]
                    for by_pair in heads
                ]
                aim = [[alive * y for y in chosen(each, params, pair)] for each in estimates]
                if params.value.average == "target":
                    aim = [[fmean(column) for column in zip(*aim, strict=True)]]
                logits = model.logits("value", place, task=task)
                terms["value"].append(weight * crossed(model, logits, aim))
            if params.auxiliary is not None:
                aim = [
                    [alive * fmean(auxiliary_returns(model, start, candidates, task, i, g))]
                    for i, g in enumerate(params.auxiliary.discounts)
                ]
                logits = model.logits("auxiliary", z[t, b], task=task)
                column = [[each[0] for each in aim]]
                terms["auxiliary"].append(weight * crossed(model, logits, column))
            if t == steps:
                break
            valid = sequences.valid is None or bool(sequences.valid[t, b, 0])
            mask = alive * valid
            factor = mask * params.learning.rho**t
            action, ended_now = sequences.action[t, b], float(sequences.terminated[t, b, 0])
            after = torch.stack(
                [model.next_latent(x, action, task=task)[h] for h, x in enumerate(latents)]
            )
            error = float((after - aims[t + 1, b]).square().mean())
            terms["consistency"].append(factor * error)
            reward = sequences.reward[t, b, 0]
            errors = [
                cross_entropy_reference(model, logits, reward)
                for x in latents
                for logits in model.logits("reward", x, action, task=task)
            ]
            terms["reward"].append(factor * fmean(errors))
            if model.terminates:
                odds = [float(model.logits("termination", x, task=task)[0]) for x in after]
                errors = [math.log1p(math.exp(odd)) - ended_now * odd for odd in odds]
                terms["termination"].append(mask * fmean(errors))
            if params.value.critic == "q":
                values = model.value(z[t + 1, b], following[t, b], task=task, network="target")[
                    :, 0
                ]
                later = (1 - ended_now) * gamma
                each = chosen([float(value) for value in values], params, pair)
                aim = [[float(reward) + later * value for value in each]]
                logits = model.logits("value", place, action, task=task)
                terms["value"].append(factor * crossed(model, logits, aim))
            alive *= (1 - ended_now) * valid
            latents = after
    return {name: fmean(numbers) for name, numbers in terms.items()}


def returns(
    model: LatentModel,
    start: Float[Tensor, " latent"],
    action: Float[Tensor, " action"],
    task: Int[Tensor, ""] | None,
    gamma: float,
    params: LatentParams,
) -> list[list[float]]:
    """One-step returns by value head, each by all reward and dynamics heads, reward first."""
    rewards = [float(reward) for reward in model.reward(start, action, task=task)]
    network = params.imagination.critic
    later = []
    for after in model.next_latent(start, action, task=task):
        goes_on = 1 - float(model.termination(after, task=task))
        values = model.value(after, task=task, network=network)
        later.append([gamma * goes_on * float(value) for value in values])
    return [[r + row[e] for r in rewards for row in later] for e in range(params.value.heads)]


def auxiliary_returns(
    model: LatentModel,
    start: Float[Tensor, " latent"],
    candidates: Sequence[Float[Tensor, " action"]],
    task: Int[Tensor, ""] | None,
    head: int,
    gamma: float,
) -> list[float]:
    """One-step returns of all candidates by all heads, under another discount."""
    found = []
    for u in candidates:
        action = u.tanh()
        for after in model.next_latent(start, action, task=task):
            goes_on = 1 - float(model.termination(after, task=task))
            value = float(model.auxiliary(after, task=task, network="target")[head])
            for reward in model.reward(start, action, task=task):
                found.append(float(reward) + gamma * goes_on * value)
    return found


def chosen(values: list[float], params: LatentParams, pair: Sequence[int]) -> list[float]:
    """What each value head learns from."""
    if params.value.bootstrap == "local":
        return values
    least = min(values[e] for e in pair or range(len(values)))
    return [least] * len(values)


def crossed(
    model: LatentModel, logits: Float[Tensor, "head bin"], aims: list[list[float]]
) -> float:
    """Cross-entropy, mean over heads and over the targets of each."""
    return fmean(
        cross_entropy_reference(model, head, torch.tensor(y))
        for aim in aims
        for head, y in zip(logits, aim, strict=True)
    )


def cross_entropy_reference(
    model: LatentModel, logits: Float[Tensor, " bin"], y: Float[Tensor, ""]
) -> float:
    """That of one number, all of which lies on the two bins next to its symlog."""
    bins = model.two_hot
    width = (bins.high - bins.low) / (bins.number - 1)
    centres = [bins.low + width * number for number in range(bins.number)]
    place = math.copysign(math.log1p(abs(float(y))), float(y))
    place = min(max(place, centres[0]), centres[-1])
    scores: list[float] = logits.tolist()
    top = max(scores)
    normaliser = top + math.log(sum(math.exp(score - top) for score in scores))
    nearness = [max(0.0, 1 - abs(place - centre) / width) for centre in centres]
    return sum(share * (normaliser - score) for share, score in zip(nearness, scores, strict=True))
