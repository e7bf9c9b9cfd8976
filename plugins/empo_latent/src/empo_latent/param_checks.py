"""Refusing what would fail or mean nothing later, before any time is spent on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from empo_core.errors import ConfigError
from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch
from empo_latent.networks.ensemble import lack_of_heads
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.compute import device_problem

log = logging.getLogger(__name__)

WHERE = "algorithm.params."


def check_params(
    params: LatentParams, losses: Mapping[str, PolicyLoss], spec: MultiTaskSpec
) -> None:
    """Check params against each other, the losses by their policies' names, and the tasks.

    Raises:
        ConfigError: if the params do not fit; the message has one line per misfit.
    """
    problems = [
        *_of_losses(params, losses),
        *_of_heads(params),
        *_of_acting(params),
        *_of_tasks(params, spec),
        *_of_device(params.compute.device),
    ]
    if losses["policy"].needs.proposal and params.policy.average_rate is None:
        log.warning(
            "policy_loss asks for the policy that proposed candidates, which is the one that "
            "learns: they never differ, so a trust region does nothing; set "
            "policy.average_rate"
        )
    _warn_of_few_candidates(params, losses)
    if problems:
        raise ConfigError("\n".join(f"{WHERE}{problem}" for problem in problems))


def _warn_of_few_candidates(params: LatentParams, losses: Mapping[str, PolicyLoss]) -> None:
    candidates = params.imagination.candidates
    for name, loss in losses.items():
        if candidates and loss.needs.min_candidates <= candidates < loss.needs.candidates / 2:
            log.warning(
                "imagination.candidates: %s_loss compares only %d candidate actions per start, so "
                "that their weights are mostly noise; %d are recommended",
                name, candidates, loss.needs.candidates,
            )  # fmt: skip


def _of_losses(params: LatentParams, losses: Mapping[str, PolicyLoss]) -> Iterator[str]:
    num_candidates = params.imagination.candidates
    candidates = num_candidates or max(loss.needs.candidates for loss in losses.values())
    for name, loss in losses.items():
        if loss.takes is not CandidateBatch:
            yield (
                f"{name}_loss: {type(loss).__name__} learns from steps that were taken, and "
                "algorithm 'latent' imagines candidates; choose another, e.g. awr"
            )
        min_candidates = loss.needs.min_candidates
        if candidates < min_candidates:
            yield (
                f"imagination.candidates: {candidates}, and {name}_loss compares at least "
                f"{min_candidates} candidates; set it to "
                f"{max(min_candidates, loss.needs.candidates)}"
            )
        if loss.needs.expert and params.collection.acting != "planner":
            yield (
                f"{name}_loss: it imitates the planner, and there is none; set "
                "collection.acting to planner"
            )
    judges = any(loss.needs.critic or loss.needs.targets for loss in losses.values())
    if params.imagination.value_heads and not judges:
        yield (
            "imagination.value_heads: no policy loss asks how good actions are; choose one that "
            "does, e.g. svg, or drop this"
        )


def _of_heads(params: LatentParams) -> Iterator[str]:
    for where, group, subject in (
        ("planner", params.planner, "plans"),
        ("imagination", params.imagination, "actions"),
    ):
        lack = lack_of_heads(where, group.value_heads, params.value.heads, subject)
        if lack is not None:
            yield lack


def _of_acting(params: LatentParams) -> Iterator[str]:
    planner = params.planner
    explores = params.collection.acting == "planner"
    if not explores:
        if params.optimistic_loss is not None:
            yield (
                "optimistic_loss: its policy makes proposals for the planner in training, and "
                "collection.acting is policy; set that to planner, or drop this"
            )
    elif not planner.policy_plans and params.optimistic_loss is not None:
        yield "optimistic_loss: its policy proposes no plans; raise planner.policy_plans"
    if params.collection.env_threads > params.num_envs:
        yield (
            f"collection.env_threads: {params.collection.env_threads} threads cannot share "
            f"{params.num_envs} environment(s); raise num_envs, or lower this"
        )


def _of_tasks(params: LatentParams, spec: MultiTaskSpec) -> Iterator[str]:
    tasks = len(spec.tasks)
    if tasks > params.num_envs:
        yield (
            f"num_envs: {params.num_envs} environment(s) for {tasks} tasks; each "
            f"task needs one, so set it to a multiple of {tasks}"
        )
    sequences, envs = params.learning.horizon + 1, params.num_envs
    if params.replay.capacity < sequences * envs:
        yield (
            f"replay.capacity: {params.replay.capacity} rows cannot hold a sequence of each "
            f"environment (num_envs: {envs}), which has {sequences}; set replay.capacity to at "
            f"least {sequences * envs}, or lower num_envs"
        )


def _of_device(name: str) -> Iterator[str]:
    if problem := device_problem(name):
        yield problem
